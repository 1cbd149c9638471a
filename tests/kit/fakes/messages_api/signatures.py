"""Signs each thinking block for the exact conversation before it, and refuses the block after an edit.

Nothing is stored: the signature carries the model, a hash of the tools, system prompt and messages before the
block, and a seal over these and the thinking itself. Removing a thinking block in front of another one counts
as an edit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from tests.kit.fakes.messages_api.prefix import Piece, chain, pieces_of
from tests.kit.fakes.messages_api.refusals import Refusal
from tests.kit.fakes.messages_api.shapes import Json

BOUND_ELSEWHERE = "Invalid signature in thinking block. The block is bound to a different conversation"
_START = "start"


class Signatures:
    def __init__(self, seed: int) -> None:
        self._key = f"thinking seal {seed}".encode()

    def sign(self, body: Json, thinking: str) -> str:
        """Return the signature of a thinking block that opens the answer to this request."""
        hashes = chain(pieces_of(body), root=_START)
        return self._sealed(str(body["model"]), hashes[-1] if hashes else _START, thinking)

    def check(self, body: Json) -> None:
        """Raise Refusal if a thinking block was altered or moved.

        Blocks that another model has signed are accepted anywhere.
        """
        pieces = pieces_of(body)
        hashes = chain(pieces, root=_START)
        for index, piece in enumerate(pieces):
            if piece.block.get("type") == "thinking":
                before = hashes[index - 1] if index else _START
                self._check_one(piece, before, str(body["model"]))

    def _check_one(self, piece: Piece, before: str, model: str) -> None:
        thinking, signature = str(piece.block["thinking"]), str(piece.block["signature"])
        issued_by, bound_to = _opened(signature)
        if not hmac.compare_digest(self._sealed(issued_by, bound_to, thinking), signature):
            raise Refusal(f"{piece.at}: Invalid `signature` in `thinking` block")
        if issued_by == model and bound_to != before:
            raise Refusal(f"{piece.at}: {BOUND_ELSEWHERE}")

    def _sealed(self, model: str, before: str, thinking: str) -> str:
        claim = f"{model}\n{before}"
        seal = hmac.new(self._key, f"{claim}\n{thinking}".encode(), hashlib.sha256).hexdigest()
        return base64.b64encode(f"{claim}\n{seal}".encode()).decode()


def _opened(signature: str) -> tuple[str, str]:
    try:
        model, before, _seal = base64.b64decode(signature.encode(), validate=True).decode().split("\n")
    except ValueError:
        return "", ""
    return model, before
