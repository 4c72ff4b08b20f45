"""Features of whole folders, arrays and tables: kept, resumed, written whole."""

from __future__ import annotations

import gzip
import json
import os
import stat
import struct

import numpy as np
import pytest
from PIL import Image
from tests.features import nets
from typer.testing import CliRunner

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch
from tacit.cli.main import app
from tacit.exceptions import FileError, InputError
from tacit.features import FeatureSet, extract, load_features, open_extractor, save_features
from tacit.features.cache import default_folder, open_cache
from tacit.features.extractors import Extractor
from tacit.preprocessing import Normalize, PublicPCA
from tacit.trainers import DPGD

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with networks and images, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "net.onnx").write_bytes(nets.of_images())
    (tmp_path / "vectors.onnx").write_bytes(nets.of_vectors(6))
    nets.write_bert(tmp_path / "bert")
    for i, image in enumerate(IMAGES):
        folder = tmp_path / "images" / ("cats" if i % 3 else "dogs")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{i:02d}.png")
    np.save("images.npy", IMAGES)
    return tmp_path


@pytest.fixture
def calls(monkeypatch):
    """How often a network was asked."""
    asked = []
    usual = Extractor.alone

    def count(self, row):
        asked.append(1)
        return usual(self, row)

    monkeypatch.setattr(Extractor, "alone", count)
    return asked


def run(*arguments):
    return CliRunner().invoke(app, ["features", *map(str, arguments)])


# Sources


def test_a_folder_gives_names_in_order_and_labels(here):
    (here / "images" / "readme.md").write_text("notes")
    (here / "images" / ".hidden.png").write_bytes(b"")
    found = extract("images", "net.onnx", labels="folders")
    assert found.names.tolist() == sorted(found.names.tolist())
    assert found.features.shape == (12, 5) and found.features.dtype == np.float32
    assert found.labels.tolist() == [name.split("/")[0] for name in found.names]
    assert found.skipped == 1
    whole = extract("images.npy", "net.onnx")
    order = [int(name[-6:-4]) for name in found.names]
    assert (found.features == whole.features[order]).all()


def test_every_source_of_the_same_images_gives_the_same_features(here):
    expected = extract("images.npy", "net.onnx", cache=False).features
    np.savez("one.npz", images=IMAGES, y=np.arange(12))
    np.savez("two.npz", a=IMAGES, b=IMAGES[::-1])
    labelled = extract("one.npz", "net.onnx", labels="y")
    assert labelled.labels.tolist() == list(range(12))
    paths = [f"images/{'cats' if i % 3 else 'dogs'}/{i:02d}.png" for i in range(12)]
    (here / "list.txt").write_text("\n".join(paths) + "\n")
    (here / "pairs.txt").write_text("".join(f"{path}\t{i}\n" for i, path in enumerate(paths)))
    pairs = extract("pairs.txt", "net.onnx")
    assert pairs.labels.tolist() == [str(i) for i in range(12)]
    for found in (
        labelled,
        pairs,
        extract("list.txt", "net.onnx"),
        extract("two.npz", "net.onnx", key="a"),
    ):
        assert found.features.tobytes() == expected.tobytes()


