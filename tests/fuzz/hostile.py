"""What hostile files are made of, and what every reader must make of them.

A *reader* takes bytes and ends with a result or with a `TacitError`; anything else is a bug.
The same readers are run by Hypothesis (``test_readers.py``) and by atheris
(``atheris_targets.py``).
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import os
import random
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from tacit import DPLinearClassifier, DPLinearRegressor, Ledger, load, save
from tacit import persistence as models
from tacit.data import NumberColumn, Schema, Table, declared_schema, read_table, scan
from tacit.data.cells import is_missing
from tacit.datasets.archives import member, unpacked
from tacit.exceptions import TacitError
from tacit.features import load_features
from tacit.files import first_bytes
from tacit.ledger.ledger import BOOKS
from tacit.ledger.links import ORIGIN, digest
from tacit.plan.recipes import parse_stage
from tacit.preprocessing import (
    ClipNorm,
    Encode,
    PrivateCenter,
    PublicPCA,
    PublicScale,
    RandomProjection,
)
from tacit.privacy import Certificate, Gaussian
from tacit.privacy import certificate as certificate_module
from tacit.report import plain_text, render_html
from tacit.trainers import DPGD

ROOT = Path(__file__).resolve().parents[2]

SCHEMA = """\
target: ill
classes: ["no", "yes"]
columns:
  age: {kind: number, low: 0, high: 100, missing: indicator}
  job: &job
    kind: category
    categories: [cook, nurse, "1"]
    unseen: level
  "second, job": *job
ignore: [name]
"""
CSV = 'age,job,"second, job",ill\n31,cook,nurse,no\n, ? ,"1",yes\n1e3,cook,"a ""b""",no\n'
STAGES = [
    "ClipNorm(2.0)",
    "Bound(low=[0, 10], high=[100, 20])",
    "RandomProjection(n_components=3, seed=7)",
    "PrivateCenter(share=0.2)",
    "SoftPCA(strength=0.05)",
    "NoiselessPCA(2, gap=0.1)",
    "NoiselessImpute('mean', rows_with_gaps=10, columns=[0, 1])",
    "FillGaps(0.5)",
]

# --- hostile values --------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


#: A file that is never to be opened, and one that is never to appear.
BAIT = Path(tempfile.gettempdir()) / f"tacit-bait-{os.getpid()}.yaml"
TOUCHED = BAIT.with_suffix(".touched")

TEXTS = [
    "",
    " ",
    "nan",
    "inf",
    "1e400",
    "\x00",
    "\x1b[2J\x1b[31m",
    "\u202eevil\u2066",
    "\ud800",
    "a\nThe claim holds.",
    "[bold red]x[/]",
    "<script>document.title='taken'</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7*7 }}{% for x in y %}",
    "../../../../etc/passwd",
    str(BAIT),
    f"__import__('os').system('touch {TOUCHED}')",
    "=HYPERLINK()",
    "x" * 10_000,
    "__class__",
    "replace_one",
    "Encode",
    "PublicPCA",
    "Dedup",
]
NUMBERS = [
    0,
    -1,
    1,
    2,
    0.5,
    -0.0,
    5e-324,
    1e-300,
    1e300,
    1.7e308,
    2**31,
    2**63,
    10**30,
    10**400,
    -(10**400),
]
OTHERS = [None, True, False, [], {}, [[]], [None], {"": {}}, {"kind": []}, nested(30), nested(80)]
VALUES = [*TEXTS, *NUMBERS, *OTHERS]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, the whole of it first."""
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same value with something else at one place; `dropped` leaves it out."""
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if not rest and new is dropped:
        del copy[key]
    else:
        copy[key] = changed(copy[key], tuple(rest), new)
    return copy


