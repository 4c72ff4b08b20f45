"""Images of any size and kind, prepared by the declared rule or refused by name."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tacit.exceptions import FileError, InputError
from tacit.features.pictures import Picture, decode, pixels


def encoded(array, kind="PNG", **options):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind, **options)
    return buffer.getvalue()


def test_an_image_of_the_right_size_is_only_rescaled():
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    seen = Picture.of((4, 6))(image)
    assert seen.shape == (1, 3, 4, 6) and seen.dtype == np.float32
    assert seen[0].transpose(1, 2, 0) == pytest.approx(image / 255)
    shifted = Picture.of((4, 6), mean=0.5, std=[0.1, 0.2, 0.4], last=True)(image)
    assert shifted[0] == pytest.approx((image / 255 - 0.5) / [0.1, 0.2, 0.4], abs=1e-5)


def test_crop_takes_the_middle_and_stretch_takes_all():
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 10:20] = 200
    assert Picture.of(10, resize="crop")(wide) == pytest.approx(200 / 255)
    stretched = Picture.of(10, resize="stretch")(wide)
    assert stretched.min() == 0 and stretched.mean() == pytest.approx(200 / 255 / 3, rel=0.05)
    # A line of pixels does not fill the memory on its way.
    line = np.full((1, 60_000, 3), 9, dtype=np.uint8)
    assert Picture.of(8)(line) == pytest.approx(9 / 255)


def test_grey_and_colour_meet_what_the_network_takes():
    grey = np.full((5, 5, 1), 100, dtype=np.uint8)
    assert Picture.of(5)(grey).shape == (1, 3, 5, 5)
    red = np.zeros((5, 5, 3), dtype=np.uint8)
    red[..., 0] = 255
    assert Picture.of(5, 1)(red) == pytest.approx(76 / 255)
    see_through = np.concatenate([red, np.zeros((5, 5, 1), np.uint8)], axis=2)
    assert (Picture.of(5)(see_through) == Picture.of(5)(red)).all()


def test_files_are_read_upright_and_by_their_colours():
    image = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    assert (decode(encoded(image), "x.png") == image).all()
    grey = image[..., 0]
    assert (decode(encoded(grey), "x.png") == grey[..., None]).all()
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held sideways
    jpeg = encoded(image, "JPEG", exif=turned)
    assert decode(jpeg, "x.jpg").shape == (9, 6, 3)
    see_through = np.dstack([image, np.full((6, 9), 50, np.uint8)])
    assert (decode(encoded(see_through), "x.png") == image).all()
    palette = io.BytesIO()
    Image.fromarray(image).quantize(4).save(palette, "GIF")
    assert decode(palette.getvalue(), "x.gif").shape == (6, 9, 3)


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_what_is_no_image_is_named(data):
    with pytest.raises(FileError, match=r"scans/seven\.png cannot be read as an image"):
        decode(data, "scans/seven.png")


def test_a_cut_image_and_a_deep_one_are_refused():
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    with pytest.raises(FileError, match=r"cut\.png cannot be read"):
        decode(encoded(image)[:900], "cut.png")
    deep = np.arange(100, dtype=np.uint16).reshape(10, 10)
    with pytest.raises(FileError, match="more than 8 bits"):
        decode(encoded(deep), "deep.png")


def test_a_picture_too_large_for_memory_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    image = np.zeros((12, 12, 3), dtype=np.uint8)
    with pytest.raises(FileError, match=r"big\.png cannot be read as an image \(Decompression"):
        decode(encoded(image), "big.png")


@pytest.mark.parametrize("shape", [(3,), (4, 5, 2), (0, 4, 3), (1, 2, 3, 4)])
def test_arrays_that_are_no_images_are_refused(shape):
    with pytest.raises(InputError, match="neither"):
        pixels(np.zeros(shape, dtype=np.uint8))
