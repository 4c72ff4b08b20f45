"""``tacit fit``: a private model of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tacit.cli import options
from tacit.cli.console import Json, argument, dump, flag, given, plain_warnings, say, warn
from tacit.cli.evaluate import say_evaluation
from tacit.cli.ledger import account, left
from tacit.cli.settings import Settings, with_settings

SCHEMA = """Public facts about the columns: see tacit schema. What it does not say is found in the
rows, through noise that is paid for, and so is all of it without a schema."""
FILES = """Private rows: CSV, TSV, Parquet or a folder of it; or features (.npz)."""
LABELS = """For features: a table with their labels, in the column --target, row by row."""
LIMITS = """The target is a number with these public limits, such as 0,100; or private: limits are
found through noise."""
SEEDED = """WARNING: with --seed the noise can be foretold.
This result is NOT PRIVATE and NOT FOR RELEASE; its certificate says so."""
HOLDOUT = """Set aside this share of the rows, such as 0.2, by a coin for each, and test the model
on them through noise: at no cost, since nobody is both trained on and tested on."""
BY = """With --holdout: a column and public values of it, such as sex=female,male, for figures of
each group."""
SCORES = {
    "noisy_score": "its score there, through noise",
    "test_accuracy": "test accuracy, with privacy",
    "nonprivate_accuracy": "the same without privacy",
    "majority_accuracy": "always the most common class",
    "test_r2": "test R2",
    "test_rmse": "test error (root mean square)",
}


@with_settings
def fit(
    table: Annotated[Path, argument("TABLE", FILES)],
    *,
    settings: Settings,
    out: options.Out,
    schema: Annotated[Path | None, flag(SCHEMA)] = None,
    target: options.Target = None,
    target_bounds: Annotated[str | None, flag(LIMITS)] = None,
    labels: Annotated[Path | None, flag(LABELS)] = None,
    key: options.Key = None,
    public: options.Public = None,
    public_size: options.PublicSize = None,
    test: Annotated[Path | None, flag("Rows to test on; they are not protected.")] = None,
    holdout: Annotated[float | None, flag(HOLDOUT)] = None,
    by: Annotated[str | None, flag(BY)] = None,
    ledger: options.LedgerPlace = None,
    dataset: options.Dataset = None,
    decimal: options.Decimal = None,
    memory: Annotated[float | None, flag("GB that rows may take; more is read again.")] = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    force: options.Force = False,
    as_json: Json = False,
) -> None:
    """Fit a private model to a table.

    Everything that looks at the rows is counted in one guarantee (epsilon, delta). Bounds and
    categories that no schema declares are found in the rows through noise, which takes some of
    the budget: declare what is public. The directory
    gets model.safetensors, certificate.json and report.html, all of them or none, and
    manifest.json, which says which files belong together.

    A folder of Parquet files, or a file of more than 256 MB, stays on disk and may be larger than
    memory.

    An .npz, as tacit features writes it or with arrays x and y (or x_train, y_train), holds
    features that are ready: there is no schema, and --target names another array of labels.

    \b
    Examples:
      tacit fit patients.csv --target sick --epsilon 1 --delta 1e-6 --out model
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model
      tacit fit patients.csv --target sick --epsilon 1 --delta 1e-6 --out model --holdout 0.2
      tacit fit patients.parquet --schema s.yaml --epsilon 0.3 --delta 1e-6 --out model \\
        --recipe pillar --public volunteers.parquet --test test.parquet
      tacit fit scans.npz --epsilon 1 --delta 1e-6 --out model
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model \\
        --ledger ledger.db --dataset patients
      tacit fit visits.csv --target sick --epsilon 1 --delta 1e-6 --out model \\
        --person patient_id --rows-per-person 5
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model \\
        --tune clip=0.01,0.1,1 --tune learning_rate=1,10
    """
    files = given(schema=schema, test=test, public=public, out=out, target=target)
    files |= given(target_bounds=target_bounds, decimal=decimal, labels=labels, key=key, by=by)
    more = given(ledger=account(ledger, dataset), public_size=public_size, holdout=holdout)
    more |= {} if memory is None else {"memory": memory * 1e9}
    report(seed, quiet, as_json, table, settings, force=force, **files, **more)


def report(seed: int | None, quiet: bool, as_json: bool, *what: Any, **how: Any) -> None:
    """Run a fit and say what came of it."""
    from tacit.cli.tasks.fit import fit as fit_table
    from tacit.cli.tasks.outputs import FILES

    if seed is not None:
        say(SEEDED, err=True)
    with plain_warnings() as said:
        fitted = fit_table(*what, random_state=seed, verbose=not quiet, **how)
    facts, out = fitted.to_dict(), fitted.out
    warn(text for text in fitted.estimator.certificate_.warnings if text not in said)
    if as_json:
        dump(facts)
        return
    claim = f"epsilon {facts['epsilon']:g}, delta {facts['delta']:g} ({facts['neighbors']})"
    units = "people" if "train_people" in facts else "rows"
    whom = f", at most {facts['unit']['rows']} rows each," if "unit" in facts else ""
    say(f"Fitted to {facts[f'train_{units}']:,} {units}{whom} with {claim}.")
    if "chosen" in facts:
        words = ", ".join(f"{name}={value}" for name, value in facts["chosen"].items())
        say(f"  {'chosen by private trials':<33}{words}")
    for text in facts.get("found", ()):
        say(f"  {text}")
    for key, label in SCORES.items():
        if key in facts:
            say(f"  {label:<33}{facts[key]:.{'1%' if key.endswith('accuracy') else '4g'}}")
    tested = getattr(fitted.estimator, "evaluation_", None)
    if tested is not None:
        say_evaluation(tested)
    if "ledger" in how:
        say(f"Ledger: {left(how['ledger'].remaining())}.")
    say(f"In {out}: {', '.join(FILES)}.\nCheck the claim: tacit verify {out}")