dropped = object()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, moved, or replaced by interesting ones."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        at, end = sorted(chance.randrange(len(out) + 1) for _ in range(2))
        match chance.randrange(7):
            case 0 if out:
                out[min(at, len(out) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at : min(end, at + 64)]
            case 3:
                out[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 2**31 - 1, 2**32 - 1]))
            case 4:
                out[at : at + 8] = struct.pack("<q", chance.choice([-1, 2**62, 2**40, 0]))
            case 5:
                out[at:at] = chance.choice(TEXTS).encode("utf-8", "surrogatepass")[:100]
            case _:
                out[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(out)


# --- valid files to start from ---------------------------------------------------------------


@cache
def model_files() -> tuple[bytes, ...]:
    """Models of every kind of stage that prediction needs."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 3)), np.arange(60) % 3
    people = {"age": rng.uniform(0, 100, 60), "job": ["cook", "nurse", None] * 20}
    columns = {
        "age": {"kind": "number", "low": 0, "high": 100},
        "job": {"kind": "category", "categories": ["cook", "nurse"]},
    }
    given: list[tuple[Any, Any, Any]] = [
        (DPLinearClassifier, [ClipNorm(3.0), PublicPCA(rows + 1.0, 2)], (rows, labels)),
        (DPLinearClassifier, [PublicScale(rows + 1.0), ClipNorm()], (rows, labels > 0)),
        (DPLinearClassifier, [Encode({"columns": columns}), ClipNorm()], (people, labels > 1)),
        (
            DPLinearRegressor,
            [ClipNorm(2.0), RandomProjection(2), PrivateCenter()],
            (rows, rows[:, 0]),
        ),
    ]
    found = []
    for kind, stages, (X, y) in given:
        bounds = {"target_bounds": (-5.0, 5.0)} if kind is DPLinearRegressor else {}
        model = kind(1.0, 1e-5, stages=stages, trainer=DPGD(steps=2), **bounds).fit(X, y)
        with tempfile.TemporaryDirectory() as folder:
            save(model, Path(folder, "model"))
            found.append(Path(folder, "model").read_bytes())
    return tuple(found)


@cache
def certificate_file() -> bytes:
    _, metadata = model_parts(model_files()[2])
    return metadata["certificate"].encode()


@cache
def parquet_file() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"age": [31, None, 1000], "job": ["cook", None, "cook"], "ill": ["no", "yes", "no"]}
    buffer = BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


@cache
def varied_parquet_file() -> bytes:
    """Every type that is read, in several row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "byte": pa.array([0, 255, 7], pa.uint8()),
        "half": pa.array([0.5, None, 2.0], pa.float16()),
        "money": pa.array([Decimal("1.25"), None, Decimal(-3)], pa.decimal128(20, 2)),
        "yes": pa.array([True, None, False]),
        "day": pa.array([0, 1, None], pa.timestamp("us")),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "code": pa.array([1.5, None, 1.5]).dictionary_encode(),
        "none": pa.nulls(3),
    }
    buffer = BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=2, compression="none")
    return buffer.getvalue()


def array_file() -> bytes:
    buffer = BytesIO()
    np.save(buffer, np.arange(12.0).reshape(4, 3))
    return buffer.getvalue()


@cache
def ledger_entries() -> tuple[dict[str, Any], ...]:
    """The entries of a small ledger, as they are written."""
    with tempfile.TemporaryDirectory() as folder:
        book = Ledger(Path(folder, "ledger.db")).create("a", epsilon=3.0, delta=1e-5)
        plan = {"steps": ["DPGD"], "rows": 100}
        held = book.reserve([("x", Gaussian(5.0, 3))], neighbors="replace_special", plan=plan)
        held.commit("model", "0" * 64)
        book.amend(epsilon=4.0, reason="board")
        return tuple(dict(entry.facts) for entry in book.entries())


TABLES = """
CREATE TABLE tacit_ledger (id INTEGER NOT NULL, format TEXT NOT NULL, count BIGINT NOT NULL,
    head TEXT NOT NULL, PRIMARY KEY (id));
CREATE TABLE tacit_entries (number BIGINT NOT NULL, dataset TEXT NOT NULL, id TEXT NOT NULL,
    body TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (number), UNIQUE (id));
CREATE INDEX tacit_entries_by_dataset ON tacit_entries (dataset, number);
"""


