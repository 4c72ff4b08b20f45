from typing import Any

def levels() -> dict[str, int]: ...
def scores(
    level: int, rows: Any, index: Any, start: int, stop: int, weights: Any, out: Any, /
) -> None: ...
def sums(
    level: int,
    rows: Any,
    index: Any,
    start: int,
    stop: int,
    peaks: Any,
    multipliers: Any,
    onto: Any,
    /,
) -> None: ...
def step(level: int, loss: int, rows: Any, /, *more: Any) -> None: ...
def rounded(level: int, values: Any, /, *more: Any) -> bool: ...
