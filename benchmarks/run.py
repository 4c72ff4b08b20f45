"""All benchmarks in one run, written to benchmarks/RESULTS.md.

    python benchmarks/run.py

Ratios are measured within this run; absolute times depend on the machine.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMITS = {"exact full": 2.2, "fast full": 1.5, "exact batch": 3.0, "fast batch": 2.5}
CASES = {
    "exact full": "full batch, exact arithmetic (default)",
    "fast full": "full batch, float32",
    "exact batch": "Poisson batch of 4,096, exact arithmetic (default)",
    "fast batch": "Poisson batch of 4,096, float32",
}


def run(script: str) -> Any:
    print(f"running {script} ...", flush=True)
    command = [sys.executable, str(HERE / script), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    step, accuracy = run("bench_step.py"), run("bench_accuracy.py")
    lines = [
        "# Results",
        "",
        f"Written by `make bench` on {os.cpu_count()} cores, Python {platform.python_version()}.",
        "",
        "## Time of one step",
        "",
        "Sampling, clipped sum, noise and update, relative to the bare float32 pair of matrix",
        "products on the same rows (60,000 × 784, 10 classes); shortest of many, one run.",
        "",
        "| step | ratio | at most |",
        "|---|---|---|",
    ]
    lines += [f"| {CASES[k]} | {step['ratio'][k]:.2f} | {LIMITS[k]} |" for k in CASES]
    lines += [
        "",
        f"16 settings trained together cost {step['ratio']['exact settings']:.1f} times one "
        f"(float32: {step['ratio']['fast settings']:.1f}).",
        "",
        "## Accuracy",
        "",
        "Default settings, δ = 1e-5, nothing tuned, nothing unaccounted; mean and standard",
        "deviation over runs with fresh noise.",
        "",
        "| data | ε | test accuracy | runs |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {r['data']} | {r['epsilon']:g} | {r['accuracy']:.2f} ± {r['spread']:.2f} "
        f"| {r['runs']} |"
        for r in accuracy
    ]
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
