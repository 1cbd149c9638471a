"""docs/cluster.md as it is written, with the addresses of one machine in the place of its examples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "cluster.md"
_EXAMPLES = re.compile(
    r"10\.0\.0\.\d+|[a-z0-9]*\.?example(\.org)?|/etc/\w+|/var/lib/\w+|PASSWORD|what-openssl"
)


def written(kind: str, about: str = "") -> str:
    """The block of a kind (`ini`, `sh`; none for a plain one) that has `about` in it."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if about in block]
    return str(found)


def placed(block: str, places: Mapping[str, str]) -> str:
    """The longest example first; none may be left."""
    for example in sorted(places, key=len, reverse=True):
        block = block.replace(example, places[example])
    left = "\n".join(line for line in block.splitlines() if not line.startswith(("#", ";")))
    forgotten = _EXAMPLES.search(_without(left, places))
    assert forgotten is None, f"{forgotten.group()} is an example in {DOCUMENT.name} without a place here"
    return block


def _without(text: str, places: Mapping[str, str]) -> str:
    for place in sorted(places.values(), key=len, reverse=True):
        text = text.replace(place, "") if place else text
    return text
