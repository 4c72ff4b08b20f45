"""How noise is drawn, and private statistics by themselves."""

from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.selection import exponential_choice
from tacit.mechanisms.statistics import (
    private_bounds,
    private_mean,
    private_quantile,
    private_radius,
    private_scale,
    private_second_moment,
)

__all__ = [
    "Key",
    "exponential_choice",
    "private_bounds",
    "private_mean",
    "private_quantile",
    "private_radius",
    "private_scale",
    "private_second_moment",
]
