"""The command line: arguments in, words or one JSON object out.

What the commands do is in `tacit.cli.tasks`, imported when one runs, so that
``tacit --help`` answers at once. Exit codes: 0 success; 1 ``verify`` found a false
claim, or ``ledger check`` a changed ledger; 2 bad input, or a machine that cannot do it;
3 the budget does not allow it, or a private test did not pass; 4 a mistake of Tacit's own;
130 interrupted.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tacit import __version__
from tacit.cli.audit import attach as attach_audit
from tacit.cli.console import Json, argument, dump, flag, line, say
from tacit.cli.data import app as data_app
from tacit.cli.features import attach as attach_features
from tacit.cli.inspect import attach as attach_inspect
from tacit.cli.ledger import DATASET, LEDGER, account, left
from tacit.cli.ledger import app as ledger_app
from tacit.exceptions import FOR_CURATORS, BudgetError, PrivateTestError, TacitError, consequences
from tacit.registry import load

__all__ = ["app", "main"]

DEMO = Path("tacit-demo")
REFUSALS = (BudgetError, PrivateTestError)
TRACEBACK = "TACIT_TRACEBACK"


class Commands(TyperGroup):
    """The commands; whatever is raised becomes one line and a code.

    An error that Tacit did not raise on purpose may quote private values, so its words are not
    shown: its kind and its place are.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TacitError as error:
            marked = f" ({FOR_CURATORS})" if error.depends_on_rows else ""
            code = 3 if isinstance(error, REFUSALS) else 2
            self._end(error, f"error: {str(error).rstrip('.')}{marked}", code)
        except MemoryError as error:
            self._end(error, "error: the memory of this machine is not enough for that", 2)
        except KeyboardInterrupt as error:
            told = consequences(error)
            self._end(error, "interrupted" if told else "interrupted; nothing was written", 130)
        except Exception as error:
            ours = isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code")
            if ours or isinstance(error, BrokenPipeError) or os.environ.get(TRACEBACK):
                raise
            self._end(error, f"error: {_mistake(error)}", 4)

    @staticmethod
    def _end(error: BaseException, words: str, code: int) -> NoReturn:
        """Say what happened, and what has become of budget and files."""
        say(line(". ".join([words.rstrip("."), *consequences(error)])), err=True)
        raise typer.Exit(code) from error


