"""Sentence encoders of the BERT family, from a folder of safetensors, on NumPy.

One text at a time and without padding, so that what a text becomes depends on
nothing but the text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.exceptions import FileError, InputError
from tacit.features.folders import most_tokens, normalizes, pooling_of, read_json
from tacit.features.tokens import WordPiece
from tacit.files import read_text

KNOWN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


@dataclass(frozen=True, eq=False)
class Bert:
    """A transformer encoder whose tokens are pooled into one vector.

    Attributes
    ----------
    split : WordPiece
    weights : dict of str to ndarray
        By the names of the published models, in float32.
    heads, layers, tokens : int
        Attention heads, layers, and the most tokens of a text that are read.
    epsilon : float
        Of the layer norms.
    pooling : {"mean", "cls"}
    normalize : bool
        Whether the vector is scaled to norm 1.
    """

    split: WordPiece
    weights: Mapping[str, np.ndarray]
    heads: int
    layers: int
    tokens: int
    epsilon: float = 1e-12
    pooling: str = "mean"
    normalize: bool = True

    def __call__(self, text: str) -> np.ndarray:
        """The vector of one text, (1, width)."""
        w = self.weights
        numbers = self.split(text, self.tokens)
        x = w["embeddings.word_embeddings.weight"][numbers]
        x = x + w["embeddings.position_embeddings.weight"][: len(numbers)]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings")
        for i in range(self.layers):
            x = self._layer(x, f"encoder.layer.{i}")
        vector = x.mean(axis=0) if self.pooling == "mean" else x[0]
        if self.normalize:
            vector = vector / np.maximum(np.sqrt(vector @ vector), np.float32(1e-12))
        return vector[None]

    def _layer(self, x: np.ndarray, at: str) -> np.ndarray:
        """Attention among the tokens, then a hidden layer for each."""
        parts = (self._linear(x, f"{at}.attention.self.{k}") for k in ("query", "key", "value"))
        q, k, v = (p.reshape(len(x), self.heads, -1).transpose(1, 0, 2) for p in parts)
        scores = (q @ k.transpose(0, 2, 1)) / np.float32(math.sqrt(q.shape[-1]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = np.ascontiguousarray((scores @ v).transpose(1, 0, 2)).reshape(len(x), -1)
        x = self._norm(self._linear(mixed, f"{at}.attention.output.dense") + x, at, "attention")
        hidden = _gelu(self._linear(x, f"{at}.intermediate.dense"))
        return self._norm(self._linear(hidden, f"{at}.output.dense") + x, at, "layer")

    def _linear(self, x: np.ndarray, at: str) -> np.ndarray:
        return x @ self.weights[f"{at}.weight"].T + self.weights[f"{at}.bias"]

    def _norm(self, x: np.ndarray, at: str, part: str = "") -> np.ndarray:
        at += {"": "", "attention": ".attention.output", "layer": ".output"}[part] + ".LayerNorm"
        x = x - x.mean(axis=-1, keepdims=True)
        variance = (x * x).mean(axis=-1, keepdims=True)
        x = x / np.sqrt(variance + np.float32(self.epsilon))
        return x * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"]


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return x * np.float32(0.5) * (1 + erf(x * np.float32(math.sqrt(0.5))))


def is_bert(folder: Path) -> bool:
    """Whether a folder holds the weights of a BERT model that is understood."""
    config = read_json(folder / "config.json", {})
    whole = all((folder / name).is_file() for name in ("model.safetensors", "vocab.txt"))
    return whole and all(config.get(key, value) == value for key, value in KNOWN.items())


def read_bert(folder: Path) -> tuple[Bert, dict[str, bytes]]:
    """The encoder in a folder of a published model, and the bytes it was made of.

    Needed are ``config.json``, ``model.safetensors`` and ``vocab.txt``; what sentence-transformers
    keep beside them says how tokens are pooled and how long a text may be.
    """
    from safetensors.numpy import load

    if not (folder / "model.safetensors").is_file():
        pickled = any((folder / name).exists() for name in ("pytorch_model.bin", "model.pt"))
        raise FileError(
            f"{folder} holds no model.safetensors"
            + ("; weights in a pickle could run code, and are not read" if pickled else "")
            + ": give the folder of a BERT model with config.json, model.safetensors and "
            "vocab.txt, or of any other with model.onnx and tokenizer.json"
        )
    config = read_json(folder / "config.json")
    for key, value in KNOWN.items():
        if config.get(key, value) != value:
            raise FileError(
                f"{folder}: {key} is {config[key]!r}; only {value!r} is understood without an ONNX "
                "file: export the network to model.onnx in the folder, with its tokenizer.json"
            )
    words = read_json(folder / "tokenizer_config.json", {})
    lower = bool(words.get("do_lower_case", True))
    accents = words.get("strip_accents")
    vocabulary = read_text(folder / "vocab.txt").split("\n")
    files = {"weights": _bytes(folder / "model.safetensors")}
    files["vocabulary"] = "\n".join(vocabulary).encode()
    try:
        tensors = load(files["weights"])
        prefix = "bert." if any(name.startswith("bert.") for name in tensors) else ""
        weights = {
            name.removeprefix(prefix): np.ascontiguousarray(value, dtype=np.float32)
            for name, value in tensors.items()
            if value.dtype.kind == "f"
        }
        positions = len(weights["embeddings.position_embeddings.weight"])
        pooling = pooling_of(folder)
        bert = Bert(
            WordPiece(
                {word: i for i, word in enumerate(vocabulary) if word},
                lower=lower,
                accents=not lower if accents is None else not accents,
            ),
            weights,
            heads=int(config["num_attention_heads"]),
            layers=int(config["num_hidden_layers"]),
            tokens=most_tokens(folder, {}, positions),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            pooling=pooling,
            normalize=normalizes(folder),
        )
        if len(bert.split.vocabulary) > len(weights["embeddings.word_embeddings.weight"]):
            raise ValueError("more words than embeddings")
        with np.errstate(all="ignore"):
            bert("a word")
    except InputError:
        raise
    except Exception as error:  # whatever strange files may cause
        raise FileError(f"{folder} is not a complete BERT model: {error!r}") from error
    return bert, files


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
