"""Settings by name, as scikit-learn reads and sets them: ``get_params``, ``set_params``, ``repr``.

Trainers and stages are dataclasses with `Params`; estimators that hold them are `Composed`. So
``clone``, ``GridSearchCV`` and ``set_params(trainer__clip=0.1)`` reach what is inside.
"""

from __future__ import annotations

import copy
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import fields
from inspect import cleandoc, signature
from typing import Any, Self

from tacit.exceptions import InputError

HEAD = re.compile(r"^([A-Z]\w+)\n-+\n", re.MULTILINE)
ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)


class Documented:
    """A class whose docstring also lists the parameters and attributes of its bases.

    What a base says of a parameter is written once, and read in every class that has it.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for base in cls.__bases__:
            if cls.__doc__ and base.__doc__ and issubclass(base, Documented):
                cls.__doc__ = _merged(cls.__doc__, base.__doc__)


def _merged(text: str, base: str) -> str:
    """A docstring with what another lists and it does not, in front of its own."""
    parts, given = _sections(text), _sections(base)
    for head in ("Attributes", "Parameters"):
        own, more = parts.pop(head, ""), given.get(head, "")
        known = {name for entry in ENTRY.split(own) for name in _names(entry)}
        lacks = [entry for entry in ENTRY.split(more) if not known & _names(entry)]
        if listed := "\n".join(entry.rstrip() for entry in [*lacks, own] if entry.strip()):
            parts = {"": parts.pop(""), head: listed, **parts}
    return "\n\n".join(
        f"{head}\n{'-' * len(head)}\n{body.rstrip()}" if head else body.strip()
        for head, body in parts.items()
    )


def _sections(text: str) -> dict[str, str]:
    preface, *rest = HEAD.split(cleandoc(text))
    return {"": preface, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _names(entry: str) -> set[str]:
    return set(entry.partition("\n")[0].partition(" : ")[0].split(", ")) - {""}


class Params(Documented):
    """A dataclass whose fields scikit-learn can read and set."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by its name.

        Parameters
        ----------
        deep : bool
            Changes nothing: settings hold no others.

        Returns
        -------
        dict
            Name to value, as given.
        """
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Change settings in place, checked as if they had been given at first.

        Parameters
        ----------
        **params
            Settings by name.

        Returns
        -------
        Self
            The object itself.
        """
        known = self.get_params()
        if unknown := [name for name in params if name not in known]:
            raise InputError(
                f"{type(self).__name__} has no setting {unknown[0]!r:.80}; it has "
                + ", ".join(known)
            )
        vars(self).update(vars(type(self)(**{**known, **params})))
        return self


def named(parts: Sequence[Any]) -> dict[str, int]:
    """Names of parts and their places, as scikit-learn's ``make_pipeline`` gives them.

    Parameters
    ----------
    parts : sequence
        Stages.

    Returns
    -------
    dict
        Class names in lower case, with -1, -2 and so on behind those that occur more than once.

    Examples
    --------
    >>> from tacit.preprocessing import Normalize, PrivateCenter
    >>> named([Normalize(), PrivateCenter(), Normalize()])
    {'normalize-1': 0, 'privatecenter': 1, 'normalize-2': 2}
    """
    kinds = [type(part).__name__.lower() for part in parts]
    often, met, places = Counter(kinds), Counter[str](), {}
    for place, kind in enumerate(kinds):
        met[kind] += 1
        places[kind if often[kind] == 1 else f"{kind}-{met[kind]}"] = place
    return places


class ShowsBudget(Documented):
    """An estimator whose ``repr`` always has epsilon and delta, also where they are defaults."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        from sklearn import get_config

        changed_only = get_config()["print_changed_only"]
        shown = []
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            text = repr(value)
            if len(text) > N_CHAR_MAX:
                text = f"{text[: N_CHAR_MAX // 2]}...{text[-N_CHAR_MAX // 2 :]}"
            budget = name in ("epsilon", "delta") and value is not None
            if budget or not changed_only or text != repr(parameter.default):
                shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Composed(ShowsBudget):
    """An estimator with a trainer and stages, whose settings are parameters of its own.

    A trainer's are ``trainer__clip`` and the like. Stages have the names that `named` gives them:
    ``stages__clipnorm`` is a stage, ``stages__clipnorm__radius`` a setting of it. What is set is a
    copy: trainers and stages that others hold, such as the plan of a fit, stay as they were.
    """

    trainer: Any
    stages: Any

    def _auto_trainer(self) -> Params:
        """The trainer whose settings are meant while ``trainer="auto"``."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every parameter by its name.

        Parameters
        ----------
        deep : bool
            Whether settings of the trainer and of stages are among them.

        Returns
        -------
        dict
            Name to value.
        """
        params: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        stages = self.stages if deep and isinstance(self.stages, list | tuple) else ()
        for name, place in named(stages).items():
            params[f"stages__{name}"] = stages[place]
            if isinstance(stages[place], Params):
                inner = stages[place].get_params()
                params |= {f"stages__{name}__{key}": value for key, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters, by name.

        Parameters
        ----------
        **params
            Parameters, and settings of the trainer and of stages. ``trainer="auto"`` becomes a
            trainer if settings of one are given.

        Returns
        -------
        Self
            The estimator itself.
        """
        inner: dict[str, dict[str, Any]] = {"trainer": {}, "stages": {}}
        for name in list(params):
            head, _, setting = name.partition("__")
            if setting and head in inner:
                inner[head][setting] = params.pop(name)
        super().set_params(**params)  # type: ignore[misc]
        if inner["trainer"]:
            auto = isinstance(self.trainer, str) and self.trainer == "auto"
            trainer = self._auto_trainer() if auto else self.trainer
            self.trainer = _changed("trainer", trainer, inner["trainer"])
        if inner["stages"] and isinstance(self.stages, Params):
            self.stages = _changed("stages", self.stages, inner["stages"])
        elif inner["stages"]:
            self.stages = _with(self.stages, inner["stages"])
        return self


def _with(stages: Any, given: dict[str, Any]) -> list[Any]:
    """Stages of which some are replaced, or have other settings."""
    stages = list(stages) if isinstance(stages, list | tuple) else []
    places, inner = named(stages), defaultdict[str, dict[str, Any]](dict)
    for name, value in given.items():
        stage, _, setting = name.partition("__")
        if stage not in places:
            known = ", ".join(f"stages__{name}" for name in places) or "there is none by name"
            raise InputError(f"stages__{name:.80} is of none of the stages: {known}")
        if setting:
            inner[stage][setting] = value
        else:
            stages[places[stage]] = value
    for stage, settings in inner.items():
        stages[places[stage]] = _changed(f"stages__{stage}", stages[places[stage]], settings)
    return stages


def _changed(place: str, part: Any, settings: dict[str, Any]) -> Any:
    """A copy of a part with other settings."""
    try:
        if isinstance(part, Params):
            return copy.copy(part).set_params(**settings)
        why = f"{part!r:.80} has no settings"
    except InputError as error:
        why = str(error)
    raise InputError(f"{', '.join(f'{place}__{name}' for name in settings):.200}: {why}")
