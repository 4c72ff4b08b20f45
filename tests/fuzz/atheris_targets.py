"""Every reader under atheris, which looks for inputs that reach new code.

    python -m tests.fuzz.atheris_targets schema -max_total_time=60
    python -m tests.fuzz.atheris_targets all -max_total_time=60

``all`` runs one target after the other; it ends with 1 if any of them failed. Whatever follows
goes to libFuzzer. ``make fuzz`` gives each of them some minutes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FIXED = ["-timeout=60", "-rss_limit_mb=4096", "-max_len=65536", "-len_control=0"]


def fuzz(atheris: Any, hostile: Any, target: str, folder: Path, options: list[str]) -> None:
    """Run a target; the process ends here."""
    kind, _, values = target.partition("-")
    corpus = folder / "corpus"
    corpus.mkdir()
    for i, data in enumerate([] if values else hostile.seeds(kind)):
        (corpus / str(i)).write_bytes(data)
    hostile.watch()

    def one(data: bytes) -> None:
        if values:
            chosen = atheris.FuzzedDataProvider(data)
            data = hostile.EDITED[kind](chosen.PickValueInList)
        hostile.survives(kind, data, folder)
        if hostile.seen or hostile.TOUCHED.exists():
            raise AssertionError(f"something ran or was opened: {hostile.seen}")

    words = [*FIXED, f"-artifact_prefix={target}-", *options, str(corpus)]
    atheris.Setup([sys.argv[0], *words], one)
    atheris.Fuzz()


def main(target: str, options: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=["tacit", "yaml"]):
        from tests.fuzz import hostile

    targets = [*hostile.READERS, *(f"{kind}-values" for kind in hostile.EDITED)]
    if target not in ("all", *targets):
        sys.exit(f"which target? all, {', '.join(targets)}")
    failed = False
    for name in targets if target == "all" else [target]:
        with tempfile.TemporaryDirectory(prefix="tacit-fuzz-") as folder:
            child = os.fork()  # what was imported is shared: importing is slow
            if not child:
                fuzz(atheris, hostile, name, Path(folder), options)
            _, status = os.waitpid(child, 0)
        print(f"{name}: {'failed' if status else 'nothing found'}", flush=True)
        failed |= bool(status)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or [""], sys.argv[2:]))
