"""scikit-learn's own checks, on every version of it that is supported: ``make compat``.

Each version has an environment under ``.venv-compat`` that is kept for the next time.
Arguments, if any, name the versions to try.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("1.6", "1.7", "1.8", "1.9")
# Up to 1.8, scikit-learn hands pytest a generator of parameters; pytest 9 objects to that.
TOOLS = ("pytest>=8,<9", "pandas>=2.1")
# The ordinary tests check the other estimators; these show whether a version gets on with Tacit.
PICKED = "not hinge and not DPSGD and not census"


@dataclass(frozen=True)
class Outcome:
    version: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    output: str = ""


def main(versions: list[str]) -> int:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Installed one after another, since all build the same tree; tested side by side.
        outcomes = [done() for done in [begin(version, pool) for version in versions]]
    for outcome in outcomes:
        if outcome.failed:
            print(f"\nscikit-learn {outcome.version}\n{outcome.output}")
    print(f"{'scikit-learn':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for o in outcomes:
        print(f"{o.version:<14}{o.passed:>8}{o.failed:>8}{o.skipped:>9}{o.seconds:>9.0f}")
    passed, failed = (sum(getattr(o, name) for o in outcomes) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def begin(version, pool):
    """Install a version and start its tests; what is returned waits for the outcome."""
    home = ROOT / ".venv-compat" / version
    try:
        install(version, home)
    except subprocess.CalledProcessError as error:
        broken = Outcome(version, failed=1, output=error.stdout)
        return lambda: broken
    return pool.submit(check, version, home).result


def install(version: str, home: Path) -> None:
    wanted = ["-e", ".", f"scikit-learn=={version}.*", *TOOLS]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = repr([wanted, sys.version, project["dependencies"]])
    digest = hashlib.blake2b(recipe.encode()).hexdigest()
    stamp = home / "installed"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    print(f"installing scikit-learn {version}", flush=True)
    venv.create(home, with_pip=True, clear=True, symlinks=os.name != "nt")
    run(home, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted, check=True)
    stamp.write_text(digest)


def check(version: str, home: Path) -> Outcome:
    start = time.monotonic()
    report = home / "report.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "-k", PICKED, f"--junitxml={report}"]
    tests = ("tests/contracts/test_sklearn.py", "tests/test_pipelines.py")
    done = run(home, "-m", "pytest", *options, *tests)
    name = run(home, "-c", "import sklearn; print(sklearn.__version__)").stdout.strip()
    count = {"tests": 0, "errors": 0, "failures": 0, "skipped": 0}
    if report.is_file():
        suite = next(ElementTree.parse(report).iter("testsuite"))
        count = {key: int(suite.get(key, 0)) for key in count}
    failed = count["errors"] + count["failures"]
    passed = count["tests"] - failed - count["skipped"]
    if done.returncode or not passed:
        failed = max(failed, 1)
    seconds = time.monotonic() - start
    return Outcome(name or version, passed, failed, count["skipped"], seconds, done.stdout)


def run(home: Path, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [str(python), *arguments]
    to = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=ROOT, check=check, **to)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(VERSIONS)))
