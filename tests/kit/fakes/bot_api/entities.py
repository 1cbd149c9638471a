"""Text as Telegram stores it: trimmed and limited, with entities that are in bounds and properly nested."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.fakes.bot_api.parse_modes import parsed
from tests.kit.fakes.bot_api.refusals import misuse, stricter
from tests.kit.fakes.bot_api.shapes import Json, compact, splits_a_pair, units

MAX_TEXT = 4_096
MAX_CAPTION = 1_024
MAX_ENTITIES = 100
MAX_MARKUP_BYTES = 9_500
BLOCKS = frozenset({"pre", "code"})
STYLES = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
QUOTES = frozenset({"blockquote", "expandable_blockquote"})
KINDS = frozenset(
    [
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "date_time",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    text: str
    entities: tuple[Json, ...] = ()

    def named(self, text: str = "text", entities: str = "entities") -> Json:
        """Return text and entities as fields of a message; an empty list of entities is left out."""
        found: Json = {text: self.text} if self.text else {}
        return {**found, entities: list(self.entities)} if self.entities else found


def words_of(params: Json, *, caption: bool = False, may_be_empty: bool = False) -> Words:
    text_name, entities_name = ("caption", "caption_entities") if caption else ("text", "entities")
    text, entities = params.get(text_name, ""), list(params.get(entities_name, ()))
    if len(text.encode()) > 32_768:
        raise misuse("Text is too long")
    if "\0" in text:
        raise stricter("the text holds a NUL character")
    if "parse_mode" in params:
        text, entities = parsed(text, params["parse_mode"])
    check_entities(text, entities)
    words = _trimmed(text, entities)
    if not words.text and not may_be_empty:
        raise misuse("text must be non-empty" if text else "message text is empty")
    if units(words.text) > (MAX_CAPTION if caption else MAX_TEXT):
        raise misuse("message caption is too long" if caption else "message is too long")
    return words


def check_entities(text: str, entities: list[Json]) -> None:
    whole = units(text)
    for entity in entities:
        _check_one(text, whole, entity)
    if len(entities) > MAX_ENTITIES:
        raise stricter(f"{len(entities)} entities; Telegram keeps {MAX_ENTITIES} and drops the others")
    if len(compact(entities).encode()) > 4 * MAX_MARKUP_BYTES:
        raise misuse("ENTITIES_TOO_LONG")
    _check_nesting(entities)


def _check_one(text: str, whole: int, entity: Json) -> None:
    kind, start, length = entity["type"], entity["offset"], entity["length"]
    if kind not in KINDS:
        raise misuse("can't parse entities: unsupported entity type")
    if start < 0 or length <= 0 or start + length > whole:
        raise stricter(f"{kind} at {start}+{length} lies outside of a text of {whole} units")
    if splits_a_pair(text, start) or splits_a_pair(text, start + length):
        raise stricter(f"{kind} at {start}+{length} cuts a character in two")
    needed = {"text_link": "url", "text_mention": "user", "custom_emoji": "custom_emoji_id"}.get(kind)
    if needed and needed not in entity:
        raise misuse(f'can\'t parse MessageEntity: Field "{needed}" must be of type String')


def _check_nesting(entities: list[Json]) -> None:
    """Check that any two entities are nested or apart, code contains none, and quotes contain no quotes."""
    open_ones: list[Json] = []
    for entity in sorted(entities, key=lambda one: (one["offset"], -one["length"])):
        while open_ones and _end(open_ones[-1]) <= entity["offset"]:
            open_ones.pop()
        for outer in open_ones:
            _check_pair(outer, entity)
        open_ones.append(entity)


def _check_pair(outer: Json, inner: Json) -> None:
    where = f"{outer['type']} at {outer['offset']} and {inner['type']} at {inner['offset']}"
    if _end(inner) > _end(outer):
        raise stricter(f"{where} overlap without nesting")
    same = (outer["offset"], outer["length"]) == (inner["offset"], inner["length"])
    if same and outer["type"] == inner["type"]:
        raise stricter(f"{where} are the same twice")
    kinds = {outer["type"], inner["type"]}
    quoted = kinds & QUOTES and (same or inner["type"] in BLOCKS)
    if kinds & BLOCKS and not quoted:
        raise stricter(f"{where}: code cannot be joined with another style")
    if not kinds & (STYLES | QUOTES | BLOCKS):
        raise stricter(f"{where}: one link cannot hold another")
    if kinds <= QUOTES:
        raise stricter(f"{where}: quotes cannot be nested")


def _end(entity: Json) -> int:
    return int(entity["offset"] + entity["length"])


def _trimmed(text: str, entities: list[Json]) -> Words:
    """Return the text without whitespace at its end, and at its beginning up to the first entity."""
    first = min((entity["offset"] for entity in entities), default=units(text))
    begin = 0
    while begin < len(text) and begin < first and text[begin] in " \n\t\r":
        begin += 1
    kept = text[begin:].rstrip()
    size = units(kept)
    found = []
    for entity in entities:
        start = entity["offset"] - begin
        length = min(entity["length"], size - start)
        if length > 0:
            found.append({**entity, "offset": start, "length": length})
    found.sort(key=lambda one: (one["offset"], -one["length"]))
    return Words(text=kept, entities=tuple(found))