def _mistake(error: Exception) -> str:
    """Kind and place of an error that nobody foresaw."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if "tacit" in f.filename]
    where = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    return (
        f"{type(error).__name__}{where}: a mistake of Tacit's own, please report it. With "
        f"{TRACEBACK}=1 in the environment it is shown in full, and may then show private values"
    )


app = typer.Typer(
    cls=Commands,
    help="Differentially private linear models in which the whole pipeline is counted.\n\n"
    "Begin with: tacit demo. For a table of your own: tacit schema, fill in its blanks, tacit "
    "fit, tacit verify. Every command takes --json, and --help explains it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,  # local variables hold private rows
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(data_app, name="data")
attach_audit(app)
attach_features(app)
attach_inspect(app)

EPSILON = """Privacy budget: seeing the model moves anybody's odds on whether a row was used by a
factor of at most e^epsilon. 1 is strong, 0.1 very strong, 10 weak."""
DELTA = """The small probability with which that may fail: well below one over the number of
rows."""
RECIPE = """auto: what the estimators of Python take by themselves: dpsgd-f, and for a target of
numbers with few columns the trainer statistics. dpsgd-f: rows of unit norm, a private mean, descent
on all rows; with --option equalize=0.1, columns of one size. dpsgd-f-theory: rows as long as they
are, a private mean and a private scale, if rows are enough for these. dp-gd: no mean. dpsgd: on
sampled rows. local: rows randomise themselves. pillar: public PCA first. gep: gradients in and
outside a public subspace. adadps: gradients divided by public scales. dp-raft: hardly clipped;
dp-raft+pillar: after public PCA. jl: random projection first. dp-pca: noisy PCA first. soft-pca:
soft PCA of the rows themselves. ptr-pca: their PCA, behind a test."""
NEIGHBORS = """What differing in one row means. replace_special: a row blanked out.
add_or_remove_one: their number is private. replace_one: a row swapped for another. auto:
replace_one if a stage looks at the rows without noise, replace_special otherwise."""
STAGE = """A step before training, such as 'SoftPCA(strength=0.05)', instead of the recipe's; give
it as often as there are steps, in their order."""

OPTION = """Another setting of the recipe or its trainer, such as n_components=auto, center=False or
clip=0.1; give it as often as there are settings."""
TUNE = """Settings to choose from by private trials, such as clip=0.01,0.1,1: those that --option
takes. Give it as often as there are settings; every combination may be tried."""
TRIALS = """How many trials are expected; their number is drawn at random. 10 unless given."""

Epsilon = Annotated[float, flag(EPSILON)]
Delta = Annotated[float, flag(DELTA)]
Recipe = Annotated[str, flag(RECIPE)]
KEPT = """Components to keep, for recipes that project; auto, or nothing: what suits the columns,
and for pillar the public rows. For gep, those of its subspace."""
Components = Annotated[str | None, flag(KEPT)]
Public = Annotated[
    Path | None, flag("Public rows of the same schema, for pillar, gep, adadps, dp-raft+pillar.")
]
TRAINER = """Instead of the recipe's. dp-gd: descent on all rows. dpsgd: on sampled rows. noisy-sgd:
several runs, one chosen through noise. flattest: the iterate of least gradient, for losses that are
not convex. iterated: one pass, stopped at random. local: rows randomise themselves. gamma: other
noise, to compare; with --arithmetic fast."""
Trainer = Annotated[str | None, flag(TRAINER)]
Options = Annotated[list[str] | None, flag(OPTION)]
Tune = Annotated[list[str] | None, flag(TUNE)]
HowMany = Annotated[float | None, flag(TRIALS)]
Gap = Annotated[float | None, flag("Least eigengap of the rows, for ptr-pca; it is tested.")]
Strength = Annotated[float | None, flag("What soft PCA shrinks below, for soft-pca: 0.05.")]
Neighbors = Annotated[str, flag(NEIGHBORS)]
Stages = Annotated[list[str] | None, flag(STAGE)]
Loss = Annotated[str | None, flag("Instead of logistic, softmax (many classes) or squared.")]
Steps = Annotated[int | None, flag("Training steps, instead of the rule's.")]
Arithmetic = Annotated[str, flag("exact; strict: exact and checked; fast: ideal floats assumed.")]
Seed = Annotated[int | None, flag("Repeatable noise: for tests, NOT FOR RELEASE.")]
Out = Annotated[Path, flag("Directory for model, certificate and report.")]
Quiet = Annotated[bool, flag("No progress bar.", "--quiet")]
Force = Annotated[bool, flag("Overwrite what is there.", "--force")]


def show_version(wanted: bool) -> None:
    if wanted:
        say(f"tacit {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
]


@app.callback()
def common(version: Version = False) -> None:
    pass


@app.command()
def schema(
    table: Annotated[Path, argument("TABLE", "CSV, TSV or Parquet.")],
    target: Annotated[str | None, flag("The column to predict.")] = None,
    out: Annotated[Path | None, flag("File for the draft, in YAML.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draft the schema of a table, for a person to fill in.

    A schema states bounds and categories of the columns. They must be public facts, from a form
    or a code book: read off the table, the largest income or a rare category would give one
    person away. So only names and kinds of columns are filled in here.

    \b
    Example:
      tacit schema patients.csv --target outcome --out patients.yaml
    """
    from tacit.cli import tasks

    text = tasks.draft(table, target, out, force=force)
    if as_json:
        dump({"out": None if out is None else str(out), "schema": text})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        say(f"Wrote {out}. Fill in its blanks from public knowledge; then: tacit fit --help")


