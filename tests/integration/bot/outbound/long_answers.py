"""An answer of several messages, and storage that is away."""

from __future__ import annotations

from shared.core.values.errors import StorageUnavailable

WORDS = "Every word of this answer is worth waiting for, and **some** are `bold`. "
LONG = "\n\n".join(f"Paragraph {number}: {WORDS * 8}" for number in range(12))


async def away(*_: object, **__: object) -> None:
    raise StorageUnavailable("for a moment")
