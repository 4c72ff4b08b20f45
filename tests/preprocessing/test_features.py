"""Features of a pre-trained network as the first stage of a plan."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from tests.features import nets

from tacit import Certificate, DPLinearClassifier, Ledger, load, save
from tacit.cli.main import app
from tacit.data.rows import as_rows
from tacit.exceptions import FileError, InputError, MissingBound
from tacit.features import extract, open_extractor
from tacit.features.extractors import Extractor
from tacit.preprocessing import ClipNorm, Encode, Normalize, PrivateCenter, PublicFeatures
from tacit.trainers import DPGD

QUICK = DPGD(steps=5)
RNG = np.random.default_rng(0)
Y = np.arange(90) % 2
BRIGHT = RNG.integers(0, 120, (90, 8, 8, 3)) + 120 * Y[:, None, None, None]
X = BRIGHT.astype(np.uint8).reshape(90, -1)
TEXTS = {"text": ["a good film", "a bad film !", "very good"] * 30, "age": [3.0] * 90}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "net.onnx").write_bytes(nets.of_images())
    nets.write_bert(tmp_path / "bert")
    return tmp_path


def images(**options):
    return PublicFeatures("net.onnx", shape=(8, 8, 3), **options)


def fitted(stage, rows=X, labels=Y, **options):
    stages = [stage, Normalize(), PrivateCenter()]
    model = DPLinearClassifier(epsilon=5.0, delta=1e-3, stages=stages, trainer=QUICK, **options)
    return model.fit(rows, labels)


def test_a_plan_on_images_learns_and_certifies_the_network(here):
    model = fitted(images())
    digest, weights = open_extractor("net.onnx").digest, open_extractor("net.onnx").weights
    certificate = model.certificate_
    (said,) = [line for line in certificate.assumptions if line.startswith("PublicFeatures")]
    assert digest in said and weights in said
    assert "assumed public: trained on data that does not include these rows" in said
    stage = certificate.plan["stages"][0]
    assert stage["kind"] == "public" and digest in stage["note"]
    assert stage["parameters"]["digest"] == digest and stage["parameters"]["network"] == "net.onnx"
    assert str(here) not in certificate.to_json()  # no place on somebody's machine
    assert certificate.verify().holds
    assert Certificate.from_json(certificate.to_json()).digest == certificate.digest
    assert model.coef_.shape == (1, 5)
    assert list(model.get_feature_names_out()) == [f"x{i}" for i in range(5)]
    assert [event.stage for event in certificate.events] == ["PrivateCenter", "DPGD"]


def test_features_in_a_plan_are_those_of_the_command(here):
    np.save("x.npy", X.reshape(90, 8, 8, 3))
    found = extract("x.npy", "net.onnx").features
    stage = images()
    assert (stage.transform(X) == found).all()
    assert stage.transform(X).dtype == np.float64


def test_the_command_s_cache_serves_the_plan(here, monkeypatch):
    np.save("x.npy", X.reshape(90, 8, 8, 3))
    extract("x.npy", "net.onnx")
    asked, usual = [], Extractor.alone
    monkeypatch.setattr(Extractor, "alone", lambda self, row: asked.append(1) or usual(self, row))
    model = fitted(images())
    model.predict(X)
    assert len(asked) == 4  # the probe, once


@pytest.mark.parametrize("cache", [False, True])
def test_how_rows_are_cut_and_what_is_kept_changes_nothing(here, cache):
    stage = images(cache=cache).fit(X)
    whole = stage.transform(X)
    for size in (1, 7, 64):
        seen = stage.through(as_rows(X))
        cut = np.concatenate([chunk for _, chunk in seen.chunks(size)])
        assert cut.tobytes() == whole.tobytes()
    other = X.copy()
    other[5] = 255 - other[5]
    changed = np.any(stage.transform(other) != whole, axis=1)
    assert changed.tolist() == [i == 5 for i in range(90)]


def test_a_text_column_of_a_table_is_read(here, tmp_path):
    stage = PublicFeatures("bert", column="text")
    model = fitted(stage, TEXTS, np.arange(90) % 3 == 1)
    assert model.coef_.shape == (1, 8)
    assert model.predict({"text": ["a bad film !", None]}).shape == (2,)
    with pytest.raises(InputError, match="no column 'text'"):
        model.predict({"words": ["good"]})
    with pytest.raises(InputError, match="holds numbers, not text"):
        fitted(PublicFeatures("bert", column="age"), TEXTS)
    with pytest.raises(InputError, match="no column 'text'"):
        fitted(stage, X)


# The network at prediction


def test_a_model_file_needs_its_network_and_no_other(here):
    model = fitted(images())
    save(model, "model.safetensors")
    assert str(here).encode() not in (here / "model.safetensors").read_bytes()
    again = load("model.safetensors", extractor="net.onnx")
    assert (again.decision_function(X) == model.decision_function(X)).all()
    blind = load("model.safetensors")
    assert blind.certificate_.digest == model.certificate_.digest
    with pytest.raises(InputError, match=r"needs the network 'net.onnx' with digest .*extractor="):
        blind.predict(X)
    (here / "other.onnx").write_bytes(nets.of_images(seed=1))
    with pytest.raises(InputError, match="not the network that the model was fitted with"):
        load("model.safetensors", extractor="other.onnx")
    with pytest.raises(InputError, match="no such extractor"):
        load("model.safetensors", extractor="gone.onnx")
    moved = here / "moved.onnx"
    moved.write_bytes(nets.of_images())  # the same under another name
    assert (load("model.safetensors", extractor=moved).predict(X) == model.predict(X)).all()


def test_the_settings_travel_with_the_model(here):
    model = fitted(images(settings={"mean": 0.5, "std": [0.5, 0.4, 0.3]}))
    save(model, "model.safetensors")
    again = load("model.safetensors", extractor="net.onnx")
    assert (again.decision_function(X) == model.decision_function(X)).all()
    opened = open_extractor("net.onnx", mean=0.5)
    with pytest.raises(InputError, match="not the network"):
        load("model.safetensors", extractor=opened)


def test_a_model_without_a_network_takes_none(here):
    model = DPLinearClassifier(epsilon=5.0, delta=1e-3, trainer=QUICK).fit(X, Y)
    save(model, "model.safetensors")
    with pytest.raises(InputError, match="needs no extractor"):
        load("model.safetensors", extractor="net.onnx")


def test_a_model_file_cannot_name_a_place(here):
    from safetensors import safe_open
    from safetensors.numpy import save as to_bytes

    from tacit import persistence as models

    save(fitted(images()), "model.safetensors")
    with safe_open("model.safetensors", framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    inside = json.loads(metadata["tacit"])
    inside["stages"][0]["parameters"]["extractor"] = "/somewhere/net.onnx"
    metadata["tacit"] = json.dumps(inside)
    metadata["digest"] = models.digest_of(tensors, metadata)
    (here / "sly.safetensors").write_bytes(to_bytes(tensors, metadata=metadata))
    with pytest.raises(FileError, match="never named by their place"):
        load("sly.safetensors")


def test_predict_on_the_command_line_takes_the_network(here):
    from typer.testing import CliRunner

    model = fitted(PublicFeatures("bert", column="text"), TEXTS, np.arange(90) % 3 == 1)
    save(model, "model.safetensors")
    (here / "new.csv").write_text("text\ngood film\nbad !\n")
    run = ["predict", "model.safetensors", "new.csv", "--out", "p.csv"]
    refused = CliRunner().invoke(app, run)
    assert refused.exit_code == 2 and "--extractor" in refused.stderr
    done = CliRunner().invoke(app, [*run, "--extractor", "bert", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == 2


# Copies


def test_estimators_are_cloned_and_pickled_without_the_network(here):
    model = fitted(images(cache=False))
    assert clone(model).fit(X, Y).coef_.shape == (1, 5)
    written = pickle.dumps(model)
    assert (here / "net.onnx").read_bytes()[:100] not in written
    again = pickle.loads(written)
    assert (again.predict(X) == model.predict(X)).all()
    opened = PublicFeatures(open_extractor("net.onnx"), shape=(8, 8, 3), cache=False)
    assert copy.deepcopy(opened).extractor is opened.extractor
    assert (pickle.loads(pickle.dumps(opened)).transform(X[:3]) == opened.transform(X[:3])).all()


# Order, bounds and refusals


def test_it_must_be_first_and_followed_by_a_bound(here):
    with pytest.raises(InputError, match="PublicFeatures must be the first stage"):
        DPLinearClassifier(stages=[ClipNorm(1.0), images(), Normalize()]).fit(X, Y)
    with pytest.raises(InputError, match="Encode must be the first stage"):
        schema = {"columns": {"age": {"kind": "number", "low": 0, "high": 9}}}
        DPLinearClassifier(stages=[Normalize(), Encode(schema)]).fit({"age": [1.0, 2.0]}, [0, 1])
    with pytest.raises(MissingBound, match="bounded norm"):
        DPLinearClassifier(stages=[images()], delta=1e-3).fit(X, Y)
    assert images().bound(1.0) is None


def test_an_order_that_is_refused_spends_nothing(here):
    ledger = Ledger("ledger.db").create("x", epsilon=9.0, delta=1e-2)
    with pytest.raises(InputError):
        DPLinearClassifier(
            5.0, 1e-3, stages=[ClipNorm(1.0), images(), Normalize()], ledger=ledger
        ).fit(X, Y)
    with pytest.raises(InputError):
        DPLinearClassifier(
            5.0,
            1e-3,
            stages=[PublicFeatures("gone.onnx", shape=(8, 8, 3)), Normalize()],
            ledger=ledger,
        ).fit(X, Y)
    with pytest.raises(InputError, match="integers"):
        fitted(images(), X / 255, ledger=ledger)
    with pytest.raises(InputError, match="no column 'gone'"):
        fitted(PublicFeatures("bert", column="gone"), TEXTS, ledger=ledger)
    assert ledger.remaining().spent == 0
    fitted(images(), ledger=ledger)
    assert ledger.remaining().spent > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs extractor="),
        ({"extractor": "net.onnx", "shape": (8,)}, "height, width"),
        ({"extractor": "net.onnx", "shape": (8, 8, 5)}, "1, 3 or 4 channels"),
        ({"extractor": "net.onnx", "shape": "8x8"}, "height, width"),
        ({"extractor": "net.onnx", "shape": (8, 8), "column": "text"}, "not both"),
        ({"extractor": "net.onnx", "cache": 3}, "True, False or a path"),
        ({"extractor": "net.onnx", "settings": 3}, "must be a dict"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(here, arguments, words):
    with pytest.raises(InputError, match=words):
        PublicFeatures(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"extractor": "net.onnx"}, "takes images: pass shape="),
        ({"extractor": "bert"}, "takes texts: pass column="),
        ({"extractor": "bert", "shape": (8, 8, 3)}, "takes texts: "),
        ({"extractor": "net.onnx", "shape": (9, 8, 3)}, "has 216"),
        ({"extractor": "net.onnx", "shape": (8, 8, 3), "digest": "0" * 64}, "not the network"),
        ({"extractor": "net.onnx", "shape": (8, 8, 3), "settings": {"size": 5}}, "not size=5"),
    ],
)
def test_rows_and_networks_that_do_not_fit_are_refused(here, arguments, words):
    with pytest.raises(InputError, match=words):
        DPLinearClassifier(stages=[PublicFeatures(**arguments), Normalize()]).fit(X, Y)


def test_pixels_between_0_and_1_are_refused_by_their_type(here):
    with pytest.raises(InputError, match="integers from 0 to 255"):
        fitted(images(), X / 255)
    # Beyond the range is cut, row by row, since a refusal would tell about one row.
    wild = X.astype(np.int64)
    wild[3, :5] = [-9, 999, 256, -1, 255]
    cut = np.clip(wild, 0, 255).astype(np.uint8)
    assert (images().transform(wild) == images().transform(cut)).all()


def test_a_row_on_which_the_network_fails_counts_nothing(here):
    nodes = [nets.node("Exp", ["x"], ["y"])]
    (here / "exp.onnx").write_bytes(nets.model(nodes, [("x", ["n", 4])], [("y", ["n", 4])]))
    rows = np.zeros((5, 4))
    rows[2] = 1e30
    found = PublicFeatures("exp.onnx").transform(rows)
    assert (found[2] == 0).all() and (np.delete(found, 2, axis=0) == 1).all()


def test_progress_counts_to_the_public_size(here):
    seen = []
    stage = images()
    from tacit.preprocessing import Context

    stage.fit(X).precompute(as_rows(X), Context(70), lambda *said: seen.append(said))
    assert seen == [("features", 64, 70), ("features", 70, 70)]
    seen.clear()
    images(cache=False).fit(X).precompute(as_rows(X), Context(70), lambda *said: seen.append(said))
    assert not seen


def test_strict_arithmetic_reads_the_network_twice(here):
    model = fitted(images(cache=False), arithmetic="strict")
    assert model.certificate_.verify().holds
