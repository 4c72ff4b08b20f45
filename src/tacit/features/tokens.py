"""Texts as numbers of tokens, by Hugging Face's ``tokenizers``: what encoders were trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.exceptions import FileError, InputError

LONGEST_WORD = 100  # characters of a word of BERT's; longer ones are unknown
ENDS = ("[CLS]", "[SEP]", "[UNK]")


def load_tokenizers() -> Any:
    """The library, or the line that installs it."""
    try:
        import tokenizers
    except ImportError:
        raise InputError(
            'sentence encoders need tokenizers: pip install "tacit[features]", or pip install '
            "tokenizers"
        ) from None
    return tokenizers


def _readable(text: str) -> str:
    """Without halves of characters, which no encoding has."""
    return text.encode("utf-8", "ignore").decode()


@dataclass(frozen=True, eq=False)
class WordPiece:
    """Greedy longest pieces of words by a vocabulary, as BERT's cased and uncased models have them.

    Examples
    --------
    >>> words = ["[CLS]", "[SEP]", "[UNK]", "play", "##ing", "!"]
    >>> split = WordPiece({word: i for i, word in enumerate(words)})
    >>> split("Playing chess!"), split("Playing chess!", limit=4)
    ([0, 3, 4, 2, 5, 1], [0, 3, 4, 1])
    """

    vocabulary: dict[str, int]
    lower: bool = True
    accents: bool = False  # whether accents are kept
    _tokenizer: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lost = set(ENDS) - self.vocabulary.keys()
        if lost:
            raise FileError(f"the vocabulary lacks {', '.join(sorted(lost))}")
        library = load_tokenizers()
        pieces = library.models.WordPiece(
            self.vocabulary, unk_token=ENDS[2], max_input_chars_per_word=LONGEST_WORD
        )
        made = library.Tokenizer(pieces)
        made.normalizer = library.normalizers.BertNormalizer(
            strip_accents=not self.accents, lowercase=self.lower
        )
        made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        object.__setattr__(self, "_tokenizer", made)

    def __call__(self, text: str, limit: int = 512) -> list[int]:
        """Numbers of the tokens, at most ``limit`` with the marks at both ends."""
        found = self._tokenizer.encode(_readable(text)).ids[: limit - 2]
        first, last = (self.vocabulary[mark] for mark in ENDS[:2])
        return [first, *found, last]


class Tokens:
    """What a ``tokenizer.json`` says; texts are cut to ``limit`` tokens, and not filled up."""

    def __init__(self, name: str, data: bytes, limit: int) -> None:
        try:
            self._tokenizer = load_tokenizers().Tokenizer.from_buffer(data)
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(limit)
        except InputError:
            raise
        except Exception as error:  # its own kinds have no other base
            raise FileError(f"{name} is damaged or no tokenizer: {error!s:.200}") from None

    def __call__(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(_readable(text)).ids
        return found
