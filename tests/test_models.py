"""Model files: what goes in comes out, and nothing else can be made of them."""

from __future__ import annotations

import errno
import json
import os
import pickle
import struct

import numpy as np
import pytest
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError

from tacit import DPLinearClassifier, DPLinearRegressor, load, save
from tacit import persistence as models
from tacit.exceptions import FileError, InputError
from tacit.losses import HuberHinge, Tempered, clipped
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Encode,
    Normalize,
    PrivateCenter,
    PublicPCA,
    PublicScale,
    RandomProjection,
    Root,
)
from tacit.trainers import DPGD

QUICK = DPGD(steps=3)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4))
TWO = np.arange(90) % 2
THREE = np.arange(90) % 3
TABLE = {
    "age": RNG.uniform(0, 100, 90).tolist(),
    "job": ["cook", "nurse", None] * 30,
}
SCHEMA = {
    "columns": {
        "age": {"kind": "number", "low": 0, "high": 100, "missing": "indicator"},
        "job": {"kind": "category", "categories": ["cook", "nurse"], "unseen": "level"},
    }
}


def classifier(stages="auto", labels=TWO, rows=X, **options):
    return DPLinearClassifier(stages=stages, trainer=QUICK, **options).fit(rows, labels)


def regressor(rows=X, **options):
    model = DPLinearRegressor(target_bounds=(-5, 9), trainer=QUICK, **options)
    return model.fit(rows, 5 * X[:, 0])


@pytest.fixture(scope="module")
def fitted():
    return classifier([ClipNorm(3.0), PublicPCA(X.copy(), 2), Normalize()])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


# Round trips

STAGES = {
    "auto": "auto",
    "bound": [Bound([-3, -3, -3, -3], [3, 3, 3, 3]), ClipNorm(1.5)],
    "center": [ClipNorm(2.0), PrivateCenter(), Normalize()],
    "pca": [ClipNorm(3.0), PublicPCA(X.copy(), 2), Normalize()],
    "projection": [ClipNorm(3.0), RandomProjection(3), Normalize(2.0)],
    "roots": [Root(), Normalize()],
    "scale": [PublicScale(X.copy()), ClipNorm()],
}


def assert_same(loaded, model, rows=X):
    assert type(loaded) is type(model)
    assert loaded.certificate_ == model.certificate_
    assert loaded.n_features_in_ == model.n_features_in_
    for name in ("coef_", "intercept_", "classes_"):
        ours, theirs = getattr(model, name, None), getattr(loaded, name, None)
        assert np.array_equal(ours, theirs) and np.shape(ours) == np.shape(theirs)
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
    for name in ("predict", "decision_function", "predict_proba"):
        assert hasattr(loaded, name) == hasattr(model, name)
        if hasattr(model, name):
            ours, theirs = getattr(model, name)(rows), getattr(loaded, name)(rows)
            assert ours.dtype == theirs.dtype
            assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_a_classifier_comes_back_bit_for_bit(stages, labels, path):
    model = classifier(stages, labels)
    save(model, path)
    assert_same(load(path), model)


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_a_regressor_comes_back_bit_for_bit(stages, path):
    model = regressor(stages=stages, loss="huber")
    save(model, path)
    assert_same(load(path), model)
    assert isinstance(load(path).intercept_, float)


def test_a_model_of_tables_comes_back(path):
    model = classifier([Encode(SCHEMA), Normalize()], rows=TABLE)
    save(model, path)
    assert_same(load(path), model, TABLE)
    assert load(path).feature_names_in_.tolist() == ["age", "job"]
    assert list(load(path).get_feature_names_out()) == list(model.get_feature_names_out())