def ledger_file(bodies: list[Any]) -> bytes:
    """A ledger of these entries, each with the hash that it should have."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    head = ORIGIN
    for number, body in enumerate(bodies, start=1):
        given = body if isinstance(body, dict) else {}
        if "previous" in given:
            body = given | {"previous": head}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        head = digest(text)
        row = (number, given.get("dataset", "a"), given.get("id", str(number)), text, head)
        plain = [cell if isinstance(cell, str | int) else "x" for cell in row]
        with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
            connection.execute("INSERT INTO tacit_entries VALUES (?, ?, ?, ?, ?)", plain)
    connection.execute(
        "INSERT INTO tacit_ledger VALUES (1, 'tacit-ledger/1', ?, ?)", (len(bodies), head)
    )
    connection.commit()
    data = connection.serialize()
    connection.close()
    return data


# --- files whose digests fit -----------------------------------------------------------------


def signed(data: Any) -> bytes:
    """A certificate whose digest fits what it says."""
    with suppress(TypeError, ValueError, RecursionError, AttributeError):
        data = {**data, "digest": certificate_module.digest_of(data)}
    return json.dumps(data).encode()


def model_parts(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    (length,) = struct.unpack("<Q", data[:8])
    return from_bytes(data), json.loads(data[8 : 8 + length])["__metadata__"]


def model_of(tensors: dict[str, np.ndarray], model: Any, certificate: str) -> bytes:
    """A model file whose digest fits what it says."""
    metadata = {"tacit": json.dumps(model), "certificate": certificate}
    metadata["digest"] = models.digest_of(tensors, metadata)
    return to_bytes(tensors, metadata=metadata)


# --- files with values changed ---------------------------------------------------------------

Pick = Callable[[list[Any]], Any]
SHAPES = [(), (0,), (1,), (3,), (2, 2), (0, 10**6), (1, 2, 3)]


def _edit(value: Any, pick: Pick) -> Any:
    """A JSON value with something hostile at one place."""
    return changed(value, pick(list(places(value))[1:]), pick([*VALUES, dropped]))


def _edited_model(pick: Pick) -> bytes:
    tensors, metadata = model_parts(pick(list(model_files())))
    model = json.loads(metadata["tacit"])
    if pick([True, False]):
        return model_of(tensors, _edit(model, pick), metadata["certificate"])
    name = pick([*tensors, "stage.0.x_", "stage.1.matrix_", "stage.0.schema_"])
    value, kind = pick([0.0, 1.0, -1e308, math.nan, math.inf]), pick(["f8", "f4", "i1", "?"])
    with np.errstate(all="ignore"):
        tensors[name] = np.full(pick(SHAPES), value).astype(kind)
    return model_of(tensors, model, metadata["certificate"])


def _edited_ledger(pick: Pick) -> bytes:
    entries = list(ledger_entries())
    which = pick([*range(len(entries))])
    entries[which] = _edit(entries[which], pick)
    return ledger_file(entries)


#: Valid files with hostile values in them; digests and hashes fit, so that these are looked at.
EDITED: dict[str, Callable[[Pick], bytes]] = {
    "schema": lambda pick: json.dumps(_edit(yaml.safe_load(SCHEMA), pick)).encode(),
    "certificate": lambda pick: signed(_edit(json.loads(certificate_file()), pick)),
    "model": _edited_model,
    "ledger": _edited_ledger,
}


# --- readers ---------------------------------------------------------------------------------


def read_schema(path: Path) -> None:
    schema = Schema.load(path)
    assert Schema.from_dict(schema.to_dict()) == schema
    schema.save(path)
    assert Schema.load(path) == schema


def archive_files() -> list[bytes]:
    """A zip file, tar files, and a Debian package, with one member each."""
    zipped, tarred, data = BytesIO(), BytesIO(), CSV.encode()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("rows.csv"), data)
    with tarfile.open(fileobj=tarred, mode="w") as tar:
        entry = tarfile.TarInfo("rows.csv")
        entry.size = len(data)
        tar.addfile(entry, BytesIO(data))
    packed = gzip.compress(data, mtime=0)
    head = f"{'rows.csv':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(packed):<10}`\n"
    debian = b"!<arch>\n" + head.encode() + packed
    whole = tarred.getvalue()
    return [zipped.getvalue(), whole, gzip.compress(whole, mtime=0), debian]


def read_certificate(path: Path) -> None:
    certificate = Certificate.load(path)
    assert Certificate.from_json(certificate.to_json()) == certificate
    with suppress(TacitError):
        render_html(certificate.to_dict()).encode()
    with suppress(TacitError):
        plain_text(certificate.to_dict()).encode()


def read_model(path: Path) -> None:
    model = load(path)
    rows: Any = np.zeros((2, model.n_features_in_))
    for stage in model.stages_:
        if isinstance(stage, Encode):
            columns = stage.schema.columns.items()
            rows = Table.from_columns(
                {k: [c.low if isinstance(c, NumberColumn) else c.categories[0]] for k, c in columns}
            )
    if hasattr(model, "feature_names_in_") and isinstance(rows, np.ndarray):
        import pandas as pd

        rows = pd.DataFrame(rows, columns=model.feature_names_in_)
    with np.errstate(all="ignore"):  # coefficients may be as large as numbers are
        model.predict(rows)


def read_ledger(path: Path) -> None:
    BOOKS.clear()
    book = Ledger(path, timeout=0.5)
    problems = book.check()
    for name in book.datasets():
        json.dumps(book.remaining(name).to_dict(), allow_nan=False)
        json.dumps([charge.to_dict() for charge in book.charges(name)], allow_nan=False)
    book.entries()
    assert problems == book.check()


def read_rows(path: Path) -> None:
    table = read_table(path, limit=1 << 26)
    for name in table.column_names:
        table.column(name)
        assert len(table.values(name)) == len(table.values(name, dates=True)) == table.n
        words = [word for word in table.coded(name)[1] if not is_missing(word)][:3]
        assert len(table.match(name, words)) == len(table.texts(name)) == table.n
    Schema.draft(table)
    assert declared_schema(table).private


def scan_rows(path: Path) -> None:
    found = scan(path)
    rows = found.as_rows(gaps=True) if found.column_names is None else found.as_table_rows()
    for _ in rows.chunks():
        pass


def features_files() -> list[bytes]:
    """As Tacit writes them, and as anybody does."""
    rows, labels = np.arange(12.0).reshape(4, 3), np.array(["a", "b", "a", "b"])
    facts = np.array('{"format": "tacit-features/1", "extractor": "net.onnx"}')
    found = []
    for write, arrays in (
        (np.savez, {"features": rows, "labels": labels, "metadata": facts}),
        (np.savez_compressed, {"x_train": np.asfortranarray(rows), "y_train": np.arange(4)}),
    ):
        file = BytesIO()
        write(file, **arrays)
        found.append(file.getvalue())
    return found


def read_features(path: Path) -> None:
    found = load_features(path, part="train")
    assert found.features.ndim == 2 and found.features.nbytes < 1 << 30
    assert found.assumption().isprintable()


def read_stage(path: Path) -> None:
    stage = parse_stage(path.read_bytes().decode("utf-8", "replace"))
    repr(stage)
    stage.parameters()


def read_archive(path: Path) -> None:
    found = member(str(path), first_bytes(path), "rows.csv", 1 << 16)
    unpacked(str(path), found, 1 << 16)


READERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "schema": ("schema.yaml", read_schema),
    "certificate": ("certificate.json", read_certificate),
    "model": ("model.safetensors", read_model),
    "ledger": ("ledger.db", read_ledger),
    "csv": ("table.csv", read_rows),
    "gzip": ("table.csv.gz", read_rows),
    "xz": ("table.tsv.xz", read_rows),
    "parquet": ("table.parquet", read_rows),
    "scanned csv": ("scanned.csv.gz", scan_rows),
    "scanned parquet": ("scanned.parquet", scan_rows),
    "array": ("array.npy", scan_rows),
    "features": ("features.npz", read_features),
    "stage": ("stage.txt", read_stage),
    "archive": ("archive.bin", read_archive),
}


def seeds(kind: str) -> list[bytes]:
    """Valid files of a kind."""
    return {
        "schema": lambda: [SCHEMA.encode()],
        "certificate": lambda: [certificate_file()],
        "model": lambda: list(model_files()),
        "ledger": lambda: [ledger_file(list(ledger_entries()))],
        "csv": lambda: [CSV.encode()],
        "gzip": lambda: [gzip.compress(CSV.encode(), mtime=0)],
        "xz": lambda: [lzma.compress(CSV.replace(",", "\t").encode())],
        "parquet": lambda: [parquet_file(), varied_parquet_file()],
        "scanned csv": lambda: [gzip.compress(CSV.encode(), mtime=0)],
        "scanned parquet": lambda: [parquet_file(), varied_parquet_file()],
        "array": lambda: [array_file()],
        "features": features_files,
        "stage": lambda: [text.encode() for text in STAGES],
        "archive": archive_files,
    }[kind]()


def survives(kind: str, data: bytes, folder: Path) -> bool:
    """Whether a reader took these bytes; it may also refuse them, and nothing else."""
    name, read = READERS[kind]
    path = folder / name
    path.write_bytes(data)
    try:
        read(path)
    except TacitError as refusal:
        assert str(refusal)
        assert len(str(refusal)) < 30_000
        return False
    finally:
        for left in folder.glob("ledger.db-*"):
            left.unlink()
    return True


# --- what must not happen --------------------------------------------------------------------

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork")
seen: list[str] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event in FORBIDDEN or event == "pickle.find_class":
        seen.append(event)
    elif event == "open" and args[0] in (str(BAIT), BAIT):
        seen.append(f"opened {args[0]}")


def watch() -> None:
    """From now on, note in `seen` if a program is run, a pickle read, or the bait opened."""
    BAIT.write_text(SCHEMA)
    sys.addaudithook(_watch)


# --- limits of memory ------------------------------------------------------------------------


def limited(source: str, *, megabytes: int, seconds: int = 60) -> str:
    """What Python source prints, in a process that may take so much memory beyond its imports.

    It fails if the process takes more, or longer.
    """
    program = (
        "import resource, sys\n"
        "import numpy, scipy.signal, scipy.stats, yaml, sqlalchemy, safetensors.numpy\n"
        "import pyarrow.parquet\n"
        "import tacit.persistence, tacit.cli.tasks.fit, tacit.ledger.store\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        f"limit = pages * resource.getpagesize() + ({megabytes} << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "from tacit.exceptions import TacitError\n" + source
    )
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    settings = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=os.environ | settings,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
