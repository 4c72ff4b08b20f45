"""Text to numbers of tokens, as BERT's uncased and cased models split it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from tacit.exceptions import FileError

LONGEST_WORD = 100  # characters of a word; longer ones are unknown
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class WordPiece:
    """Greedy longest pieces of words, by a vocabulary.

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

    def __post_init__(self) -> None:
        lost = {"[CLS]", "[SEP]", "[UNK]"} - self.vocabulary.keys()
        if lost:
            raise FileError(f"the vocabulary lacks {', '.join(sorted(lost))}")

    def __call__(self, text: str, limit: int = 512) -> list[int]:
        """Numbers of the tokens, at most ``limit`` with the marks at both ends."""
        found: list[int] = []
        for word in self._words(text):
            found += self._pieces(word)
            if len(found) >= limit - 2:
                break
        return [self.vocabulary["[CLS]"], *found[: limit - 2], self.vocabulary["[SEP]"]]

    def _words(self, text: str) -> Iterator[str]:
        text = "".join(map(_clean, text))
        if not self.accents:
            parts = unicodedata.normalize("NFD", text)
            text = "".join(c for c in parts if unicodedata.category(c) != "Mn")
        if self.lower:
            text = text.lower()
        for word in text.split():
            start = 0
            for i, c in enumerate(word):
                if _is_mark(c):
                    if i > start:
                        yield word[start:i]
                    yield c
                    start = i + 1
            if start < len(word):
                yield word[start:]

    def _pieces(self, word: str) -> list[int]:
        unknown = [self.vocabulary["[UNK]"]]
        if len(word) > LONGEST_WORD:
            return unknown
        found, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            for stop in range(len(word), start, -1):
                if (piece := self.vocabulary.get(mark + word[start:stop])) is not None:
                    break
            else:
                return unknown
            found.append(piece)
            start = stop
        return found


def _clean(c: str) -> str:
    """A character as it is kept: controls vanish, blanks are spaces, ideographs stand alone."""
    if c.isascii() and c.isprintable():
        return c
    if c in "\t\n\r":
        return " "
    if c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if c.isspace():
        return " "
    if any(low <= ord(c) <= high for low, high in IDEOGRAPHS):
        return f" {c} "
    return c


def _is_mark(c: str) -> bool:
    """Whether a character is a token of its own."""
    if c.isascii():
        return not c.isalnum() and c.isprintable()
    return unicodedata.category(c).startswith("P")
