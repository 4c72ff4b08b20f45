"""Losses by name."""

from __future__ import annotations

from dataclasses import fields

from tacit.exceptions import InputError
from tacit.losses.base import Loss
from tacit.losses.margin import Hinge, HuberHinge, Logistic
from tacit.losses.multinomial import Softmax
from tacit.losses.nonconvex import Savage, Tangent, Tempered
from tacit.losses.regression import Absolute, Huber, Squared

CONVEX = (Logistic, Softmax, Hinge, HuberHinge, Squared, Absolute, Huber)
LOSSES: dict[str, type[Loss]] = {kind.name: kind for kind in (*CONVEX, Savage, Tangent, Tempered)}


def get_loss(loss: str | Loss, **params: float) -> Loss:
    """The loss of that name with these parameters, or a loss as it is.

    Parameters
    ----------
    loss : str or Loss
        A name out of `LOSSES`, or a loss.
    **params
        Parameters of the loss of that name.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> get_loss("huber", threshold=2.0)
    Huber(threshold=2.0)
    """
    if isinstance(loss, Loss):
        if params:
            raise InputError(f"{loss!r} is complete; to set {', '.join(params)}, pass its name.")
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise InputError(f"Unknown loss {loss!r}; use one of {', '.join(map(repr, LOSSES))}.")
    allowed = [field.name for field in fields(LOSSES[loss])]
    if not set(params) <= set(allowed):
        takes = ", ".join(allowed) or "no parameters"
        raise InputError(f"The loss {loss!r} takes {takes}; got {', '.join(params)}.")
    return LOSSES[loss](**params)
