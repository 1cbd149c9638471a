"""An encoder process whose model cannot be loaded because its engine is missing."""

from __future__ import annotations

import sys
from pathlib import Path

from shared.adapters.meaning import process


def _load() -> process.VectorModel:
    raise ImportError("the compiled engine was not found")


if __name__ == "__main__":
    process.serve(Path(sys.argv[1]), _load)
