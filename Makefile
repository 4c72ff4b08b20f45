# Two commands do all their own set-up on a machine with Python 3.11+, git and make:
#   make demo    train on the bundled census table and write a report
#   make test    lint, type check and run the whole test suite
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test sanitize neon test-long test-torch lint bench reproduce compat fuzz clean

demo: $(VENV)/.installed
	$(BIN)/tacit demo --out tacit-demo --force

test: lint
	$(BIN)/python -m pytest -n $(JOBS)

# The compiled loops under the sanitizers of addresses and of undefined behaviour (GCC, Linux).
SANITIZED := build/sanitized
COMPILED := src/tacit/engine/kernels src/tacit/mechanisms
sanitize: $(VENV)/.dev
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src tests $(SANITIZED)
	for folder in $(COMPILED); do \
	  $(CC) -std=gnu11 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	  -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi -DPy_LIMITED_API=0x030B0000 \
	  -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') \
	  -shared -fPIC $$folder/native.c -o $(SANITIZED)/$$folder/native.abi3.so || exit 1; done
	cd $(SANITIZED) && ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=src \
	  LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	  $(CURDIR)/$(BIN)/python -m pytest -q -c $(CURDIR)/pyproject.toml --rootdir=. \
	  tests/trainers/test_compact.py tests/trainers/test_shaped.py tests/mechanisms/test_compiled.py \
	  tests/mechanisms/test_compiled_noise.py tests/trainers/test_people.py

# The loops for any processor on another one, in an emulator: the same integers as here. Needs a
# compiler for it, and QEMU (Debian: gcc-aarch64-linux-gnu, qemu-user).
NEON := build/neon
TRIED := -std=gnu11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi tests/trainers/neon.c
neon:
	mkdir -p $(NEON)
	$(CC) $(TRIED) -o $(NEON)/here -lm && $(NEON)/here | uniq > $(NEON)/here.txt
	aarch64-linux-gnu-gcc $(TRIED) -static -o $(NEON)/there -lm
	qemu-aarch64 $(NEON)/there > $(NEON)/there.txt
	diff $(NEON)/here.txt $(NEON)/there.txt && echo "the same integers"

# The sampler over a hundred million draws, and whatever else takes minutes.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long -s

# Modules of PyTorch, which is some gigabytes and therefore not in .[dev].
test-torch: $(VENV)/.torch
	$(BIN)/python -m pytest -m torch tests/test_networks.py tests/features/test_published.py tests/trainers/test_arrays.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# The papers' claims in full, as committed in docs/reproduction: hours, and may be interrupted.
reproduce: $(VENV)/.torch
	$(BIN)/tacit reproduce --first-seed 2000 --out docs/reproduction

# The estimators against the oldest and every later supported scikit-learn.
compat: $(VENV)/.dev
	$(BIN)/python tests/compat.py

# Hostile input to every reader of files, so many seconds each; what is found is written beside.
FUZZ_SECONDS ?= 300
fuzz: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.atheris_targets all -max_total_time=$(FUZZ_SECONDS)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Tacit needs Python 3.11 or later: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

NATIVE := setup.py $(wildcard src/tacit/engine/kernels/*.[ch] src/tacit/mechanisms/*.c)

$(VENV)/.installed: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ $(VENV)/.installed

# What the extra asks for, without building the tree again, which `compat` may be doing meanwhile.
EXTRA = import tomllib; \
  extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print(*(name for name in extras["torch"] if not name.startswith("tacit")))
$(VENV)/.torch: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c '$(EXTRA)')
	touch $@

clean:
	rm -rf $(VENV) .venv-compat build dist tacit-demo .pytest_cache .mypy_cache .ruff_cache
