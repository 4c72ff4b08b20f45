"""A sentence encoder as a PyTorch module, to be trained further: needs ``tacit[torch]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.exceptions import InputError
from tacit.features.bert import Bert

EMPTY = -1  # where a text has no more tokens


def tokenize(bert: Bert, texts: Sequence[str], tokens: int) -> np.ndarray:
    """Texts as rows of token numbers, cut to ``tokens`` and filled up with -1."""
    if not 2 <= tokens <= bert.tokens:
        raise InputError(f"tokens={tokens!r} must lie between 2 and {bert.tokens}")
    rows = np.full((len(texts), tokens), EMPTY, dtype=np.int64)
    for row, text in zip(rows, texts, strict=True):
        numbers = bert.split(text, tokens)
        row[: len(numbers)] = numbers
    return rows


def bert_module(bert: Bert, *, outputs: int, first: int = 0) -> Any:
    """The encoder with a linear layer of zeros behind it: rows of `tokenize` to ``outputs`` scores.

    Parameters keep their published names, behind ``body.``; those of the last layer are
    ``head.weight`` and ``head.bias``. The module is in evaluation mode: there is no dropout.

    With ``first`` it is called with ``module.below(tokens)`` as well, what the layers before that
    one make of the tokens: where those are not trained, they need to run once only.
    """
    if not 0 <= first < bert.layers:
        raise InputError(f"first={first!r} must be one of the {bert.layers} layers, from 0")
    try:
        import torch
    except ImportError:
        raise InputError('this needs PyTorch: pip install "tacit[torch]"') from None
    nn, call = torch.nn, torch.nn.functional
    weights = {name: torch.from_numpy(np.array(value)) for name, value in bert.weights.items()}
    width = weights["embeddings.word_embeddings.weight"].shape[1]

    def put(at: Any, name: str, value: Any) -> None:
        """A parameter under its published name, in modules made as needed."""
        *parts, last = name.split(".")
        for part in parts:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        at.register_parameter(last, nn.Parameter(value))

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Module()
            for name, value in weights.items():
                put(self.body, name, value)
            self.head = nn.Linear(width, outputs)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def layers(self, x: Any, tokens: Any, chosen: slice) -> Any:
            # Scores of tokens that are not there are as low as can be.
            hidden = torch.where(tokens >= 0, 0.0, -1e9)[:, None, None, :]
            children = sorted(self.body.encoder.layer.named_children(), key=number)
            for _, layer in children[chosen]:
                x = attend(x, hidden, layer)
            return x

        def below(self, tokens: Any) -> Any:
            words = self.body.embeddings
            x = words.word_embeddings.weight[tokens.clamp_min(0)]
            x = x + words.position_embeddings.weight[: tokens.shape[1]]
            x = norm(x + words.token_type_embeddings.weight[0], words.LayerNorm)
            return self.layers(x, tokens, slice(first))

        def forward(self, tokens: Any, x: Any = None) -> Any:
            if (x is None) != (first == 0):
                raise InputError("give what is below as well, or leave out first=")
            x = self.below(tokens) if x is None else x
            x = self.layers(x, tokens, slice(first, None))
            if bert.pooling == "mean":
                mask = (tokens >= 0)[..., None].to(x.dtype)
                x = (x * mask).sum(dim=1) / mask.sum(dim=1)
            else:
                x = x[:, 0]
            if bert.normalize:
                x = x / x.square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
            return self.head(x)

    def number(child: tuple[str, Any]) -> int:
        return int(child[0])

    def linear(x: Any, part: Any) -> Any:
        return call.linear(x, part.weight, part.bias)

    def norm(x: Any, part: Any) -> Any:
        return call.layer_norm(x, x.shape[-1:], part.weight, part.bias, bert.epsilon)

    def attend(x: Any, hidden: Any, layer: Any) -> Any:
        mine = layer.attention.self
        rows, tokens, _ = x.shape
        q, k, v = (
            linear(x, part).reshape(rows, tokens, bert.heads, -1).transpose(1, 2)
            for part in (mine.query, mine.key, mine.value)
        )
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + hidden
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, tokens, -1)
        after = layer.attention.output
        x = norm(linear(mixed, after.dense) + x, after.LayerNorm)
        more = linear(call.gelu(linear(x, layer.intermediate.dense)), layer.output.dense)
        return norm(more + x, layer.output.LayerNorm)

    return Classifier().eval()
