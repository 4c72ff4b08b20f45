"""Settings of a plan, as the command line has them: options of `fit` and `plan`, and their parts.

What is not given is left to the estimators of Python, which have the defaults.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from inspect import Parameter, signature
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from tacit.cli.console import flag, given
from tacit.cli.options import Delta, Epsilon
from tacit.exceptions import InputError

if TYPE_CHECKING:
    from tacit.data.schema import Schema
    from tacit.model_selection.search import Trials
    from tacit.privacy.unit import Unit

AUTO = "auto"
PECULIAR = {  # to some recipes
    "n_components": "components",
    "public": "public rows",
    "gap": "eigengaps",
    "strength": "strengths",
}

RECIPE = """auto: what the estimators of Python take by themselves: dpsgd-f, and for a target of
numbers with few columns the trainer statistics. dpsgd-f: rows of unit norm, a private mean, descent
on all rows, along a private second moment for two classes (not with --option precondition=0); with
--option equalize=0.1, columns of one size. dpsgd-f-theory: rows of any norm, a
private mean and a private scale, if rows are enough for these. dp-gd: no mean. dpsgd: on
sampled rows. local: rows randomise themselves. pillar: public PCA first. gep: gradients in and
outside a public subspace. adadps: gradients divided by public scales. dp-raft: hardly clipped;
dp-raft+pillar: after public PCA. jl: random projection first. dp-pca: noisy PCA first. soft-pca:
soft PCA of the rows themselves. ptr-pca: their PCA, behind a test."""
COMPONENTS = """Components to keep, for recipes that project; auto, or nothing: what suits the
columns, and for pillar the public rows. For gep, those of its subspace."""
NEIGHBORS = """What differing in one row means. replace_special: a row blanked out.
add_or_remove_one: their number is private. replace_one: a row swapped for another. auto, unless
given: replace_one if a stage looks at the rows without noise, replace_special otherwise."""
GAP = "Least eigengap of the rows, for ptr-pca; it is tested."
STRENGTH = "What soft PCA shrinks below, for soft-pca: 0.05 unless given."
TRAINER = """Instead of the recipe's. dp-gd: descent on all rows. dpsgd: on sampled rows. noisy-sgd:
several runs, one chosen through noise. flattest: the iterate of least gradient, for losses that are
not convex. iterated: one pass, stopped at random. local: rows randomise themselves. gamma: other
noise, to compare; with --arithmetic fast."""
OPTION = """Another setting of the recipe or its trainer, such as n_components=auto, center=False or
clip=0.1; give it as often as there are settings."""
TUNE = """Settings to choose from by private trials, such as clip=0.01,0.1,1: those that --option
takes. Give it as often as there are settings; every combination may be tried."""
TRIALS = """How many trials are expected; their number is drawn at random. 10 unless given."""
STAGE = """A step before training, such as 'SoftPCA(strength=0.05)', instead of the recipe's; give
it as often as there are steps, in their order."""
LOSS = "Instead of logistic, softmax (many classes) or squared."
PERSON = """Column that says whose a row is: people are protected with all of their rows. It is not
learned from, and written nowhere. The identifier of the schema, unless given."""
ROWS_PER_PERSON = """How many rows of a person count at most: a public number. Of more, so many are
drawn at random."""
ARITHMETIC = """exact, unless given; strict: exact and checked; fast: ideal floats assumed."""


@dataclass(frozen=True)
class Settings:
    """What `fit` and `plan` share, known before any row is read: each of them is an option."""

    epsilon: Epsilon
    delta: Delta
    recipe: Annotated[str, flag(RECIPE)] = AUTO
    components: Annotated[str | None, flag(COMPONENTS)] = None
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None
    gap: Annotated[float | None, flag(GAP)] = None
    strength: Annotated[float | None, flag(STRENGTH)] = None
    trainer: Annotated[str | None, flag(TRAINER)] = None
    options: Annotated[list[str] | None, flag(OPTION, "--option")] = None
    tune: Annotated[list[str] | None, flag(TUNE)] = None
    trials: Annotated[float | None, flag(TRIALS)] = None
    stages: Annotated[list[str] | None, flag(STAGE, "--stage")] = None
    loss: Annotated[str | None, flag(LOSS)] = None
    steps: Annotated[int | None, flag("Training steps, instead of the rule's.")] = None
    arithmetic: Annotated[str | None, flag(ARITHMETIC)] = None
    person: Annotated[str | None, flag(PERSON)] = None
    rows_per_person: Annotated[int | None, flag(ROWS_PER_PERSON)] = None

    def __post_init__(self) -> None:
        from tacit.plan.defaults import resolve_relation
        from tacit.privacy.budget import Budget
        from tacit.privacy.events import sensitivity

        Budget(self.epsilon, self.delta)
        sensitivity(resolve_relation(self.neighbors or AUTO, ()))
        if self.components not in (None, AUTO) and not str(self.components).isdecimal():
            raise InputError(f"components={self.components} must be an integer or auto")
        if self.trials is not None and not self.tune:
            raise InputError("trials are made to tune settings: say which, as in clip=0.01,0.1")
        if self.person is not None and self.rows_per_person is None:
            raise InputError("how many rows of a person count is public: say rows_per_person, too")
        for name in ("components", "steps", "rows_per_person"):
            if (value := getattr(self, name)) not in (None, AUTO) and int(value) < 1:
                raise InputError(f"{name}={value} must be at least 1")

    @property
    def chosen(self) -> dict[str, Any]:
        """What an estimator is told besides its budget, stages and trainer."""
        told = given(neighbors=self.neighbors, arithmetic=self.arithmetic, loss=self.loss)
        return told | given(max_rows_per_group=self.rows_per_person)

    def identified(self, schema: Schema) -> Schema:
        """The schema with the column that tells people apart, if they are counted."""
        if self.person is None:
            if self.rows_per_person is not None and schema.identifier is None:
                raise InputError("which column says whose a row is? Name it as person")
            return schema
        if schema.identifier not in (None, self.person):
            raise InputError(
                f"person {self.person!r:.80}, but the schema's identifier is {schema.identifier!r}"
            )
        columns = {k: v for k, v in schema.columns.items() if k != self.person}
        return replace(schema, columns=columns, identifier=self.person)

    def unit(self, schema: Schema | None) -> Unit:
        """Whom a plan protects."""
        from tacit.privacy.unit import ROW, Unit

        if self.rows_per_person is None:
            return ROW
        named = None if schema is None else schema.identifier
        return Unit("person", self.rows_per_person, self.person or named)

    def parts(self, public: Any = None) -> dict[str, Any]:
        """Stages and trainer of the recipe."""
        from tacit.plan.recipes import RECIPES, parse_stage, recipe

        count = self.components if self.components in (None, AUTO) else int(self.components)
        options = given(n_components=count, public=public, steps=self.steps, gap=self.gap)
        options |= given(strength=self.strength, trainer=self.trainer)
        for name, value in map(parse_option, self.options or ()):
            if name in options:
                raise InputError(f"{name} is given twice")
            options[name] = value
        for name, words in PECULIAR.items():
            known = self.recipe in (AUTO, *RECIPES)
            if name in options and known and self.recipe not in takers(name):
                raise InputError(f"{words} are for the recipe {' or '.join(takers(name))}")
        if self.stages and options.keys() & PECULIAR.keys():
            raise InputError("stages of your own take their settings themselves, in brackets")
        parts = recipe(self.recipe, **options)
        return parts | ({"stages": [parse_stage(s) for s in self.stages]} if self.stages else {})

    def candidates(self, public: Any = None) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Stages and trainer of every setting to be tried, and what it sets, in words.

        Stages that do not differ are the same objects: they are fitted once.
        """
        words = _combinations(self.tune or ())
        found = [
            replace(self, options=[*(self.options or ()), *(f"{k}={v}" for k, v in one.items())])
            for one in words
        ]
        parts = [each.parts(public) for each in found]
        if all(repr(part["stages"]) == repr(parts[0]["stages"]) for part in parts):
            parts = [part | {"stages": parts[0]["stages"]} for part in parts]
        return parts, words

    @property
    def how_often(self) -> Trials:
        """How many trials are made."""
        from tacit.model_selection.search import Trials

        return Trials() if self.trials is None else Trials(self.trials)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `Settings` in the place of its parameter ``settings``."""
    hints = get_type_hints(Settings, include_extras=True)
    options = {
        item.name: Parameter(
            item.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(Settings)
    }

    def whole(**values: Any) -> None:
        settings = Settings(**{name: values.pop(name) for name in options})
        command(settings=settings, **values)

    own = signature(command, eval_str=True)
    taken = [
        option
        for item in own.parameters.values()
        for option in (options.values() if item.name == "settings" else (item,))
    ]
    whole.__name__, whole.__doc__ = command.__name__, command.__doc__
    whole.__annotations__ = {item.name: item.annotation for item in taken}
    whole.__signature__ = own.replace(parameters=taken)  # type: ignore[attr-defined]
    return whole


def takers(option: str) -> list[str]:
    """The recipes that take an option.

    Examples
    --------
    >>> takers("gap")
    ['ptr-pca']
    """
    from tacit.plan.recipes import RECIPES

    return [name for name, make in RECIPES.items() if option in signature(make).parameters]


def parse_option(text: str) -> tuple[str, Any]:
    """A setting from words such as ``n_components=20``; what is no plain value is text.

    Examples
    --------
    >>> parse_option("n_components=auto"), parse_option("clip=0.5")
    (('n_components', 'auto'), ('clip', 0.5))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise InputError(f"{text!r:.80} is not a setting; write for instance n_components=20")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return name.strip(), value.strip()


def _combinations(tune: Sequence[str]) -> list[dict[str, str]]:
    """Every setting of a grid in words such as ``clip=0.01,0.1,1``.

    Examples
    --------
    >>> _combinations(["clip=0.1,1"])
    [{'clip': '0.1'}, {'clip': '1'}]
    """
    grid: dict[str, list[str]] = {}
    for text in tune:
        name, equals, values = (part.strip() for part in text.partition("="))
        listed = [value.strip() for value in values.split(",")]
        if not (equals and name.isidentifier() and all(listed)):
            raise InputError(f"{text!r:.80} is no list of settings; write for instance clip=0.1,1")
        if name in grid:
            raise InputError(f"{name} is given twice")
        if len(set(listed)) < len(listed):
            raise InputError(f"{name} has a value twice, which would be tried twice as often")
        grid[name] = listed
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