LABELS = {
    "strings": np.array(["no", "yes"])[TWO],
    "unicode": np.array(["né", "日本", ""])[THREE],
    "objects": np.array(["no", "yes"], dtype=object)[TWO],
    "integers": np.array([-7, 3])[TWO],
    "small integers": np.array([1, 2, 250], dtype=np.uint8)[THREE],
    "floats": np.array([1.0, 2.0])[TWO],
    "single precision": np.array([0.0, 3.0], dtype=np.float32)[TWO],
    "booleans": TWO.astype(bool),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_keep_their_type(labels, path):
    model = classifier(labels=labels)
    save(model, path)
    assert_same(load(path), model)


@pytest.mark.parametrize(
    "loss",
    [
        "softmax",
        "logistic",
        "hinge",
        HuberHinge(0.3),
        "savage",
        Tempered(0.2),
        Tempered(0.2, tail=1.5),
        clipped("hinge", 0.5),
    ],
    ids=str,
)
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_every_loss_comes_back(loss, labels, path):
    model = classifier(labels=labels, loss=loss)
    save(model, path)
    assert_same(load(path), model)


def test_a_loaded_model_can_be_saved_again(fitted, path):
    save(fitted, path)
    _, first = parts(path.read_bytes())
    save(load(path), path)
    _, second = parts(path.read_bytes())
    assert second == first  # with the digest over everything


def test_a_seeded_model_stays_marked(path):
    save(classifier(random_state=0), path)
    assert not load(path).certificate_.releasable


def test_the_public_rows_themselves_are_not_in_the_file(path):
    public = np.full((3, 4), 0.123456789) + np.eye(3, 4)
    save(classifier([ClipNorm(3.0), PublicPCA(public, 2), Normalize()]), path)
    assert public[0].tobytes() not in path.read_bytes()
    assert b"0.123456789" not in path.read_bytes()


def test_a_loaded_model_checks_what_it_is_given(fitted, path):
    save(fitted, path)
    with pytest.raises(ValueError, match=r"3 features, but .* expecting 4"):
        load(path).predict(X[:, :3])


# What cannot be saved


def test_only_fitted_models_of_ours_are_saved(path):
    with pytest.raises(NotFittedError):
        save(DPLinearClassifier(), path)
    with pytest.raises(InputError, match="not DummyClassifier"):
        save(DummyClassifier().fit(X, TWO), path)
    assert not path.exists()


def test_a_target_that_cannot_be_written_leaves_nothing_behind(fitted, tmp_path):
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    for target in (tmp_path / "folder", tmp_path / "missing" / "model"):
        with pytest.raises(FileError, match="cannot write"):
            save(fitted, target)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "inside"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(fitted, path, monkeypatch, call):
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(FileError, match="No space left"):
        save(fitted, path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


# Damage


@pytest.fixture
def saved(fitted, path):
    save(fitted, path)
    return path.read_bytes()


def refused(path, data, match=None):
    path.write_bytes(data)
    with pytest.raises(FileError, match=match):
        load(path)


def test_a_truncated_file_is_refused(saved, path):
    for length in [*range(0, len(saved), 37), len(saved) - 1]:
        refused(path, saved[:length])


def test_a_longer_file_is_refused(saved, path):
    for extra in (b"\0", b"\0" * 8, saved):
        refused(path, saved + extra)


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_a_flipped_byte_is_found(saved, path, flip):
    for position in range(flip % 11, len(saved), 11):
        damaged = bytearray(saved)
        damaged[position] ^= flip
        refused(path, damaged)


def test_other_files_are_refused(path, tmp_path):
    refused(path, b"", "damaged or not a model file")
    refused(path, b"age,job\n31,cook\n" * 20, "damaged or not a model file")
    refused(path, pickle.dumps(classifier()), "damaged or not a model file")
    refused(path, to_bytes({"coef": np.zeros((1, 4))}), "not one of Tacit's models")
    refused(path, to_bytes({"coef": np.zeros((1, 4))}, metadata={"format": "np"}), "not one of")
    with pytest.raises(FileError, match="No such file"):
        load(tmp_path / "missing")
    with pytest.raises(FileError, match="is not a file"):
        load(tmp_path)
    with pytest.raises(FileError):
        load("nul\0byte")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is not a file"):
        load(tmp_path / "pipe")


@pytest.mark.parametrize("dtype", ["BF16", "F8_E5M2", "F8_E4M3", "C64", "F7", ""])
def test_types_that_numpy_lacks_are_refused(path, dtype):
    width = 1 if dtype.startswith("F8") else 8 if dtype == "C64" else 2
    entry = {"dtype": dtype, "shape": [1], "data_offsets": [0, width]}
    header = json.dumps({"coef": entry}).encode()
    refused(path, struct.pack("<Q", len(header)) + header + bytes(width))


def test_a_file_that_is_too_large_is_not_read(saved, path, monkeypatch):
    monkeypatch.setattr(models, "LIMIT", len(saved) - 1)
    refused(path, saved, "set tacit.persistence.LIMIT")


# Edits, with a digest that is stale or was computed again


def parts(saved):
    """Tensors and metadata of a file."""
    (length,) = struct.unpack("<Q", saved[:8])
    return from_bytes(saved), json.loads(saved[8 : 8 + length])["__metadata__"]


def forged(saved, change=None, **tensors):
    """The file with its description or its tensors changed, and a digest that fits."""
    arrays, metadata = parts(saved)
    model = json.loads(metadata["tacit"])
    if change is not None:
        model = change(model) or model
    metadata["tacit"] = model if isinstance(model, str) else json.dumps(model)
    arrays = {k: v for k, v in {**arrays, **tensors}.items() if v is not None}
    metadata["digest"] = models.digest_of(arrays, metadata)
    return to_bytes(arrays, metadata=metadata)


def test_forging_without_a_change_gives_the_same_model(saved, fitted, path):
    path.write_bytes(forged(saved))
    assert_same(load(path), fitted)


@pytest.mark.parametrize(
    "loss",
    [
        {"loss": "tempered", "tail": "1.5"},
        {"loss": "tempered", "tail": 9.0},
        {"loss": "tempered", "tail": [1.5]},
        {"loss": "tempered", "steps": 1.5},
        {"loss": "tempered", "loss_": 1},
        {"loss": {"loss": "tempered"}},
        {"tail": 1.5},
        {},
        ["tempered"],
    ],
    ids=str,
)
def test_a_loss_that_there_is_not_is_refused(saved, loss, path):
    refused(path, forged(saved, lambda model: {**model, "loss": loss}), "not a complete model")


@pytest.mark.parametrize("key", ["tacit", "certificate"])
def test_an_edit_with_a_stale_digest_is_found(saved, path, key):
    tensors, metadata = parts(saved)
    edited = metadata[key].replace("1", "2", 1)
    assert edited != metadata[key]
    refused(path, to_bytes(tensors, metadata=metadata | {key: edited}), "wrong digest")


def test_an_edited_tensor_with_a_stale_digest_is_found(saved, path):
    tensors, metadata = parts(saved)
    for name, value in tensors.items():
        for edited in (
            np.asarray(value + 1),
            value.astype(np.float32),
            value.reshape(1, *value.shape),
        ):
            refused(path, to_bytes(tensors | {name: edited}, metadata=metadata), "wrong digest")


def test_an_edited_certificate_is_found_by_its_own_digest(saved, path):
    tensors, metadata = parts(saved)
    metadata["certificate"] = metadata["certificate"].replace('"epsilon": 1.0', '"epsilon": 0.1')
    metadata["digest"] = models.digest_of(tensors, metadata)
    refused(path, to_bytes(tensors, metadata=metadata), "certificate was changed")


def change(**values):
    return lambda model: model.update(values)


def stage(**values):
    return lambda model: model["stages"][0].update(values)


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = {
    "another format": change(format="tacit-model/999"),
    "no estimator": change(estimator=None),
    "another class": change(estimator="LogisticRegression"),
    "a dotted class": change(estimator="os.system"),
    "an unknown stage": stage(name="Exec"),
    "a dotted stage": stage(name="tacit.cli.main.app"),
    "a dunder": stage(name="__builtins__"),
    "a helper of the package": stage(name="Context"),
    "the base class": stage(name="Stage"),
    "a list for a name": stage(name=["Normalize"]),
    "no parameters": stage(parameters=None),
    "unknown parameters": stage(parameters={"radius": 1.0, "__class__": "os"}),
    "a bad parameter": stage(parameters={"radius": -1.0}),
    "text for a number": stage(parameters={"radius": "__import__('os')"}),
    "stages of another kind": change(stages="Normalize"),
    "no stages": change(stages=[]),
    "features that are no number": change(features="4"),
    "no features": change(features=0),
    "an endless number of features": change(features=float("inf")),
    "no classes": change(classes=None),
    "too many classes": change(classes=["<i8", [0, 1, 2]]),
    "one class": change(classes=["<i8", [0]]),
    "classes in a square": change(classes=["<i8", [[0, 1], [2, 3]]]),
    "classes of no type": change(classes=["import os", [0, 1]]),
    "classes of a record": change(classes=["i4,i4", [0, 1]]),
    "classes that do not fit their type": change(classes=["<i8", ["a", "b"]]),
    "not an object": lambda model: ["tacit-model/1"],
    "no JSON": lambda model: "import os",
    "deep JSON": lambda model: DEEP,
    "a number that is too long": lambda model: "1" * 10_000,
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_descriptions_are_refused(saved, path, change):
    refused(path, forged(saved, change))


@pytest.mark.parametrize(
    "tensors",
    [
        {"coef": None},
        {"intercept": None},
        {"coef": np.zeros(2)},
        {"coef": np.zeros((2, 2))},
        {"coef": np.zeros((1, 3))},
        {"coef": np.full((1, 2), np.nan)},
        {"coef": np.zeros((1, 2), dtype=bool)},
        {"intercept": np.zeros(2)},
        {"intercept": np.array([np.inf])},
        {"stage.0.apply": np.zeros(1)},
        {"stage.0.__class__": np.zeros(1)},
        {"stage.0.__dict__": np.zeros(1)},
        {"stage.0.": np.zeros(1)},
        {"stage.0.a.b_": np.zeros(1)},
    ],
    ids=" ".join,
)
def test_hostile_tensors_are_refused(saved, path, tensors):
    refused(path, forged(saved, **tensors))


def test_deep_json_in_the_certificate_is_refused(saved, path):
    tensors, metadata = parts(saved)
    metadata["certificate"] = DEEP
    metadata["digest"] = models.digest_of(tensors, metadata)
    refused(path, to_bytes(tensors, metadata=metadata))


def test_a_schema_in_a_model_is_never_a_file_elsewhere(path, tmp_path):
    outside = tmp_path / "schema.yaml"
    outside.write_text(json.dumps(SCHEMA))
    save(classifier([Encode(SCHEMA), Normalize()], rows=TABLE), path)
    link = stage(parameters={"schema": str(outside)})
    refused(path, forged(path.read_bytes(), link))
