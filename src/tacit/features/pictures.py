"""Images: from a file to pixels, and from pixels of any size to what a network takes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError

RESIZE = ("crop", "stretch")


def load_pillow() -> Any:
    """The package, or an error that says what needs it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise InputError('images need Pillow: pip install "tacit[features]"') from None
    return PIL


@dataclass(frozen=True)
class Picture:
    """How an image becomes the tensor that a network takes.

    Parameters
    ----------
    size : (int, int)
        Height and width that the network takes.
    channels : {3, 1}
        Colours; grey images are repeated, coloured ones turned grey.
    resize : {"crop", "stretch"}
        Of an image of another shape, take the largest centred part of the right
        proportions, or all of it, out of proportion.
    mean, std : tuple of float
        Subtracted from and divided into pixels between 0 and 1, one for each channel.
    last : bool
        Whether channels are the last axis rather than the second.
    """

    size: tuple[int, int]
    channels: int = 3
    resize: str = "crop"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    last: bool = False

    @classmethod
    def of(
        cls,
        size: Any,
        channels: int = 3,
        *,
        resize: Any = "crop",
        mean: Any = 0.0,
        std: Any = 1.0,
        last: bool = False,
    ) -> Picture:
        """Settings as people write them: one number for both sides, or for all channels."""
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
        if len(sides) != 2 or not all(type(side) is int and 1 <= side <= 4096 for side in sides):
            raise InputError(f"size={size!r} must be an integer of pixels, or height and width")
        if resize not in RESIZE:
            raise InputError(f"resize={resize!r} must be {' or '.join(RESIZE)}")
        shift, scale = _each("mean", mean, channels), _each("std", std, channels)
        if not all(value > 0 for value in scale):
            raise InputError(f"std={std!r} must be positive")
        return cls((sides[0], sides[1]), channels, resize, shift, scale, last)

    def to_dict(self) -> dict[str, Any]:
        facts = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {**facts, "filter": "bicubic", "pixels": "0 to 1"}

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """One image, (height, width, channels) of uint8, as a batch of one."""
        pil = load_pillow()
        grey = image.shape[2] == 1
        seen = pil.Image.fromarray(image[..., 0] if grey else image[..., :3])
        if grey != (self.channels == 1):
            seen = seen.convert("L" if self.channels == 1 else "RGB")
        height, width = self.size
        if seen.size != (width, height):
            bicubic = pil.Image.Resampling.BICUBIC
            seen = seen.resize((width, height), bicubic, box=self._box(*seen.size))
        cells = np.asarray(seen, dtype=np.float32).reshape(height, width, self.channels)
        mean, std = (np.array(each, dtype=np.float32) for each in (self.mean, self.std))
        cells = (cells / np.float32(255) - mean) / std
        return np.ascontiguousarray(cells if self.last else cells.transpose(2, 0, 1))[None]

    def _box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of an image that is looked at."""
        if self.resize == "stretch":
            return 0.0, 0.0, float(width), float(height)
        scale = min(width / self.size[1], height / self.size[0])
        across, down = min(width, scale * self.size[1]), min(height, scale * self.size[0])
        left, top = (width - across) / 2, (height - down) / 2
        return left, top, min(width, left + across), min(height, top + down)


def decode(data: bytes, name: str) -> np.ndarray:
    """The pixels of an image file, upright: (height, width, 3 or 1) of uint8."""
    import warnings

    pil = load_pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a picture too large for memory is one
            with pil.Image.open(BytesIO(data)) as image:
                mode = image.mode
                if mode.startswith("I") or mode == "F":
                    raise FileError(
                        f"{name} has more than 8 bits a pixel ({mode}); choose the range that "
                        "matters and save it with 8"
                    )
                upright = pil.ImageOps.exif_transpose(image)
                return pixels(np.asarray(upright.convert("L" if mode in ("1", "L") else "RGB")))
    except FileError:
        raise
    except Exception as error:  # decoders fail in many ways
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, pil.UnidentifiedImageError):
            reason = "no format that Pillow knows"
        raise FileError(f"{name} cannot be read as an image ({reason:.200})") from None


def pixels(image: np.ndarray) -> np.ndarray:
    """One image of uint8 with its channels as the last axis."""
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4) or 0 in image.shape:
        raise InputError(
            f"an image of shape {image.shape} is neither (height, width) nor (height, width, "
            "channels) with 1, 3 or 4 channels"
        )
    return np.ascontiguousarray(image, dtype=np.uint8)


def _each(name: str, value: Any, channels: int) -> tuple[float, ...]:
    """One finite number for every channel."""
    given = list(value) if isinstance(value, list | tuple) else [value] * channels
    try:
        found = tuple(float(number) for number in given)
    except (TypeError, ValueError):
        found = ()
    if len(found) != channels or not all(math.isfinite(number) for number in found):
        raise InputError(f"{name}={value!r} must be a number, or one for each of {channels}")
    return found
