"""Pictures of one colour in any format."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image


def image(width: int, height: int, form: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height), "teal").save(out, form, **options)
    return out.getvalue()
