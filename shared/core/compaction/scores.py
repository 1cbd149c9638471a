"""How good a summary is in numbers: what is grounded, cited, kept, and how much of the exact survives."""

from __future__ import annotations

from collections.abc import Sequence

from shared.core.compaction.required_facts import covered, must_stay
from shared.core.compaction.transcript_lines import SourceLine
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.session.rendering import render_summary
from shared.core.values.identifiers import identifiers_of
from shared.core.values.searching import normalised
from shared.core.values.tokens import Count

_PROBES = 8
_STEM_CHARS = 5


def common_scores(
    ledger: Ledger, source_text: str, lines: tuple[SourceLine, ...], count: Count, *, language: bool
) -> dict[str, float]:
    """What is said of every form: its size, its language, and how much of the exact is still in it."""
    text = render_summary(ledger)
    source = count(source_text)
    return {
        "size": round(count(text) / source, 3) if source else 0.0,
        "language": float(language),
        "exact": _probed(text, lines),
    }


def presence(ledger: Ledger, lines: tuple[SourceLine, ...], told: str = "") -> dict[str, float]:
    """How much of what must stay the model itself had kept."""
    wanted = must_stay(lines)
    kept = {item: covered(item, ledger, told) for item in wanted}

    def share(*kinds: str) -> float:
        of_kind = [found for item, found in kept.items() if item.kind in kinds]
        return round(sum(of_kind) / len(of_kind), 3) if of_kind else 1.0

    return {"prohibitions": share("constraint"), "questions": share("question", "action")}


def scores_of(
    patched: Ledger, checked: Ledger, former: Ledger, lines: tuple[SourceLine, ...]
) -> dict[str, float]:
    known = {item.id for item in former.items}
    proposed = [item for item in patched.items if item.id not in known]
    stayed = [item for item in checked.items if item.id not in known]
    wanted = {seq for item in proposed for seq in item.sources}
    shown = {line.seq for line in lines}
    return {
        "grounded": _share(len(stayed), len(proposed)),
        "cited": _share(sum(bool(item.sources) for item in stayed), len(stayed)),
        "valid_ids": _share(len(wanted & shown), len(wanted)),
        "overlap": _overlap(stayed, lines),
        **presence(checked, lines),
    }


def _overlap(items: Sequence[LedgerItem], lines: tuple[SourceLine, ...]) -> float:
    """How many of an item's words the lines that it cites have, on average."""
    by_seq = {line.seq: stems(line.text) for line in lines}
    shares: list[float] = []
    for item in items:
        cited: set[str] = set().union(*(by_seq.get(seq, set()) for seq in item.sources))
        words = stems(item.text)
        if cited and words:
            shares.append(len(words & cited) / len(words))
    return round(sum(shares) / len(shares), 3) if shares else 1.0


def _probed(text: str, lines: tuple[SourceLine, ...]) -> float:
    """Of a few exact names and numbers of the source, taken evenly, the share that can be found again."""
    exact = identifiers_of("\n".join(line.text for line in lines), most=10 * _PROBES)
    step = max(1, len(exact) // _PROBES)
    probes = exact[::step][:_PROBES]
    plain = text.casefold()
    return _share(sum(probe.casefold() in plain for probe in probes), len(probes))


def stems(text: str) -> set[str]:
    return {word[:_STEM_CHARS] for word in normalised(text).split() if len(word) > 2}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 3) if whole else 1.0
