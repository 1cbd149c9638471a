"""Checks a rich message against Telegram's limits, and converts sent blocks to the blocks of an answer."""

from __future__ import annotations

from tests.kit.fakes.bot_api.refusals import misuse, stricter
from tests.kit.fakes.bot_api.shapes import Json, units

MAX_TEXT = 32_768
MAX_BLOCKS = 500
MAX_DEPTH = 16
MAX_MEDIA = 50
MAX_COLUMNS = 20
MEDIA = frozenset({"photo", "video", "audio", "animation", "voice_note"})


def checked_rich(wish: Json, *, draft: bool) -> Json:
    """Return the rich message as the fake stores it.

    Markdown and HTML are not parsed: they are stored as one paragraph. Raises Refusal if not exactly one of
    html, markdown and blocks is given, or a limit is exceeded.
    """
    given = [name for name in ("html", "markdown", "blocks") if wish.get(name)]
    if len(given) != 1:
        raise misuse("exactly one of html, markdown and blocks must be given for a rich message")
    blocks = wish[given[0]]
    if given[0] != "blocks":
        blocks = [{"type": "paragraph", "text": blocks}]
    count = _Count(draft=draft)
    count.blocks(blocks, depth=1)
    count.check()
    stored: Json = {"blocks": [_answered(block) for block in blocks]}
    if wish.get("is_rtl"):
        stored["is_rtl"] = True
    return stored


class _Count:
    def __init__(self, *, draft: bool) -> None:
        self._draft = draft
        self._blocks = self._media = self._units = 0

    def blocks(self, blocks: list[Json], *, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise misuse("rich message blocks are nested too deep")
        for block in blocks:
            self._blocks += 1
            self._media += block["type"] in MEDIA
            if block["type"] == "thinking" and not self._draft:
                raise misuse("thinking blocks can be used only in drafts")
            if block["type"] == "heading" and not 1 <= block["size"] <= 6:
                raise misuse("heading size must be from 1 to 6")
            for name in ("text", "summary", "credit", "caption", "expression"):
                self._units += units(flat(block.get(name)))
            self.blocks(block.get("blocks", []), depth=depth + 1)
            for item in block.get("items", []):
                self._blocks += 1
                self.blocks(item["blocks"], depth=depth + 1)
            self._rows(block.get("cells", []))

    def check(self) -> None:
        if not self._units and not self._media:
            raise misuse("rich message must be non-empty")
        if self._units > MAX_TEXT:
            raise misuse("rich message is too long")
        if self._blocks > MAX_BLOCKS:
            raise misuse("rich message has too many blocks")
        if self._media > MAX_MEDIA:
            raise misuse("rich message has too much media")

    def _rows(self, rows: list[list[Json]]) -> None:
        for row in rows:
            self._blocks += 1
            if sum(cell.get("colspan", 1) for cell in row) > MAX_COLUMNS:
                raise misuse("rich message table has too many columns")
            self._units += sum(units(flat(cell.get("text"))) for cell in row)
        if len({sum(cell.get("colspan", 1) for cell in row) for row in rows}) > 1:
            raise stricter("the rows of a table differ in length")


def flat(text: object) -> str:
    """Return the text of a rich text, without its formatting."""
    if isinstance(text, str):
        return text
    if isinstance(text, list):
        return "".join(flat(part) for part in text)
    if isinstance(text, dict):
        if "text" in text:
            return flat(text["text"])
        return str(text.get("expression") or text.get("alternative_text") or "")
    return ""


def plain(blocks: list[Json]) -> str:
    """Return the text of rich blocks as a person would read it, one line per block, item or table row."""
    lines: list[str] = []
    for block in blocks:
        lines += [flat(block[name]) for name in ("summary", "text", "expression") if block.get(name)]
        lines += [plain(item["blocks"]) for item in block.get("items", [])]
        lines += [" | ".join(flat(cell.get("text")) for cell in row) for row in block.get("cells", [])]
        if block.get("blocks"):
            lines.append(plain(block["blocks"]))
    return "\n".join(line for line in lines if line)


def _answered(block: Json) -> Json:
    found = dict(block)
    if "blocks" in block:
        found["blocks"] = [_answered(inner) for inner in block["blocks"]]
    if "items" in block:
        found["items"] = [
            {"label": _label(item, number), **item, "blocks": [_answered(b) for b in item["blocks"]]}
            for number, item in enumerate(block["items"], 1)
        ]
    return found


def _label(item: Json, number: int) -> str:
    if item.get("has_checkbox"):
        return "☑" if item.get("is_checked") else "☐"
    return f"{item.get('value', number)}." if item.get("type") else "•"
