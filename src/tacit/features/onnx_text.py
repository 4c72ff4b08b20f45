"""Sentence encoders of any architecture: a folder with an ONNX network and its tokenizer.

One text at a time and without padding, as in `tacit.features.bert`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError
from tacit.features.extractors import Extractor, hash_bytes, read_network
from tacit.features.folders import most_tokens, normalizes, pooling_of, read_json
from tacit.features.onnx_files import open_session, output_of
from tacit.features.tokens import Tokens, load_tokenizers

PLACES = ("model.onnx", "onnx/model.onnx")
NAMES = {"input_ids", "attention_mask", "token_type_ids"}


def onnx_in(folder: Path) -> Path | None:
    """The network of a folder, if it has one."""
    return next((folder / place for place in PLACES if (folder / place).is_file()), None)


def open_onnx_folder(folder: Path, *, output: str | None = None) -> Extractor:
    """The encoder in a folder: ``model.onnx`` and ``tokenizer.json``.

    What sentence-transformers keep beside them says how tokens are pooled, whether vectors are
    scaled to norm 1, and how long a text may be.
    """
    path, words = onnx_in(folder), folder / "tokenizer.json"
    assert path is not None
    if not words.is_file():
        raise FileError(f"{folder} holds a network and no tokenizer.json, which says what it reads")
    data, spelled = read_network(path), read_network(words)
    session, versions = open_session(path, data)
    inputs = session.get_inputs()
    names = {each.name for each in inputs}
    if (
        "input_ids" not in names
        or names - NAMES
        or {each.type for each in inputs} != {"tensor(int64)"}
    ):
        takes = ", ".join(f"{each.name}: {each.type}" for each in inputs) or "nothing"
        raise InputError(
            f"{path} takes {takes}; an encoder takes input_ids, and attention_mask and "
            "token_type_ids if it likes, of int64"
        )
    wanted = output_of(path, session, output)
    pooling, normalize = pooling_of(folder), normalizes(folder)
    limit = most_tokens(folder, read_json(folder / "config.json", {}))
    tokens = Tokens(str(words), spelled, limit)

    def answer(text: str) -> np.ndarray:
        numbers = np.array([tokens(text)], dtype=np.int64)
        given = {"input_ids": numbers, "attention_mask": np.ones_like(numbers)}
        given["token_type_ids"] = np.zeros_like(numbers)
        (found,) = session.run([wanted], {name: given[name] for name in names})
        if found.ndim == 3:  # a vector for every token
            found = found.mean(axis=1) if pooling == "mean" else found[:, 0]
        if normalize:
            found = found / np.maximum(np.sqrt((found * found).sum()), np.float32(1e-12))
        return np.asarray(found)

    settings: dict[str, Any] = {
        "architecture": "onnx",
        "tokenizer": hash_bytes(spelled),
        "tokens": limit,
        "output": wanted,
        "pooling": pooling,
        "normalize": normalize,
    }
    return Extractor(
        folder.resolve().name,
        "text",
        hash_bytes(data),
        settings,
        answer,
        given={} if output is None else {"output": output},
        versions={**versions, "tokenizers": load_tokenizers().__version__},
        spec=str(folder),
    )
