"""What the folder of a published sentence encoder says beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.exceptions import FileError
from tacit.files import read_text

MOST_TOKENS = 512  # where a folder does not say


def read_json(path: Path, default: Any = None) -> Any:
    """What a file holds; ``default`` if there is none."""
    if default is not None and not path.exists():
        return default
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} is not JSON") from None


def pooling_of(folder: Path) -> str:
    """How vectors of tokens become one: by their mean, or the first of them."""
    settings = read_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    chosen = [key for key, value in settings.items() if key.startswith("pooling_mode") and value]
    ways = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) != 1 or chosen[0] not in ways:
        raise FileError(f"{folder}: only pooling by the mean or the first token is understood")
    return ways[chosen[0]]


def normalizes(folder: Path) -> bool:
    """Whether vectors are scaled to norm 1."""
    return any("Normalize" in str(module) for module in read_json(folder / "modules.json", []))


def most_tokens(folder: Path, config: Any, positions: int | None = None) -> int:
    """How many tokens of a text are read: as trained, and no more than there are positions."""
    known = config.get("max_position_embeddings", MOST_TOKENS) if positions is None else positions
    # RoBERTa counts positions from behind the number of its padding.
    first = config.get("pad_token_id", 0) + 1 if "roberta" in config.get("model_type", "") else 0
    asked = read_json(folder / "sentence_bert_config.json", {}).get("max_seq_length", known)
    try:
        return max(2, min(int(asked), int(known) - int(first)))
    except (TypeError, ValueError):
        raise FileError(f"{folder} does not say how many tokens it reads") from None
