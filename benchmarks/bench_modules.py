"""Time of private steps on PyTorch modules, beside Opacus' ghost clipping, and memory of spectra.

    .venv-rivals/bin/python benchmarks/bench_modules.py

`bench_time.py` says how that environment is made. All train the same modules on the same random
rows, with Poisson samples of the same size, noise included, and take turns; the shortest turn of
each counts: of a step, with sampling, clipped sum, noise and update, not of calibrating.

    python benchmarks/bench_modules.py --spectrum 2000 7000000 1000 FOLDER

finds so many singular values of so many random gradients, kept in the folder (``-``: sketched in
memory), with as many vectors as ``--vectors`` says, and tells the peak of memory, and the time of
keeping and of the rest: processor time, and on the wall.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.networks import fit_module
from tacit.research.trajectories import RowFile, Sketch
from tacit.trainers import DPSGD

ROWS, TOKENS = 2000, 32
RIVAL = "Opacus, ghost clipping"
Clock = Callable[[], float]
Turn = Callable[[int, Clock], list[float]]  # so many steps: the times at which they ended


class Layer(nn.Module):
    """A layer of an encoder, of linear layers only, so that everybody can take it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mix = nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        q, k, v = (
            part(x).reshape(rows, tokens, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = (q @ k.transpose(2, 3) / (width // self.heads) ** 0.5).softmax(dim=-1)
        x = self.norms[0](x + self.mix((scores @ v).transpose(1, 2).reshape(rows, tokens, width)))
        return self.norms[1](x + self.second(nn.functional.gelu(self.first(x))))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(dim=1))


def encoder(width: int, heads: int, *, part: bool = False) -> nn.Module:
    """Six layers; of those, queries and values only (Li et al. 2022), if a part is trained."""
    module = Encoder(width, heads, 6)
    if part:
        for name, value in module.named_parameters():
            value.requires_grad_(name.endswith(("query.weight", "value.weight")))
    return module


def perceptron(width: int) -> nn.Module:
    layers = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), *layers, nn.Linear(width, 10))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "encoder, queries and values": (lambda: encoder(768, 12, part=True), (TOKENS, 768), 2),
    "encoder of width 384": (lambda: encoder(384, 12), (TOKENS, 384), 2),
    "encoder of width 768": (lambda: encoder(768, 12), (TOKENS, 768), 2),
    "perceptron of width 1,400": (lambda: perceptron(1400), (784,), 10),
    "perceptron of width 1,700": (lambda: perceptron(1700), (784,), 10),
    "perceptron of width 3,600": (lambda: perceptron(3600), (784,), 10),
}


def ours(module: nn.Module, data: Any, batch: int, arithmetic: str) -> Turn:
    inputs, targets = data

    def run(steps: int, clock: Clock) -> list[float]:
        times = [clock()]
        fit_module(
            module.eval(),
            inputs,
            targets,
            loss=nn.functional.cross_entropy,
            trainer=DPSGD(steps=steps, batch_size=batch, learning_rate=0.1, clip=1.0),
            epsilon=4.0,
            delta=1e-5,
            arithmetic=arithmetic,
            progress=lambda *_: times.append(clock()),
        )
        return times[1:]

    return run


def opacus(make: Callable[[], nn.Module], data: Any, batch: int) -> Turn:
    from opacus import PrivacyEngine

    inputs, targets = data
    module = make().train()
    chosen = [value for value in module.parameters() if value.requires_grad]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, targets), batch_size=batch
    )
    found = PrivacyEngine(secure_mode=False).make_private(
        module=module,
        optimizer=torch.optim.SGD(chosen, lr=0.1),
        data_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=True,
        grad_sample_mode="ghost",
    )
    private, optimizer, criterion, batches = found

    def run(steps: int, clock: Clock) -> list[float]:
        times: list[float] = []
        while len(times) < steps:
            for rows, labels in batches:
                optimizer.zero_grad()
                criterion(private(rows), labels).backward()
                optimizer.step()
                times.append(clock())
                if len(times) == steps:
                    break
        return times

    return run


def measure(name: str, *, batch: int, steps: int, repeat: int, clock: Clock) -> Any:
    make, shape, classes = CASES[name]
    torch.manual_seed(0)
    data = torch.randn(ROWS, *shape), torch.randint(0, classes, (ROWS,))
    module = make()
    size = sum(value.numel() for value in module.parameters() if value.requires_grad)
    runs = {
        RIVAL: opacus(make, data, batch),
        "exact": ours(module, data, batch, "exact"),
        "fast": ours(module, data, batch, "fast"),
    }
    each = dict.fromkeys(runs, float("inf"))
    for _ in range(repeat):
        for who, run in runs.items():
            times = run(1 + steps, clock)
            each[who] = min(each[who], (times[-1] - times[0]) / steps)
    ratio = {who: value / each[RIVAL] for who, value in each.items()}
    return {"parameters": size, "seconds": each, "ratio": ratio}


def spectrum(steps: int, parameters: int, values: int, folder: str, vectors: int) -> Any:
    """Gradients that fall as k^-0.6, in noise."""
    began = time.perf_counter()
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(parameters + 2**22, dtype=np.float32) * np.float32(0.05)
    in_memory = folder == "-"
    sketch = Sketch(values, dtype=np.float32) if in_memory else RowFile(folder, vectors=vectors)
    for step in range(steps):
        row = noise[rng.integers(2**22) :][:parameters].copy()  # uncorrelated, and made in no time
        row[step] += 10 * (step + 1) ** -0.6
        sketch.add(row)
    kept = time.process_time(), time.perf_counter()
    found = sketch.directions().first(values)
    ended = time.process_time(), time.perf_counter()
    return {
        "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "keeping": [kept[0], kept[1] - began],
        "seconds": [ended[0] - kept[0], ended[1] - kept[1]],
        "vectors": len(found.vectors),
        "values": len(found.values),
        "apart": float((found.at_most / found.values - 1).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--vectors", type=int, default=100)
    parser.add_argument("--spectrum", nargs=4, metavar=("STEPS", "PARAMETERS", "VALUES", "FOLDER"))
    given = parser.parse_args()
    if given.spectrum:
        *sizes, folder = given.spectrum
        print(json.dumps(spectrum(*map(int, sizes), folder, given.vectors)))
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.threads == 1 else time.perf_counter
    found = {}
    for name in given.cases:
        found[name] = measure(
            name, batch=given.batch, steps=given.steps, repeat=given.repeat, clock=clock
        )
        if not given.json:
            ratios = ", ".join(f"{who} {value:.2f}" for who, value in found[name]["ratio"].items())
            print(f"{name} ({found[name]['parameters'] / 1e6:.1f} M): {ratios}", flush=True)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
