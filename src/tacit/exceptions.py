"""Errors that say what was given, what is allowed, and what to pass instead."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetError",
    "CertificateError",
    "FileError",
    "InputError",
    "LedgerError",
    "MachineError",
    "MissingBound",
    "SchemaError",
    "TacitError",
    "TestFailed",
]


class TacitError(Exception):
    """Every error that Tacit raises on purpose."""


class InputError(TacitError, ValueError):
    """Data or a parameter that cannot be used as given."""


class MissingBound(InputError):
    """A public bound is needed and was not given.

    Reading it from the private rows would leak it, so the message names the
    parameter to pass and, where there is one, the private alternative.
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
    """A budget that does not allow what was asked of it."""

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


class CertificateError(TacitError):
    """A certificate that is damaged, or whose claim does not hold."""


class TestFailed(TacitError):
    """The private test of a plan's conditions did not pass; nothing was trained.

    That it failed is all that may be known. The budget is spent all the same:
    ``certificate`` says on what.
    """

    __test__ = False  # not a test case, whatever its name

    def __init__(self, message: str, *, certificate: Any = None) -> None:
        self.certificate = certificate
        super().__init__(message)
