"""How a model counts each kind of text in a request, learned from what the provider reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["steady", "notes", "summary", "talk", "passing"]
Estimates = Mapping[Kind, int]
"""Estimated tokens by kind of text: system and tools, notes, summary with pins, messages, and text of one
turn only.
"""

KINDS: tuple[Kind, ...] = ("steady", "notes", "summary", "talk", "passing")
"""Kinds of text in the order in which a scale lists their ratios."""
LEAST, MOST = 0.3, 4.0
"""Least and largest ratio of counted to estimated tokens; no tokenizer differs more."""

_OWN_SPREAD: Mapping[Kind, float] = {
    "steady": 0.3, "notes": 0.4, "summary": 0.4, "talk": 0.35, "passing": 0.2,
}  # fmt: skip
"""Standard deviation of each ratio before the first count; all kinds but `steady` share that of messages."""
_DRIFT: Mapping[Kind, float] = {
    "steady": 0.0, "notes": 0.0, "summary": 0.0, "talk": 0.01, "passing": 0.005,
}  # fmt: skip
"""Standard deviation that a ratio gains per turn while its text stays the same; messages are always new."""
_REPLACED_DRIFT: Mapping[Kind, float] = {
    "steady": 0.1, "notes": 0.1, "summary": 0.1, "talk": 0.0, "passing": 0.0,
}  # fmt: skip
"""Standard deviation that a ratio gains when all text of its kind is replaced; a replaced part adds less."""
ROUNDING = 4.0
"""Tokens by which any count may differ from the sum computed by ratios."""
HISTORY_NOISE, MESSAGE_NOISE, PASSING_NOISE = 0.05, 0.1, 0.05
"""Relative deviation from the ratio of a short history, of a single message, and of text of one turn only."""
TAIL_NOISE = 0.005
"""Relative deviation of kept messages from the sum of their former counts."""
KEPT_DOUBT = 0.5
"""Share of its estimate by which the count of kept messages may differ; above it, other messages are live."""
_ASSUMED_SHARE: Mapping[Kind, float] = {
    "steady": 1.0, "notes": 0.8, "summary": 0.8, "talk": 1.0, "passing": 0.92,
}  # fmt: skip
"""Assumed ratio of each kind relative to that of messages, before the first count.

Names and numbers take many estimated tokens.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScale:
    """Estimated ratios of a model's tokens to our estimates by kind of text, in the order of `KINDS`.

    `spread` has the covariances of their errors, by which a new count corrects them.
    """

    model: str
    ratios: tuple[float, ...]
    spread: tuple[float, ...]
    """Covariances of the ratios' errors, row by row, in the order of `KINDS`."""
    epoch: int = -1
    """Epoch of the view that was last counted; -1 before the first count."""
    last: tuple[int, ...] = ()
    """Token count of the last call, then its estimates by kind; empty before the first call."""

    def ratio(self, kind: Kind) -> float:
        """Return the counted tokens per estimated token for a kind of text, within `LEAST` and `MOST`."""
        return min(MOST, max(LEAST, self.ratios[KINDS.index(kind)]))

    def size(self, estimates: Estimates) -> int:
        """Return the tokens that the model is expected to count for a request with these estimates."""
        return round(sum(self.ratio(kind) * tokens for kind, tokens in estimates.items()))

    def drift(self, whole: Estimates, *, moved: bool) -> TokenScale:
        """Return a copy with the uncertainty that a request's changed text adds; ratios stay.

        `whole` are the estimates of the request; `moved` True says that its summary is new.
        """
        spread, former = list(self.spread), self.last[1:] or (0,) * len(KINDS)
        for place, kind in enumerate(KINDS):
            new = 1.0 if moved and kind == "summary" else _share_changed(former[place], whole[kind])
            drift = _DRIFT[kind] ** 2 + (new * _REPLACED_DRIFT[kind]) ** 2
            spread[place * len(KINDS) + place] += drift
        return _with_values(self, spread=spread)

    def observe(self, estimates: Estimates, counted: float, *, noise: float) -> TokenScale:
        """Return a copy corrected by a count; the surer the count and the less sure a ratio, the larger the
        correction.

        `estimates` are those of the counted text, `counted` its tokens; `noise` is the standard deviation of
        the count in tokens.
        """
        size = len(KINDS)
        row = [float(estimates.get(kind, 0)) for kind in KINDS]
        carried = [sum(self.spread[i * size + j] * row[j] for j in range(size)) for i in range(size)]
        total = sum(row[i] * carried[i] for i in range(size)) + noise**2
        if total <= 0:
            return self
        gain = [value / total for value in carried]
        missing = counted - sum(ratio * tokens for ratio, tokens in zip(self.ratios, row, strict=True))
        ratios = [min(MOST, max(LEAST, ratio + gain[i] * missing)) for i, ratio in enumerate(self.ratios)]
        spread = [self.spread[i * size + j] - gain[i] * carried[j] for i in range(size) for j in range(size)]
        return _with_values(self, ratios=ratios, spread=spread)

    def to_json(self) -> dict[str, Any]:
        """Return the scale for storage; covariances are symmetric, so each row begins at its variance."""
        size = len(KINDS)
        half = [self.spread[i * size + j] for i in range(size) for j in range(i, size)]
        return {
            "model": self.model,
            "ratios": [round(ratio, 4) for ratio in self.ratios],
            "spread": [round(value, 8) for value in half],
            "epoch": self.epoch,
            "last": list(self.last),
        }


