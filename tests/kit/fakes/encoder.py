"""A fake encoder: it knows a few words of some languages, and ends or hangs at certain texts.

`python -m tests.kit.fakes.encoder SOCKET` answers like the process of the real encoder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from shared.adapters.meaning import process
from shared.adapters.meaning.client import LocalEncoder
from shared.adapters.meaning.everyday import SENTENCES
from shared.core.memory.vectors import Encoded, find_middle, pack_vector
from shared.core.values.errors import EncoderEnded, ModelUnavailable
from shared.core.values.searching import words_of

NUMBERS = 128
ENDS, HANGS, CONNECTS, RAISES = "ends-the-process", "hangs-forever", "connects-to:", "raises-an-error"
SAME = (
    ("bicycle", "bike", "fahrrad", "велосипед"),
    ("cellar", "basement", "keller", "подвал"),
    ("parrot", "papagei", "попугай"),
    ("sister", "schwester", "сестра"),
    ("where", "wo", "где"),
)
"""Groups of words with the same meaning."""


class KnownWords:
    """A fake model whose vector of a text is the sum of one direction per meaning."""

    def __init__(self, name: str = "known-words") -> None:
        self.name = name

    def embed(self, text: str, *, question: bool) -> Sequence[float]:
        _obey(text)
        vector = [0.01] * NUMBERS
        for word in words_of(text):
            meaning = next((same[0] for same in SAME if word in same), word)
            for at, byte in enumerate(hashlib.shake_128(meaning.encode()).digest(NUMBERS)):
                vector[at] += byte / 255 - 0.5
        return vector


class KnownWordsEncoder:
    """A fake encoder that runs `KnownWords` in the same process.

    `away` makes it unavailable; `ends_at` is a text at which it ends.
    """

    def __init__(self, name: str = "known-words") -> None:
        self._model = KnownWords(name)
        self._middle = find_middle([self._model.embed(text, question=False) for text in SENTENCES])
        self.name = name
        self.away = False
        self.ends_at = ""
        self.asked: list[str] = []

    async def encode(
        self, texts: Sequence[str], *, question: bool = False, session: int | None = None
    ) -> Encoded:
        if self.away:
            raise ModelUnavailable("the encoder is away")
        self.asked.extend(texts)
        if self.ends_at and any(self.ends_at in text for text in texts):
            raise EncoderEnded("the encoder ended at the text")
        vectors = (pack_vector(self._model.embed(text, question=question), self._middle) for text in texts)
        return Encoded(encoder=self.name, vectors=tuple(vectors))

    async def close(self) -> None:
        """Do nothing, since this encoder holds nothing open."""


def _obey(text: str) -> None:
    if ENDS in text:
        os._exit(66)
    if HANGS in text:
        time.sleep(60)
    if RAISES in text:
        raise RuntimeError("the model has no such word")
    if CONNECTS in text:
        port = int(text.split(CONNECTS)[1].split()[0])
        socket.create_connection(("127.0.0.1", port), timeout=2).close()


@asynccontextmanager
async def running_encoder(
    path: Path, module: str = "tests.kit.fakes.encoder", *, python: str = sys.executable
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an encoder process at this socket, waiting until it has loaded its model; end it on leaving."""
    started = await asyncio.create_subprocess_exec(
        python, "-m", module, str(path),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await LocalEncoder(path, passages_seconds=10).encode(("ready",))
                    break
                except EncoderEnded:
                    break
                except ModelUnavailable as error:
                    if "cannot be loaded" in str(error):
                        break
                    await asyncio.sleep(0.05)
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


if __name__ == "__main__":
    process.TEXT_SECONDS = 1
    process.serve(Path(sys.argv[1]), KnownWords)