def test_idx_files_are_read_with_their_labels(here):
    grey = IMAGES[..., 0]
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", *grey.shape)
    (here / "t-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + grey.tobytes()))
    (here / "t-labels-idx1-ubyte").write_bytes(
        bytes([0, 0, 8, 1]) + struct.pack(">I", 12) + bytes(range(12))
    )
    found = extract("t-images-idx3-ubyte.gz", "net.onnx", labels="t-labels-idx1-ubyte")
    np.save("grey.npy", grey)
    assert found.labels.tolist() == list(range(12))
    assert (found.features == extract("grey.npy", "net.onnx").features).all()


def test_images_of_different_sizes_are_resized(here):
    for side in (5, 9, 31):
        Image.fromarray(np.full((side, 2 * side, 3), 77, np.uint8)).save(f"images/{side}.png")
    found = extract("images", "net.onnx")
    same = [i for i, name in enumerate(found.names) if "/" not in name]
    assert len(same) == 3 and np.ptp(found.features[same], axis=0).max() == 0


def test_texts_come_from_a_column_or_from_lines(here):
    texts = ["a good film", "very bad", "", "good ! good !"]
    (here / "t.csv").write_text("text,mark\n" + "".join(f"{t},{i}\n" for i, t in enumerate(texts)))
    (here / "t.txt").write_text("\n".join(texts) + "\n")
    (here / "marks.txt").write_text("a\nb\na\nb\n")
    table = extract("t.csv", "bert", column="text", labels="mark")
    lines = extract("t.txt", "bert", labels="marks.txt")
    assert (table.features == lines.features).all() and table.features.shape == (4, 8)
    assert table.labels.tolist() == [0, 1, 2, 3] and lines.labels.tolist() == ["a", "b", "a", "b"]
    assert table.metadata["takes"] == "text"


def test_vectors_are_rows_of_an_array(here):
    rows = RNG.normal(size=(7, 6))
    np.save("rows.npy", rows)
    found = extract("rows.npy", "vectors.onnx")
    assert found.features.shape == (7, 5)
    rows[3, 3] = np.inf
    np.save("rows.npy", rows)
    nodes = [nets.node("Relu", ["x"], ["y"])]
    (here / "same.onnx").write_bytes(nets.model(nodes, [("x", ["n", 6])], [("y", ["n", 6])]))
    with pytest.raises(InputError, match=r"row 4: same\.onnx answers no finite numbers"):
        extract("rows.npy", "same.onnx")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("nowhere", {}, "no such file or folder"),
        ("empty", {}, "holds no images"),
        ("bert", {}, "holds no images"),
        ("net.onnx", {}, "unknown kind of file"),
        ("floats.npy", {}, "images are uint8"),
        ("rows.npy", {}, "holds vectors; the extractor takes images"),
        ("cut.npy", {}, "damaged"),
        ("objects.npy", {}, "damaged or not an array"),
        ("two.npz", {}, "Name it as key: a, b"),
        ("two.npz", {"key": "c"}, "no array 'c'"),
        ("images", {"column": "text"}, "column is not for images"),
        ("images.npy", {"labels": "folders"}, "need a folder"),
        ("images.npy", {"labels": "gone.txt"}, "neither 'folders', nor a column"),
        ("images.npy", {"labels": "three.txt"}, r"shape \(3,\); there are 12 rows"),
        ("lost.txt", {}, "names gone.png, and there is no such file"),
        ("tabs.txt", {}, "must name an image file on every line"),
        ("t.csv", {"column": "text"}, "holds texts; the extractor takes images"),
        ("t.csv", {"extractor": "bert"}, "which column of t.csv holds the text"),
        ("t.csv", {"extractor": "bert", "column": "mark"}, "holds numbers, not text"),
        ("t.csv", {"extractor": "bert", "column": "gone"}, "no column 'gone'"),
        ("images", {"extractor": "bert"}, "holds images; the extractor takes texts"),
        ("list.txt", {"extractor": None}, "say which extractor"),
        ("images", {"jobs": 0}, "at least 1"),
        ("loose", {"labels": "folders"}, "one.png is in no folder below loose"),
    ],
)
def test_sources_that_cannot_be_used_are_refused(here, source, options, words):
    (here / "empty").mkdir()
    (here / "loose").mkdir()
    Image.fromarray(IMAGES[0]).save("loose/one.png")
    np.save("floats.npy", IMAGES / 255)
    np.save("rows.npy", np.zeros((4, 6)))
    np.save("objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    (here / "cut.npy").write_bytes((here / "images.npy").read_bytes()[:200])
    np.savez("two.npz", a=IMAGES, b=IMAGES)
    (here / "three.txt").write_text("a\nb\nc\n")
    (here / "lost.txt").write_text("gone.png\n")
    (here / "tabs.txt").write_text("a.png\tb\tc\n")
    (here / "list.txt").write_text("images/cats/01.png\n")
    (here / "t.csv").write_text("text,mark\ngood,1\nbad,2\n")
    with pytest.raises(InputError, match=words):
        extract(source, options.pop("extractor", "net.onnx"), **options)


def test_an_unreadable_image_is_named(here):
    (here / "images" / "cats" / "05b.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut short")
    with pytest.raises(FileError, match=r"cats/05b\.jpg cannot be read as an image"):
        extract("images", "net.onnx")


# The cache


def test_what_is_known_is_not_computed_again(here, calls):
    first = extract("images", "net.onnx")
    done = len(calls)
    again = extract("images", "net.onnx")
    assert (first.cached, again.cached) == (0, 12)
    assert len(calls) == done + 4  # the probe of the network
    assert first.features.tobytes() == again.features.tobytes()
    assert extract("images", "net.onnx", std=0.5).cached == 0  # another preparation
    assert extract("images", "net.onnx", cache=False).cached == 0
    assert extract("images", "net.onnx", cache="elsewhere").cached == 0
    assert extract("images", "net.onnx", cache="elsewhere").cached == 12


def test_an_interrupted_run_goes_on_where_it_stopped(here, monkeypatch):
    usual, asked = Extractor.alone, []

    def stop(self, row):
        asked.append(1)
        if len(asked) > 10:
            raise KeyboardInterrupt
        return usual(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "alone", stop)
        result = run("images", "--extractor", "net.onnx", "--out", "f.npz", "--jobs", 1)
    assert result.exit_code == 130
    assert "the same command goes on from there" in result.output
    assert not (here / "f.npz").exists()
    result = run("images", "--extractor", "net.onnx", "--out", "f.npz", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["cached"] == 6 and facts["rows"] == 12
    fresh = extract("images", "net.onnx", cache=False)
    assert (load_features("f.npz").features == fresh.features).all()


def entries(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap", "folder"])
def test_a_damaged_entry_is_computed_again(here, harm):
    expected = extract("images", "net.onnx", cache="kept").features
    first, second, *_ = entries(here / "kept")
    whole = first.read_bytes()
    if harm == "swap":  # an entry under the name of another
        first.write_bytes(second.read_bytes())
    elif harm == "folder":
        first.unlink()
        first.mkdir()
    else:
        flipped = whole[:-1] + bytes([whole[-1] ^ 1])
        first.write_bytes({"flip": flipped, "cut": whole[:-4], "empty": b""}[harm])
    found = extract("images", "net.onnx", cache="kept")
    assert found.cached == 11
    assert found.features.tobytes() == expected.tobytes()
    if harm != "folder":
        assert first.read_bytes() == whole


def test_the_cache_is_for_its_owner_alone(here):
    extract("images", "net.onnx")
    assert default_folder() == here / "home" / "tacit" / "features"
    for path in [default_folder(), *default_folder().rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_machine_that_rounds_otherwise_has_entries_of_its_own(here, monkeypatch):
    net = open_extractor("net.onnx")
    here_kept = open_cache(net, "kept").folder
    other = open_extractor("net.onnx")
    other.__dict__["probe"] = net.probe._replace(bits="0" * 32)
    assert open_cache(other, "kept").folder != here_kept
    assert open_cache(open_extractor("net.onnx"), "kept").folder == here_kept


def test_a_folder_that_cannot_be_written_is_refused(here):
    (here / "file").write_text("")
    with pytest.raises(FileError, match="choose another folder for the cache, or none"):
        extract("images", "net.onnx", cache="file")


def test_a_full_disk_only_means_that_nothing_is_kept(here, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        found = extract("images", "net.onnx", cache="kept")
    assert (found.features == extract("images", "net.onnx", cache=False).features).all()
    assert not entries(here / "kept")


# Files


def test_features_are_written_whole_and_read_back(here):
    found = extract("images", "net.onnx", labels="folders")
    save_features(found, "f.npz")
    again = load_features("f.npz")
    assert (again.features == found.features).all()
    assert (again.names == found.names).all() and (again.labels == found.labels).all()
    assert again.metadata == found.metadata
    assert {"digest", "weights_sha256", "settings", "width", "versions"} <= again.metadata.keys()
    with pytest.raises(FileError, match="exists"):
        save_features(found, "f.npz")
    with pytest.raises(FileError, match=r"must end in \.npz"):
        save_features(found, "f.csv")
    with np.load("f.npz", allow_pickle=False) as plain:  # as anybody would
        assert plain["features"].dtype == np.float32 and plain["names"].shape == (12,)


def test_nothing_is_left_of_a_file_that_could_not_be_written(here, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    before = sorted(os.listdir())
    with pytest.raises(FileError, match="No space left"):
        save_features(FeatureSet(np.zeros((2, 3), np.float32)), "f.npz")
    assert sorted(os.listdir()) == before


def test_bytes_keep_features_between_0_and_6(here):
    values = np.random.default_rng(0).uniform(0, 6, (50, 4)).astype(np.float32)
    found = FeatureSet(values, metadata={"format": "tacit-features/1"})
    save_features(found, "small.npz", compact=True)
    with np.load("small.npz") as plain:
        assert plain["features"].dtype == np.uint8
        assert 6 * (plain["features"] / 255) ** 2 == pytest.approx(values, abs=0.03)
    assert load_features("small.npz").features == pytest.approx(values, abs=0.03)
    with pytest.raises(InputError, match="between 0 and 6"):
        save_features(FeatureSet(-values), "other.npz", compact=True)


def test_features_of_another_version_are_refused_not_taken_for_numbers_of_nobody(here):
    facts = {"format": "tacit-features/2", "quantiser": "another"}
    np.savez("later.npz", features=np.zeros((5, 2), np.uint8), metadata=json.dumps(facts))
    with pytest.raises(FileError, match="written by another version"):
        load_features("later.npz")


def features(n=300, **metadata):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, n)
    values = (rng.normal(size=(n, 4)) + 2 * labels[:, None]).astype(np.float32)
    return FeatureSet(values, labels=labels, metadata={"format": "tacit-features/1", **metadata})


NETWORK = {"extractor": "net.onnx", "digest": "ab" * 16, "weights_sha256": "cd" * 32}


def test_a_certificate_names_the_network_of_a_file(here):
    save_features(features(**NETWORK), "f.npz")
    found = load_features("f.npz")
    model = DPLinearClassifier(1.0, 1e-6, trainer=DPGD(steps=2), random_state=0).fit(found)
    bare = DPLinearClassifier(1.0, 1e-6, trainer=DPGD(steps=2), random_state=0)
    bare.fit(found.features, found.labels)
    assert (model.coef_ == bare.coef_).all()
    (said,) = set(model.certificate_.assumptions) - set(bare.certificate_.assumptions)
    assert said.startswith("features, as their file says: the network net.onnx (BLAKE2b abab")
    assert f"weights SHA-256 {NETWORK['weights_sha256']}" in said
    assert "trained on data that does not include these rows" in said
    assert (model.predict(found) == bare.predict(found.features)).all()
    other = features(**NETWORK | {"extractor": "other.onnx"})
    bare.partial_fit(other, epsilon=0.5, delta=1e-6)
    assert any("other.onnx" in text for text in bare.certificate_.assumptions)
    search = DPSearch(model, {"trainer__clip": [0.1, 1.0]}, trials=2).fit(found, found.labels)
    assert said in search.certificate_.assumptions


def test_what_a_file_says_of_its_network_is_not_taken_on_trust(here):
    said = features(extractor="a\nreleasable: yes", digest=7, weights_sha256="x" * 500).assumption()
    assert said.isprintable() and "network unknown (BLAKE2b unknown" in said
    assert len(said) < 400
    assert "nothing is known of what made them" in features().assumption()


def test_features_that_are_public_rows_as_well_are_refused():
    found = features(**NETWORK)
    model = DPLinearClassifier(stages=[Normalize(), PublicPCA(found.features, 2)])
    with pytest.raises(InputError, match="private"):
        model.fit(found)
    with pytest.raises(ValueError, match="y"):
        DPLinearClassifier().fit(FeatureSet(found.features))
    values = found.features[:, 0]
    DPLinearRegressor(target_bounds=(-4, 6), trainer=DPGD(steps=2)).fit(found, values)


@pytest.mark.parametrize("harm", ["other", "cut", "gone"])
def test_files_that_hold_no_features_are_refused(here, harm):
    save_features(extract("images", "net.onnx"), "f.npz")
    if harm == "other":
        np.savez("f.npz", x=np.zeros(3))
    elif harm == "cut":
        (here / "f.npz").write_bytes((here / "f.npz").read_bytes()[:300])
    else:
        (here / "f.npz").unlink()
    with pytest.raises(FileError, match=r"f\.npz"):
        load_features("f.npz")


# The command


def test_the_command_tells_what_it_did(here):
    arguments = ("images", "--extractor", "net.onnx", "--labels", "folders", "--out", "f.npz")
    result = run(*arguments, "--quiet")
    assert result.exit_code == 0, result.output
    assert "Wrote 5 features of 12 rows to f.npz." in result.stdout
    assert "digest" in result.stdout
    assert run(*arguments).exit_code == 2  # nothing is overwritten unasked
    result = run(*arguments, "--force", "--json", "--mean", "0.5,0.4,0.3", "--resize", "stretch")
    facts = json.loads(result.stdout)
    assert facts["settings"]["picture"]["mean"] == [0.5, 0.4, 0.3]
    assert facts["settings"]["picture"]["resize"] == "stretch"
    assert facts["weights_sha256"] == open_extractor("net.onnx").weights
    assert facts["labels"] and facts["names"] and facts["out"] == "f.npz"
    result = run(*arguments, "--force", "--compact", "--cache", "kept")
    assert result.exit_code == 0 and "12/12" in result.stderr  # the bar


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--cache", "c", "--no-cache"], "leave one out"),
        (["--mean", "grey"], "--mean must be a number"),
        (["--extractor", "gone.onnx"], "no such extractor"),
        (["--out", "f.txt"], "must end in .npz"),
        (["--size", "9"], "takes images of 8 x 8"),
    ],
)
def test_the_command_refuses_with_one_line(here, more, words):
    result = run("images", "--extractor", "net.onnx", "--out", "f.npz", *more)
    assert result.exit_code == 2
    assert words in result.stderr and "Traceback" not in result.output
    assert not (here / "f.npz").exists()