def assume_scale(model: str, ratio: float) -> TokenScale:
    """Return the scale assumed for a model before its first counted request.

    `ratio` is the assumed number of the model's tokens per estimated token.
    """
    size, talk = len(KINDS), _OWN_SPREAD["talk"] ** 2
    spread = [0.0] * (size * size)
    for i, one in enumerate(KINDS):
        for j, other in enumerate(KINDS):
            shared = talk if "steady" not in (one, other) else 0.0
            own = _OWN_SPREAD[one] ** 2 if one == other and one != "talk" else 0.0
            spread[i * size + j] = shared + own
    ratios = tuple(ratio * _ASSUMED_SHARE[kind] for kind in KINDS)
    return TokenScale(model=model, ratios=ratios, spread=tuple(spread))


def scale_from_json(found: Mapping[str, Any] | None, model: str, *, ratio: float) -> TokenScale:
    """Return the stored scale; the assumed one if none is stored or it belongs to another model.

    `ratio` is the assumed number of the model's tokens per estimated token.
    """
    size = len(KINDS)
    if not found or found.get("model") != model:
        return assume_scale(model, ratio)
    ratios, spread = found.get("ratios", ()), found.get("spread", ())
    if len(spread) == size * (size + 1) // 2:
        places = iter(spread)
        half = {(i, j): next(places) for i in range(size) for j in range(i, size)}
        spread = [half[min(i, j), max(i, j)] for i in range(size) for j in range(size)]
    if len(ratios) != size or len(spread) != size * size:
        return assume_scale(model, ratio)
    return TokenScale(
        model=model, ratios=tuple(map(float, ratios)), spread=tuple(map(float, spread)),
        epoch=int(found.get("epoch", -1)), last=tuple(map(int, found.get("last", ()))),
    )  # fmt: skip


def learn_from_call(
    scale: TokenScale,
    whole: Estimates,
    *,
    counted: int,
    epoch: int,
    passes: Estimates | None = None,
    passed: int | None = None,
    foreseen: int | None = None,
    added: int = 0,
    answer: int = 0,
    answered: int = 0,
) -> TokenScale:
    """Return the scale after a call for which the provider counted `counted` prompt tokens.

    `whole` has the estimates of the request, `epoch` is that of its view. A further call of the same view
    teaches by the difference to the call before. For the first call of a view, `foreseen` is the size counted
    in advance (None if it was not) and `added` the estimate of newer messages. `passes` estimates what only
    this turn sends, None for its kind `passing`; `passed` is its count, None if not reported. `answer`
    estimates an answer of `answered` tokens; 0 for none.
    """
    moved = scale.epoch != epoch or len(scale.last) != 1 + len(KINDS)
    passes = {"passing": whole["passing"]} if passes is None else passes
    learned = scale.drift(whole, moved=moved)
    if passed is not None:
        learned = learned.observe(passes, passed, noise=ROUNDING)
    kept = _find_kept(scale, whole, foreseen, passes=passes, added=added) if moved and scale.last else None
    if kept is not None:
        noise = ROUNDING + TAIL_NOISE * abs(kept) + MESSAGE_NOISE * added + PASSING_NOISE * whole["passing"]
        learned = learned.observe({**whole, "talk": added}, counted - kept, noise=noise)
    elif moved:
        noise = ROUNDING + HISTORY_NOISE * whole["talk"]
        learned = learned.observe(whole, counted, noise=noise)
    else:
        before, *former = scale.last
        grown: dict[Kind, int] = {
            kind: whole[kind] - tokens for kind, tokens in zip(KINDS, former, strict=True)
        }
        passed_by = whole["passing"] + former[KINDS.index("passing")]
        noise = ROUNDING + MESSAGE_NOISE * abs(grown["talk"]) + PASSING_NOISE * passed_by
        learned = learned.observe(grown, counted - before, noise=noise)
    if answer and answered:
        noise = ROUNDING + MESSAGE_NOISE * answer
        learned = learned.observe({"talk": answer}, answered, noise=noise)
    last = (counted, *(whole[kind] for kind in KINDS))
    return replace(learned, epoch=epoch, last=last)


def _find_kept(
    scale: TokenScale, whole: Estimates, foreseen: int | None, *, passes: Estimates, added: int
) -> int | None:
    """Return the count of the messages in the foreseen size; None if it does not match their estimate."""
    if foreseen is None:
        return None
    around: Estimates = {
        "steady": whole["steady"] - passes.get("steady", 0),
        "notes": whole["notes"], "summary": whole["summary"],
    }  # fmt: skip
    kept, usual = foreseen - scale.size(around), scale.ratio("talk") * (whole["talk"] - added)
    return kept if abs(kept - usual) <= KEPT_DOUBT * usual + ROUNDING else None


def learn_from_foreseen(
    scale: TokenScale, estimates: Estimates, *, counted: int, kept: int | None, epoch: int
) -> TokenScale:
    """Return the scale after the provider counted the next request before it was sent.

    `estimates` are those of the request, `counted` its tokens, `epoch` that of its view. `kept` is the count
    of its messages, None if only their estimate is known.
    """
    learned = scale.drift(estimates, moved=True)
    if kept is None:
        noise = ROUNDING + HISTORY_NOISE * estimates["talk"]
        learned = learned.observe(estimates, counted, noise=noise)
    else:
        noise = ROUNDING + TAIL_NOISE * kept
        learned = learned.observe({**estimates, "talk": 0}, counted - kept, noise=noise)
    last = (counted, *(estimates[kind] for kind in KINDS))
    return replace(learned, epoch=epoch, last=last)


def _share_changed(former: int, now: int) -> float:
    """Return the estimated share, 0 to 1, of a text that is new, given its former and present
    size in tokens.
    """
    return min(1.0, abs(now - former) / now) if now else 0.0


def _with_values(
    scale: TokenScale, *, ratios: Sequence[float] | None = None, spread: Sequence[float]
) -> TokenScale:
    return replace(scale, ratios=scale.ratios if ratios is None else tuple(ratios), spread=tuple(spread))
