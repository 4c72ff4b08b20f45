"""Small files that ask for more memory or time than any machine has.

Each family is read in a process of its own, which may take some hundred megabytes beyond what
it takes to start: reading what was asked for would end it.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import sqlite3
import struct
import sys
from collections.abc import Callable

import numpy as np
import pytest
from tests.fuzz import hostile
from tests.fuzz.hostile import limited

from tacit import Ledger
from tacit.data import readers
from tacit.exceptions import BudgetError, InputError
from tacit.ledger.links import LONGEST_ENTRY
from tacit.ledger.spending import MOST_KINDS, Limits, Spending, Tally
from tacit.ledger.store import Store
from tacit.privacy import Gaussian, Parallel, PoissonGaussian
from tacit.privacy.accounting.accountants import MOST_STEPS, epsilon, loss_distribution
from tacit.privacy.certificate import MOST_EVENTS, MOST_SAMPLED, Certificate, Expense
from tacit.privacy.verification import recheck

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory by process")
pytest.importorskip("pyarrow")

RUN = """
import json, time
results = {}
for name, call in CASES.items():
    start = time.process_time()
    try:
        found = str(call())
    except TacitError as error:
        found = type(error).__name__ + ": " + str(error)
    results[name] = [found[:2000], time.process_time() - start]
