"""Imports go downwards only, every public name exists, and importing stays light."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {".".join(p.relative_to(SOURCE.parent).with_suffix("").parts): p for p in FILES}
MODULES = {name.removesuffix(".__init__"): path for name, path in MODULES.items()}

# Who may import by name: the package, which loads names when asked, and the door to research.
BY_NAME = (SOURCE / "__init__.py", SOURCE / "registry.py")

# docs/architecture.md, rule 4: from the bottom to the top. What shares a line may not import
# each other, except within one package. The package itself only loads names when asked.
LAYERS = [
    {"exceptions", "progress"},
    {"files", "losses", "params", "registry"},
    {"privacy"},
    {"mechanisms"},
    {"data", "ledger", "report"},
    {"datasets", "engine", "metrics"},
    {"features", "trainers"},
    {"networks", "preprocessing"},
    {"plan"},
    {"diagnostics", "linear_model"},
    {"model_selection", "persistence", "pipeline"},
    {"audit"},
    {"cli"},
    {"research"},
]


def package(module):
    """The part of a module's name that stands in the layers: tacit.privacy.events -> privacy."""
    return module.split(".")[1] if "." in module else ""


def height(name):
    for i, layer in enumerate(LAYERS):
        if name in layer:
            return i
    pytest.fail(f"tacit.{name} is in no layer: say where it stands, here and in architecture.md")


def imports(path):
    """Every module of tacit that a file imports, wherever in the file, and its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tacit":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the layer"
            if node.module == "tacit":
                for alias in node.names:
                    yield f"tacit.{alias.name}", node.lineno
            elif (node.module or "").startswith("tacit."):
                yield node.module, node.lineno
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            by_name = called.endswith(("import_module", "__import__", "resolve_name"))
            if by_name and path not in BY_NAME:
                pytest.fail(f"{path}:{node.lineno}: an import by name escapes this test")


def test_the_layers_are_those_of_the_documentation():
    docs = SOURCE.parents[1] / "docs" / "architecture.md"
    if not docs.exists():
        pytest.skip("the documentation is not here")
    (order,) = re.findall(r"Imports go downwards only\*: `([^`]+)`", docs.read_text("utf-8"))
    assert [set(layer.split(", ")) for layer in order.split(" → ")] == LAYERS


def test_every_module_has_a_layer():
    for module in MODULES:
        if package(module) and not package(module).startswith("__"):
            height(package(module))


@pytest.mark.parametrize("module", [m for m in MODULES if package(m)])
def test_imports_go_downwards_only(module):
    here = package(module)
    for target, line in imports(MODULES[module]):
        there = package(target)
        if there in (here, "__version__"):
            continue
        assert height(there) < height(here), (
            f"{module}, line {line}, imports {target}: {there} is not below {here}"
        )


@pytest.mark.parametrize("module", [m for m in MODULES if package(m) != "research"])
def test_nothing_outside_research_imports_it(module):
    reached = [target for target, _ in imports(MODULES[module]) if package(target) == "research"]
    assert not reached, f"{module} imports {reached}: add to a registry from tacit.research instead"


@pytest.mark.parametrize(
    "line",
    [
        "import tacit.research.theory as theory",
        "from tacit import losses, research",
        "from tacit.research import median",
        "if TYPE_CHECKING:\n    from tacit.research.theory import Risk",
        "def late():\n    from tacit.research.trainers.local import LocalDPGD",
    ],
)
def test_an_import_of_research_is_found_wherever_it_stands(tmp_path, line):
    path = tmp_path / "module.py"
    path.write_text(line, encoding="utf-8")
    assert "research" in {package(target) for target, _ in imports(path)}


def test_an_import_by_name_is_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("importlib.import_module('tacit.research')", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match="an import by name"):
        list(imports(path))


def test_names_of_the_package_are_not_those_of_research():
    homes = [getattr(tacit, name).__module__ for name in tacit.__all__]
    assert not [home for home in homes if package(home) == "research"]


def test_the_package_itself_imports_nothing_of_its_own():
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all(
        not (ast.unparse(node)).startswith(("from tacit", "import tacit")) for node in at_once
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_is_listed_once(module):
    if module.endswith("__main__"):
        return
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", [])
    assert len(set(names)) == len(names)
    for name in names:
        assert isinstance(name, str)
        assert hasattr(loaded, name), f"{module}.__all__ names {name}, which does not exist"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_name_with_an_underscore_stays_in_its_module(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    taken = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tacit"
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.endswith("__")
    ]
    assert not taken, f"{taken}: what others use has a name without an underscore"


HEAVY = ["dp_accounting", "pandas", "torch", "dask", "pyarrow", "typer", "rich", "jinja2"]
HEAVY += ["sklearn", "scipy", "polars", "mpmath", "sqlalchemy", "onnxruntime", "PIL"]


def loaded_by(statement):
    """The packages that a fresh interpreter holds after a statement."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return set(done.stdout.split())


def test_importing_tacit_is_light():
    assert not loaded_by("import tacit") & set(HEAVY)


@pytest.mark.slow
def test_estimators_load_nothing_heavy_beyond_scikit_learn():
    # scikit-learn may bring pandas and what pandas brings: that is its own affair.
    brought = loaded_by("from sklearn.utils.validation import validate_data")
    found = loaded_by("from tacit import DPLinearClassifier") - brought
    heavy = {"dp_accounting", "pandas", "torch", "dask", "pyarrow", "typer", "jinja2", "sqlalchemy"}
    heavy |= {"onnxruntime", "PIL"}
    assert not found & heavy


def test_the_names_of_the_package_are_there_when_asked_for():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
        assert name in dir(tacit)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tacit.nothing


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_names_a_place_on_somebody_s_machine(path):
    text = path.read_text(encoding="utf-8")
    places = r"(?<![\w.])/(?:work|home|Users|root|tmp|mnt|opt|var)/\w|[A-Z]:\\\\|file://"
    assert not re.findall(places, text)
