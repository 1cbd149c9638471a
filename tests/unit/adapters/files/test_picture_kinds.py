"""Pictures of phones and scanners become pictures that models take, upright and without damage."""

from __future__ import annotations

import io

import pytest
from PIL import Image, PngImagePlugin

from shared.adapters.files.sandbox_worker import mend_png, picture
from shared.core.values.files import is_picture
from tests.kit.sample_files import tiny_heic


def drawn(form: str, **options: object) -> bytes:
    """Blue beside red."""
    image = Image.new("RGB", (64, 48), "red")
    image.paste("blue", (0, 0, 32, 48))
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def colours(content: bytes, *places: tuple[int, int]) -> list[str]:
    image = Image.open(io.BytesIO(content)).convert("RGB")
    seen = (image.getpixel(place) for place in places)
    return ["blue" if one[2] > one[0] else "red" for one in seen if isinstance(one, tuple)]


@pytest.mark.parametrize(
    "content",
    [tiny_heic(), drawn("AVIF"), drawn("TIFF"), drawn("TIFF", compression="tiff_lzw"), drawn("BMP")],
    ids=["heic", "avif", "tiff", "packed tiff", "bmp"],
)
def test_picture_of_a_rarer_kind_becomes_a_common_one(content: bytes) -> None:
    assert is_picture(content)
    head, body = picture(content)
    assert (head["mime"], head["width"], head["height"]) == ("image/jpeg", 64, 48)
    assert colours(body, (8, 24), (56, 24)) == ["blue", "red"]


@pytest.mark.parametrize("form", ["JPEG", "TIFF", "PNG"])
def test_picture_is_turned_upright(form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    head, body = picture(drawn(form, exif=exif))
    assert (head["width"], head["height"]) == (48, 64)
    assert colours(body, (24, 8), (24, 56)) == ["blue", "red"]


def test_wrong_checksum_of_a_comment_is_passed_over() -> None:
    words = PngImagePlugin.PngInfo()
    words.add_text("Comment", "hello")
    content = bytearray(drawn("PNG", pnginfo=words))
    content[content.index(b"hello") + 5] ^= 0xFF
    assert picture(bytes(content))[0]["width"] == 64


def test_wrong_checksum_of_the_picture_itself_is_not_mended() -> None:
    content = bytearray(drawn("PNG"))
    content[content.index(b"IDAT") + 8] ^= 0xFF
    assert mend_png(bytes(content)) == bytes(content)


@pytest.mark.parametrize("content", [b"BM is short for bitmap, a format of old.", b"II* and III*", b"MM"])
def test_text_that_begins_like_a_picture_is_none(content: bytes) -> None:
    assert not is_picture(content)