@app.command()
def fit(
    table: Annotated[Path, argument("TABLE", "Private rows: CSV, TSV, Parquet or a folder of it.")],
    *,
    schema: Annotated[Path, flag("Public facts about the columns: see tacit schema.")],
    epsilon: Epsilon,
    delta: Delta,
    out: Out,
    target: Annotated[str | None, flag("Column to predict, unless the schema names it.")] = None,
    recipe: Recipe = "auto",
    public: Public = None,
    components: Components = None,
    neighbors: Neighbors = "auto",
    gap: Gap = None,
    strength: Strength = None,
    trainer: Trainer = None,
    option: Options = None,
    tune: Tune = None,
    trials: HowMany = None,
    stage: Stages = None,
    size: Annotated[int | None, flag("Public stand-in for a private number of rows.")] = None,
    loss: Loss = None,
    steps: Steps = None,
    test: Annotated[Path | None, flag("Rows to test on; they are not protected.")] = None,
    arithmetic: Arithmetic = "exact",
    ledger: Annotated[str | None, flag(LEDGER)] = None,
    dataset: Annotated[str | None, flag(DATASET)] = None,
    memory: Annotated[float | None, flag("GB that rows may take; more is read again.")] = None,
    seed: Seed = None,
    quiet: Quiet = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a private model to a table.

    Everything that looks at the rows is counted in one guarantee (epsilon, delta). A schema is
    needed since bounds and categories that are read from the rows would leak. The directory
    gets model.safetensors, certificate.json and report.html, all of them or none, and
    manifest.json, which says which files belong together.

    A folder of Parquet files, or a file of more than 256 MB, stays on disk and may be larger than
    memory.

    \b
    Examples:
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model
      tacit fit patients.parquet --schema s.yaml --epsilon 0.3 --delta 1e-6 --out model \\
        --recipe pillar --public volunteers.parquet --test test.parquet
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model \\
        --ledger ledger.db --dataset patients
      tacit fit patients.csv --schema patients.yaml --epsilon 1 --delta 1e-6 --out model \\
        --tune clip=0.01,0.1,1 --tune learning_rate=1,10
    """
    from tacit.cli import tasks

    shared = (recipe, components, neighbors, loss, steps, arithmetic, tuple(stage or ()))
    more: dict[str, Any] = {"gap": gap, "strength": strength, "trainer": trainer}
    more |= {"options": tuple(option or ()), "tune": tuple(tune or ()), "trials": trials}
    settings = tasks.Settings(epsilon, delta, *shared, **more)
    files: dict[str, Any] = {"schema": schema, "test": test, "public": public, "out": out}
    if (book := account(ledger, dataset)) is not None:
        files["ledger"] = book
    if memory is not None:
        files["memory"] = memory * 1e9
    report(seed, quiet, as_json, table, settings, target=target, size=size, force=force, **files)


@app.command()
def predict(
    model: Annotated[Path, argument("MODEL", "Directory of a fit, or its model file.")],
    table: Annotated[Path, argument("TABLE", "Rows with the columns of the schema.")],
    *,
    out: Annotated[Path, flag("File for the predictions: .csv or .parquet.")],
    proba: Annotated[bool, flag("Also the probability of every class.", "--proba")] = False,
    extractor: Annotated[str | None, flag("The network of a model of features, if a file.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict for every row of a table, in its order.

    \b
    Example:
      tacit predict model new.csv --out predictions.csv --proba
    """
    from tacit.cli import tasks

    rows = tasks.predict(model, table, out, proba=proba, force=force, extractor=extractor)
    if as_json:
        dump({"rows": rows, "out": str(out)})
    else:
        say(f"Wrote predictions for {rows} rows to {out}")


@app.command()
def plan(
    *,
    epsilon: Epsilon,
    delta: Delta,
    rows: Annotated[int, flag("Number of rows, or the public stand-in for it.")],
    schema: Annotated[Path | None, flag("The schema to be fitted with;")] = None,
    columns: Annotated[int | None, flag("or the number of columns.")] = None,
    classes: Annotated[int | None, flag("2 unless given; 0 for a target of numbers.")] = None,
    recipe: Recipe = "auto",
    public: Public = None,
    components: Components = None,
    neighbors: Neighbors = "auto",
    gap: Gap = None,
    strength: Strength = None,
    trainer: Trainer = None,
    option: Options = None,
    tune: Tune = None,
    trials: HowMany = None,
    stage: Stages = None,
    loss: Loss = None,
    steps: Steps = None,
    arithmetic: Arithmetic = "exact",
    as_json: Json = False,
) -> None:
    """Show the noise and its cost before any private row is read.

    \b
    Examples:
      tacit plan --epsilon 1 --delta 1e-6 --rows 50000 --schema patients.yaml
      tacit plan --epsilon 0.3 --delta 1e-6 --rows 50000 --schema patients.yaml \\
        --recipe pillar --public volunteers.parquet
      tacit plan --epsilon 0.3 --delta 1e-6 --rows 50000 --columns 784 --classes 10
      tacit plan --epsilon 1 --delta 1e-6 --rows 50000 --schema patients.yaml --tune clip=0.1,1
    """
    from tacit.cli import tasks

    shared = (recipe, components, neighbors, loss, steps, arithmetic, tuple(stage or ()))
    more: dict[str, Any] = {"gap": gap, "strength": strength, "trainer": trainer}
    more |= {"options": tuple(option or ()), "tune": tuple(tune or ()), "trials": trials}
    settings = tasks.Settings(epsilon, delta, *shared, **more)
    facts: dict[str, Any] = {"columns": columns, "classes": classes, "public": public}
    calibrated = tasks.plan(settings, rows, schema=schema, **facts)
    events = tasks.events(calibrated)
    search = tasks.tuning(settings, rows, schema=schema, **facts) if tune else None
    if as_json:
        relation = calibrated.plan.neighbors
        budget = {"epsilon": epsilon, "delta": delta, "neighbors": relation}
        extra = {} if search is None else {"tuning": search.to_dict()}
        dump({**budget, "events": events, "plan": calibrated.to_dict(), **extra})
        return
    say(f"{calibrated.explain()}\n")
    say(f"{'':<16}{'noise':>9}{'times':>7}{'epsilon alone':>15}{'share':>8}")
    for event in events:
        noise, count = (event["parameters"][key] for key in ("noise_multiplier", "count"))
        alone, share = event["epsilon_alone"], event["share"]
        say(f"{event['stage']:<16}{noise:>9.4g}{count:>7}{alone:>15.4g}{share:>8.1%}")
    say(f"{'together':<32}{epsilon:>15.4g}{1:>8.1%}")
    if search is not None:
        say(f"\n{search.explain()}")


@app.command()
def verify(
    path: Annotated[Path, argument("FILE", "A certificate, a model, or the directory of a fit.")],
    as_json: Json = False,
) -> None:
    """Recompute the claim of a certificate.

    Its events are composed again, by two routes that share no code. The exit code is 1 if the
    claim does not hold, if plans like it were found to be false since ("revoked", as far as this
    version knows), or if a file of a directory was changed, damaged, or left by another run.

    \b
    Example:
      tacit verify model
    """
    from tacit.cli import tasks
    from tacit.privacy.accounting.group import rounded_up

    verdict = tasks.verify(path)
    claim = verdict.certificate
    for reason in claim.reasons if claim else ():
        say(f"NOT FOR RELEASE: {line(reason)}", err=True)
    if as_json:
        dump(verdict.to_dict())
    else:
        if claim:
            say(
                f"claimed{'':<8}epsilon {claim.epsilon:g}, delta {claim.delta:g}, {claim.neighbors}"
            )
        for route, found in verdict.recomputed.items():
            say(f"{route:<15}epsilon {found:.6g}")
        for rows, several in (claim.groups if claim else {}).items():
            stated = "no promise" if several is None else f"epsilon {rounded_up(several)}"
            say(f"{f'with {rows} rows':<15}{stated}, at the same delta")
        for problem in verdict.problems:
            say(line(problem) if problem in verdict.revoked else f"problem: {line(problem)}")
        say("The claim DOES NOT HOLD." if verdict.problems else "The claim holds.")
    raise typer.Exit(1 if verdict.problems else 0)


@app.command()
def demo(
    *,
    out: Out = DEMO,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    seed: Seed = None,
    quiet: Quiet = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a model to the bundled census table, end to end.

    Who earns more than 50,000 dollars a year? 32,561 rows to learn from, 16,281 to test on.

    \b
    Example:
      tacit demo --epsilon 0.5
    """
    from tacit.cli import tasks
    from tacit.datasets import load_adult

    settings = tasks.Settings(epsilon, delta)
    train, test, facts = load_adult()
    files = {"schema": facts, "test": test, "out": out, "force": force or out == DEMO}
    report(seed, quiet, as_json, train, settings, baseline=True, **files)  # the rows are public


def report(seed: int | None, quiet: bool, as_json: bool, *what: Any, **how: Any) -> None:
    """Run a fit and say what came of it."""
    from tacit.cli import tasks

    if seed is not None:
        say(SEEDED, err=True)
    fitted = tasks.fit(*what, random_state=seed, verbose=not quiet, **how)
    facts, out = fitted.to_dict(), fitted.out
    if as_json:
        dump(facts)
        return
    claim = f"epsilon {facts['epsilon']:g}, delta {facts['delta']:g} ({facts['neighbors']})"
    say(f"Fitted to {facts['train_rows']:,} rows with {claim}.")
    if "chosen" in facts:
        words = ", ".join(f"{name}={value}" for name, value in facts["chosen"].items())
        say(f"  {'chosen by private trials':<33}{words}")
    for key, label in SCORES.items():
        if key in facts:
            say(f"  {label:<33}{facts[key]:.{'1%' if key.endswith('accuracy') else '4g'}}")
    if how.get("ledger") is not None:
        say(f"Ledger: {left(how['ledger'].remaining())}.")
    say(f"In {out}: {', '.join(tasks.FILES)}.\nCheck the claim: tacit verify {out}")


SEEDED = """WARNING: with --seed the noise can be foretold.
This result is NOT PRIVATE and NOT FOR RELEASE; its certificate says so."""
SCORES = {
    "noisy_score": "its score there, through noise",
    "test_accuracy": "test accuracy, with privacy",
    "nonprivate_accuracy": "the same without privacy",
    "majority_accuracy": "always the most common class",
    "test_r2": "test R2",
    "test_rmse": "test error (root mean square)",
}


load("commands")  # of research: they are added to the application


def main() -> None:
    """The ``tacit`` command."""
    app(prog_name="tacit")
