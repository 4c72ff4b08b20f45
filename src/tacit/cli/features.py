"""``tacit features``: what a pre-trained network says of images or texts, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tacit.cli.console import Json, argument, dump, flag, given, say, shown_progress
from tacit.cli.options import Force, Quiet

SOURCE = """Images: a folder, a .txt that lists files, .npy or .npz (uint8), idx. Text: a table with
--column, or a .txt with a line per row."""
EXTRACTOR = """efficientnet-lite0 (for images, the default), minilm (for text, the default for
tables), or a path: .onnx, TorchScript (.pt), the folder of a sentence encoder; no pickles."""
LABELS = """folders: the first folder below SOURCE; or a column, an array of the .npz, or a file
with one label per row."""
RESIZE = """Images of other shapes: crop (the largest centred part, in proportion) or stretch."""
COMPACT = """Store bytes q with x = 6 (q/255)^2: for features between 0 and 6."""
CACHE = """Folder to keep features in, instead of the user's cache folder."""
MEAN = """Subtracted from pixels between 0 and 1: a number, or three with commas."""


def features(
    source: Annotated[Path, argument("SOURCE", SOURCE)],
    *,
    out: Annotated[Path, flag("File for the features: .npz.")],
    extractor: Annotated[str | None, flag(EXTRACTOR)] = None,
    column: Annotated[str | None, flag("The column of a table that holds the text.")] = None,
    key: Annotated[str | None, flag("Which array of an .npz.", "--key")] = None,
    labels: Annotated[str | None, flag(LABELS)] = None,
    size: Annotated[int | None, flag("Height and width that the network takes.")] = None,
    resize: Annotated[str | None, flag(RESIZE)] = None,
    mean: Annotated[str | None, flag(MEAN)] = None,
    std: Annotated[str | None, flag("What pixels are divided by afterwards.")] = None,
    output: Annotated[str | None, flag("Which output of an ONNX network.")] = None,
    compact: Annotated[bool, flag(COMPACT, "--compact")] = False,
    cache: Annotated[Path | None, flag(CACHE)] = None,
    no_cache: Annotated[bool, flag("Keep nothing but the result.", "--no-cache")] = False,
    jobs: Annotated[int | None, flag("Rows worked at at once; one a core unless given.")] = None,
    quiet: Quiet = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Features of images or texts from a pre-trained network.

    Linear models do well on what a large network, trained on other people's data, makes of an
    image or a sentence. That costs no privacy as long as the network has not seen your rows,
    which nobody can check: a digest of it is kept beside the features. Every row goes through the
    network alone, so that its features depend on nothing else. An interrupted run goes on where
    it stopped. Features tell about their rows: keep the file and the cache as you keep those.

    \b
    Examples:
      tacit features scans/ --labels folders --out scans.npz
      tacit features reviews.csv --column text --labels stars --out reviews.npz
      tacit features train-images-idx3-ubyte.gz --extractor net.onnx --mean 0.5 --std 0.5 \\
        --out train.npz
    """
    from tacit.exceptions import InputError
    from tacit.features import extract, save_features
    from tacit.files import new_file

    if cache is not None and no_cache:
        raise InputError("--cache names a folder and --no-cache wants none; leave one out")
    new_file(out, force, (".npz",))
    settings = given(size=size, resize=resize, output=output, jobs=jobs)
    settings |= given(mean=_numbers("--mean", mean), std=_numbers("--std", std))
    settings |= given(column=column, key=key, labels=labels, cache=False if no_cache else cache)
    try:
        with shown_progress(not (quiet or as_json)) as shown:
            found = extract(source, extractor, progress=shown, **settings)
    except KeyboardInterrupt:
        if not no_cache:
            say("what was computed is kept: the same command goes on from there", err=True)
        raise
    save_features(found, out, compact=compact, force=force)
    n, width = found.features.shape
    if as_json:
        facts = {"rows": n, "width": width, "cached": found.cached, "skipped": found.skipped}
        labelled = {"labels": found.labels is not None, "names": found.names is not None}
        dump({**facts, **labelled, **found.metadata, "out": str(out)})
        return
    name, digest = found.metadata["extractor"], found.metadata["digest"]
    kept = f", {found.cached:,} of them from the cache" if found.cached else ""
    say(f"Wrote {width} features of {n:,} rows to {out}{kept}.")
    if found.skipped:
        say(f"{found.skipped:,} files are no images and were left out.")
    say(f"Network: {name}, digest {digest}; take it as public only if it has not seen these rows.")


def _numbers(name: str, text: str | None) -> Any:
    from tacit.exceptions import InputError

    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} must be a number, or several with commas") from None
    return found if len(found) > 1 else found[0]