print(json.dumps(results))
"""


def outcomes(cases: dict[str, str], *, megabytes: int, seconds: float) -> dict[str, str]:
    """What each expression came to; none may take longer than so many seconds of processor."""
    made = "CASES = {" + ", ".join(f"{k!r}: lambda: {v}" for k, v in cases.items()) + "}\n"
    imports = "from tacit.data import Schema, read_table, scan\nfrom tacit import Ledger, load\n"
    imports += "from tacit.privacy import Certificate\nfrom tacit.plan.recipes import parse_stage\n"
    found = json.loads(limited(imports + made + RUN, megabytes=megabytes, seconds=300))
    slow = {name: time for name, (_, time) in found.items() if time > seconds}
    assert not slow
    return {name: words for name, (words, _) in found.items()}


# --- tables ----------------------------------------------------------------------------------


def parquet(path, columns, **options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, compression="zstd", **options)


def test_tables(tmp_path):
    import pyarrow as pa

    files = {
        "numbers.csv.gz": gzip.compress(b"a\n" + b"1\n" * (1 << 20), 1, mtime=0),
        "blank.csv.bz2": bz2.compress(b"a\n1\n" + b"\n" * (5 << 20)),
        "line.csv.xz": lzma.compress(b"a\n" + b"x" * (17 << 20), preset=0),
        "row.csv.xz": lzma.compress(b"a\n" + b'"\n",' * (5 << 20), preset=0),
        "header.csv": b",".join(b"c%d" % i for i in range(70_000)) + b"\n",
        "wide.csv.gz": gzip.compress(b"a" + b",a" * (1 << 22), mtime=0),
        "ones.csv.bz2": bz2.compress(b"a,b\n" + b"1,2\n" * 600_000),
        "none.csv.bz2": bz2.compress(b"a\n1\n" + b"\n" * 600_000),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    # 500 GB as text, 8 MB as codes: dictionaries are never spread out.
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000_000, np.int32)), ["x" * 100_000])
    parquet(tmp_path / "words.parquet", {"w.x": words}, store_schema=False)
    parquet(tmp_path / "cell.parquet", {"w": ["x" * 60_000_000]})
    parquet(tmp_path / "rows.parquet", {"w": pa.nulls(200_000_000)})
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000
    assert (tmp_path / "ones.csv.bz2").stat().st_size < 1700
    cases = {path.name: f"read_table({str(path)!r})" for path in tmp_path.iterdir()}
    for name in ("numbers.csv.gz", "blank.csv.bz2", "cell.parquet"):
        cases[name] = cases[name].replace(")", ", limit=1 << 22)")
    for name in ("row.csv.xz", "wide.csv.gz"):  # or their text would be too much
        cases[name] = cases[name].replace(")", ", limit=1 << 30)")
    packed = [name for name in cases if name in ("ones.csv.bz2", "none.csv.bz2")]
    cases |= {f"scan {name}": cases[name].replace("read_table", "scan") for name in packed}
    # Files of a folder, each of which is small enough: 140 million rows in 500 kB.
    zeros = pa.array(np.zeros(10**7, np.int8))
    folder = tmp_path / "folder"
    folder.mkdir()
    parquet(folder / "0.parquet", {"y": zeros, "x": zeros})
    for i in range(1, 14):
        (folder / f"{i}.parquet").write_bytes((folder / "0.parquet").read_bytes())
    cases["rows"] = f"scan({str(folder)!r}, target='y').labels([0, 1])"
    cases["memory"] = f"scan({str(folder)!r}, target='y', limit=4e9).labels([0, 1])"
    found = outcomes(cases, megabytes=700, seconds=10)
    for name in packed:
        for words in (found[name], found[f"scan {name}"]):
            assert "unpacks to more than 4 MB of text" in words and "limit=" in words
    assert "declares 140000000 rows of 2 columns" in found["rows"]
    assert "does not fit into the memory that is free" in found["memory"]
    assert found["words.parquet"] == "Table(2000000 rows: w.x)"
    for name in ("numbers.csv.gz", "blank.csv.bz2", "cell.parquet", "rows.parquet"):
        assert "more than" in found[name] and "limit=" in found[name]
    for name in ("line.csv.xz", "row.csv.xz"):
        assert "a row has more than 16777216 characters" in found[name]
    for name in ("header.csv", "wide.csv.gz"):
        assert "65536 are read from a file at most" in found[name]


def test_a_wide_parquet_table(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MOST_COLUMNS", 2)
    parquet(tmp_path / "t.parquet", {"a": [1], "b": [2], "c": [3]})
    with pytest.raises(InputError, match="it has 3 columns"):
        readers.read_table(tmp_path / "t.parquet")


# --- schemas ---------------------------------------------------------------------------------


def test_schemas(tmp_path):
    lists = ["l0: &l0 [x, x]"] + [f"l{i}: &l{i} [*l{i - 1}, *l{i - 1}]" for i in range(1, 60)]
    maps = ["m0: &m0 {a: 1}"] + [
        f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, 30)
    ]
    files = {
        "kind": "columns: {a: {kind: *l59}}",
        "label": "columns: {a: {kind: category, categories: [*l59]}}",
        "name": "ignore: [*l59]\ncolumns: {a: {kind: number, low: 0, high: 1}}",
        "merge": "columns: *m29",
        "text": "t: &t " + "x" * 100_000 + "\nignore: [" + ", ".join(["*t"] * 1000) + "]",
        "inside": "columns: &c {a: *c}",
        "inside a list": "columns: &c [*c]",
        "large": "#" * (5 << 20),
        "deep": "columns: " + "[" * 100_000,
        "keys": "columns: {" + ", ".join(f"k{i % 6000}: 1" for i in range(6001)) + "}",
    }
    cases = {}
    for name, text in files.items():
        above = lists if "l59" in text else maps if "m29" in text else []
        (tmp_path / name).write_text("\n".join([*above, text]))
        cases[name] = f"Schema.load({str(tmp_path / name)!r})"
    names = [f"column_{i}" for i in range(1500)]
    near = "{n.replace('_', ''): {'kind': 'number', 'low': 0, 'high': 1} for n in names}"
    cases["columns that are nearly there"] = (
        "(lambda names: __import__('tacit.preprocessing').preprocessing"
        f".Encode({{'columns': {near}}})"
        f".fit({{n: [1] for n in names}}))({names!r})"
    )
    found = outcomes(cases, megabytes=300, seconds=30)
    assert all(words.startswith(("SchemaError", "FileError")) for words in found.values()), found
    for name in ("kind", "label", "name", "merge", "text"):
        assert "aliases stand for more than 4 MB" in found[name]
    assert "larger than 4 MB" in found["large"]
    assert "inside of what it stands for" in found["inside"]
    assert "1500 in all" in found["columns that are nearly there"]


# --- models and stages -----------------------------------------------------------------------


def test_models_and_stages(tmp_path):
    tensors, metadata = hostile.model_parts(hostile.model_files()[3])
    model, claim = json.loads(metadata["tacit"]), metadata["certificate"]
    sets, parts = hostile.model_parts(hostile.model_files()[1])
    classes = json.loads(parts["tacit"])

    def labels(kind, values):
        return hostile.model_of(sets, {**classes, "classes": [kind, values]}, parts["certificate"])

    header = b'{"coef":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,8]}}'
    files = {
        "header": struct.pack("<Q", 2**60) + b"{}",
        "shape": struct.pack("<Q", len(header)) + header + bytes(8),
        "empty": hostile.model_of({**tensors, "stage.0.x_": np.zeros((0, 2**40))}, model, claim),
        "features": hostile.model_of(tensors, {**model, "features": 10**12}, claim),
        "long labels": labels("<U100000000", ["a", "b"]),
        "one long label": labels("<U2000000", ["a" * 2_000_000, *map(str, range(1000))]),
        "arrays as labels": labels("(1000000000,)i4", [0, 1]),
        "deep": hostile.model_of(tensors, hostile.nested(900), claim),
        "many": hostile.to_bytes({f"t{i}": np.zeros(1) for i in range(1001)}),
    }
    cases = {}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        cases[name] = f"load({str(tmp_path / name)!r})"
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(8 << 30)
    cases["sparse"] = f"load({str(sparse)!r})"
    for name, text in {
        "minus": "'-' * 10**6 + '1'",
        "brackets": "'ClipNorm(' + '[' * 10**6",
        "minus, short": "'ClipNorm(' + '-' * 15_000 + '1)'",
        "sums": "'ClipNorm(' + '1+' * 9_000 + '1)'",
        "dots": "'a' + '.a' * 9_000",
        "power": "'ClipNorm(9**9**9)'",
        "times": "'ClipNorm([0]*10**9)'",
        "digits": "'ClipNorm(' + '9' * 19_000 + ')'",
    }.items():
        cases[name] = f"parse_stage({text})"
    found = outcomes(cases, megabytes=300, seconds=20)
    assert found.pop("empty").startswith("DPLinearRegressor")  # no harm in it
    assert all(words.startswith(("FileError", "InputError")) for words in found.values()), found
    assert "set tacit.persistence.LIMIT" in found["sparse"]


# --- ledgers ---------------------------------------------------------------------------------

COUNTING = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
LONG = "printf('%.*c', 900000000, 'x')"
PROGRAMS = {
    "a view without end": f"""ALTER TABLE tacit_entries RENAME TO old;
        CREATE VIEW tacit_entries AS {COUNTING}
        SELECT i AS number, 'a' AS dataset, i AS id, '' AS body, '' AS hash FROM n""",
    "a long text": f"UPDATE tacit_entries SET body = {LONG.replace('900', '2')} WHERE number = 2",
    "a computed column": f"""DROP TABLE tacit_entries; CREATE TABLE tacit_entries (
        number BIGINT PRIMARY KEY, dataset TEXT, id TEXT, hash TEXT, body AS ({LONG}))""",
    "a trigger": """CREATE TRIGGER t AFTER INSERT ON tacit_entries BEGIN
        DELETE FROM tacit_entries WHERE number = new.number; END""",
}


def test_ledgers(tmp_path):
    cases = {}
    for name, program in PROGRAMS.items():
        path = tmp_path / f"{name}.db"
        path.write_bytes(hostile.ledger_file(list(hostile.ledger_entries())))
        connection = sqlite3.connect(path)
        try:
            connection.executescript(program)
        except sqlite3.Error:  # too long for this build of SQLite to begin with
            continue
        finally:
            connection.close()
        events = "[('x', __import__('tacit.privacy').privacy.Gaussian(50.0))]"
        given = f"Ledger({str(path)!r}, 'a', timeout=2)"
        cases[name] = f"{given}.check()"
        cases[f"{name}, spending"] = f"{given}.reserve({events}, neighbors='replace_special')"
    found = outcomes(cases, megabytes=200, seconds=20)
    for name, words in found.items():
        assert any(said in words for said in ("none of a ledger", "computed", "too big")), name


def test_pages_that_lead_to_each_other(tmp_path):
    """Whichever page of a file is put in the place of another, reading ends."""
    data = hostile.ledger_file(list(hostile.ledger_entries()))
    size = int.from_bytes(data[16:18], "big")
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    for i in range(1, len(pages)):
        for j in range(1, len(pages)):
            swapped = [*pages]
            swapped[i] = pages[j]
            hostile.survives("ledger", b"".join(swapped), tmp_path)


def test_an_entry_that_could_not_be_read_again_is_not_written(tmp_path):
    book = Ledger(tmp_path / "ledger.db").create("a", epsilon=2.0, delta=1e-5)
    drift = tuple((1 / 256, 1e-9 + i * 1e-12) for i in range(256))
    events = [("x", PoissonGaussian(1e6, 1 + i, 1e-9, drift)) for i in range(60)]
    assert len(json.dumps(Spending(tuple(events)).to_dict())) > LONGEST_ENTRY
    with pytest.raises((InputError, BudgetError)):
        book.at("a").reserve(events, neighbors="replace_special")
    short = [("x", Gaussian(1e6))] * 1000
    with pytest.raises(InputError, match="characters"):
        facts = {"kind": "amend", "reason": "x" * LONGEST_ENTRY}
        Store(book.address).write(lambda journal: journal.append("a", 2, "id", at="now", **facts))
    book.reserve(short, neighbors="replace_special")
    assert book.check() == []


def test_more_kinds_of_steps_than_can_be_composed_cost_everything():
    tally = Tally()
    for i in range(MOST_KINDS + 1):
        tally.add([PoissonGaussian(100.0 + i, 1, 1e-3)], 0, 0.0)
    assert tally.epsilon(Limits(1.0, 1e-5, "replace_special")) == math.inf


def test_an_account_of_more_steps_than_a_grid_takes_is_counted_in_parts():
    step = PoissonGaussian(1e4, MOST_STEPS, 1e-4)
    tally = Tally()
    for _ in range(2):
        tally.add([step], 0, 0.0)
    (found,) = (event for event in tally.events("replace_special"))
    assert found.count == 2 * MOST_STEPS
    assert tally.epsilon(Limits(1.0, 1e-5, "replace_special")) < 1.0


# --- certificates ----------------------------------------------------------------------------


def claim(epsilon: float, delta: float, neighbors: str, *events) -> Certificate:
    spent = tuple(Expense("x", event) for event in events)
    return Certificate(epsilon, delta, neighbors, events=spent)


#: Each took more than half a minute, or gigabytes, when grids were not bounded.
SLOW: dict[str, Callable[[], Certificate]] = {
    "a large epsilon": lambda: claim(1e6, 1e-5, "replace_special", Gaussian(0.003)),
    "larger than any": lambda: claim(1e122, 1e-5, "replace_special", PoissonGaussian(0.014, 3)),
    "steps for ever": lambda: claim(
        1.0, 1e-5, "replace_one", PoissonGaussian(3.1, 99_582_467_523, 0.045)
    ),
    "steps of nothing": lambda: claim(
        1.0, 1e-5, "add_or_remove_one", PoissonGaussian(1e200, 10**12, 1e-3)
    ),
    "many steps": lambda: claim(
        1.0, 1e-100, "replace_one", PoissonGaussian(93.3, 11_316_582, 0.0026)
    ),
    "little noise": lambda: claim(
        60.9, 0.0463, "replace_special", PoissonGaussian(0.1363, 7, 0.00215)
    ),
}


def test_certificates(tmp_path):
    cases = {}
    for name, make in SLOW.items():
        make().save(tmp_path / name)
        cases[name] = f"Certificate.load({str(tmp_path / name)!r}).verify().holds"
    data = json.loads(hostile.certificate_file())
    many = [{**data["events"][0]}] * (MOST_EVENTS + 1)
    (tmp_path / "many").write_bytes(hostile.signed({**data, "events": many}))
    (tmp_path / "large").write_bytes(b"[" + b"[]," * (6 << 20) + b"1]")
    (tmp_path / "keys").write_bytes(b"{" + b'"a":1,' * (2 << 20) + b'"b":1}')
    for name in ("many", "large", "keys"):
        cases[name] = f"Certificate.load({str(tmp_path / name)!r})"
    found = outcomes(cases, megabytes=1500, seconds=40)
    assert f"at most {MOST_EVENTS} events" in found["many"]
    assert "larger than 16 MB" in found["large"]
    assert "'a' is given twice" in found["keys"]
    assert found["a large epsilon"] == found["larger than any"] == found["little noise"] == "True"
    assert found["steps for ever"] == found["many steps"] == "False"


def test_many_kinds_of_sampled_steps_are_a_problem_and_take_no_time():
    events = [PoissonGaussian(50.0 + i, 100, 0.01) for i in range(MOST_SAMPLED + 1)]
    found = claim(1.0, 1e-5, "replace_special", *events).verify()
    assert not found.holds and f"more than {MOST_SAMPLED}" in found.problems[0]


def test_many_combinations_of_parts_are_a_problem_and_take_no_time():
    """Each of 32 combinations would be composed by itself, by both routes."""
    noise = iter(range(100))
    parts = [
        [[PoissonGaussian(5.0 + next(noise), 9, 0.1) for _ in range(3)] for _ in range(2)]
        for _ in range(5)
    ]
    found = claim(9.0, 1e-5, "replace_special", *map(Parallel, parts)).verify()
    assert not found.holds and "too many combinations" in found.problems[0]
    more = [Parallel(parts[0], count=10**12)]
    found = claim(9.0, 1e-5, "replace_special", *more).verify()
    assert not found.holds and "so many" in found.problems[0]


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize(
    "event",
    [Gaussian(0.1, 3), PoissonGaussian(0.05), PoissonGaussian(0.2, 2, 0.3)],
    ids=["gaussian", "all rows", "some rows"],
)
def test_coarser_grids_err_upwards(event, neighbors, monkeypatch):
    """What bounds time and memory must not lower ε."""
    steps = [(event.kind, event.to_dict()["parameters"])]
    true = recheck.epsilon(steps, 1e-5, neighbors)
    for points in (2**10, 2**8):
        monkeypatch.setattr("tacit.privacy.accounting.accountants.STEP_POINTS", points)
        coarse = loss_distribution([event], neighbors, 1e-2).get_epsilon(1e-5)
        assert true.lower <= coarse <= 1.2 * true.upper + 1


def test_too_many_sampled_steps_are_refused_with_what_to_do():
    with pytest.raises(InputError, match="1000000 at most, or all rows in every step"):
        epsilon([PoissonGaussian(50.0, MOST_STEPS + 1, 0.01)], 1e-5, "replace_special")
