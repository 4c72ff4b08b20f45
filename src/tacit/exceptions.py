"""Errors that say what was given, what is allowed, and what to pass instead."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

__all__ = [
    "BudgetError",
    "CertificateError",
    "ClusterError",
    "FileError",
    "InputError",
    "LedgerError",
    "MachineError",
    "MissingBound",
    "NotNumbers",
    "PrivateTestError",
    "ReleaseError",
    "SchemaError",
    "TacitError",
]

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound="TacitError")

FOR_CURATORS = "this message depends on private rows: for the curator only"

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


def shown(value: object) -> str:
    """What was given, for a message: never long, whatever it is.

    >>> shown([[[1]]] * 100)
    '[[[...]], [[...]], [[...]], [[...]], [[...]], [[...]], ...]'
    """
    try:
        return _SHORT.repr(value)
    except ValueError:
        return "a number of thousands of digits"


def of_public_facts(function: Callable[P, T]) -> Callable[P, T]:
    """Overflow in a function of public facts means that one of them is absurd: say so.

    Never for a function of private rows, which must not overflow because of one of them.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ArithmeticError as error:
            raise InputError(
                "the numbers of this plan are too large or too small to compute with; look at "
                f"rows, columns, steps, bounds, epsilon and delta ({error!s:.80})"
            ) from error

    return call


def of_rows(error: E) -> E:
    """Mark an error that depends on private rows: a note says so beneath it.

    That there is such an error tells something about a row, so only the curator may see it. Its
    text says what is wrong and, where it can, in which column; never a value, nor in which row.

    >>> of_rows(InputError("rows contain NaN")).depends_on_rows
    True
    """
    if not error.depends_on_rows:
        error.depends_on_rows = True
        error.add_note(FOR_CURATORS)
    return error


def carried(error: E, before: BaseException) -> E:
    """The error, marked as depending on rows if the one that it tells again was."""
    return of_rows(error) if getattr(before, "depends_on_rows", False) else error


def raise_alone(error: BaseException) -> NoReturn:
    """Raise an error without the one that led to it, which may quote a private value.

    ``raise ... from None`` only keeps that one from being printed; it would travel along.
    """
    try:
        raise error
    except BaseException:
        error.__context__ = None
        raise


def add_consequence(error: BaseException, words: str) -> None:
    """Say with an error what became of budget and files: in its notes, and on the command line."""
    error.add_note(words)
    error.consequences = [*consequences(error), words]  # type: ignore[attr-defined]


def consequences(error: BaseException) -> list[str]:
    """What was said with `add_consequence`; other notes may quote private values."""
    return list(getattr(error, "consequences", ()))


class TacitError(Exception):
    """Every error that Tacit raises on purpose.

    Attributes
    ----------
    depends_on_rows : bool
        Whether it was raised because of private rows (`of_rows`), and not of public facts alone.
    """

    depends_on_rows: bool = False


class InputError(TacitError, ValueError):
    """Data or a parameter that cannot be used as given."""


class NotNumbers(InputError, TypeError):
    """Values that are neither numbers nor text; also a ``TypeError``, as scikit-learn has it."""


class MissingBound(InputError):
    """A public bound is needed and was not given.

    Reading it from the private rows would leak it, so the message names the
    parameter to pass and, where there is one, the private alternative.

    Parameters
    ----------
    what : str
        What needs the bound.
    parameter : str
        What to pass.
    alternative : str, optional
        A private way to do without.
    """

    def __init__(self, what: str, parameter: str, alternative: str | None = None) -> None:
        self.parameter = parameter
        message = f"{what} needs a public bound: pass {parameter}"
        if alternative:
            message += f", or use {alternative}"
        super().__init__(message + ". It is never read from the private rows.")


class SchemaError(InputError):
    """A schema that is incomplete, or that does not match the table."""


class FileError(InputError):
    """A file that cannot be read or written, or is not what it claims to be."""


class BudgetError(TacitError):
    """A budget that does not allow what was asked of it.

    Parameters
    ----------
    message : str
        What does not fit.
    remaining : float, optional
        The ε that would.
    """

    def __init__(self, message: str, *, remaining: float | None = None) -> None:
        self.remaining = remaining
        super().__init__(message)


class LedgerError(TacitError):
    """A ledger that cannot be used, or whose entries are not as they were written."""


class MachineError(TacitError):
    """A computation that came out wrong on this machine, so that no promise would hold.

    Found by a self-test, or by a check of ``arithmetic="strict"``. Nothing of the step in which
    it is found is released.
    """


class ReleaseError(TacitError):
    """A release that nobody has paid for, or one that was paid for and not made: a bug."""


class ClusterError(TacitError):
    """A cluster that went away, or that lost rows and cannot read them again."""


class CertificateError(TacitError):
    """A certificate that is damaged, or whose claim does not hold."""


class PrivateTestError(TacitError):
    """The private test of a plan's conditions did not pass; nothing was trained.

    That it failed is all that may be known. The budget is spent all the same:
    ``certificate`` says on what.

    Parameters
    ----------
    message : str
        Which conditions were tested.
    certificate : Certificate, optional
        Of what was spent.
    """

    __test__ = False  # not a test case, whatever its name

    def __init__(self, message: str, *, certificate: Any = None) -> None:
        self.certificate = certificate
        super().__init__(message)
