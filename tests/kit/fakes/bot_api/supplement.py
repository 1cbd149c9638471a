"""The additions of Bot API 10.2 and 10.3 that Evertalk uses, which the stored reference (10.1) lacks."""

from __future__ import annotations

from tests.kit.fakes.bot_api.shapes import Json

UPDATES = ("stopped_message_generation",)
"""Kinds of updates that Bot API 10.3 added: a person pressed Stop on a draft."""

METHOD_FIELDS: Json = {
    # 10.3: the Stop button on drafts, and whether the draft stays when it is pressed.
    "sendMessageDraft": {"can_stop": ["Boolean", False], "keep_on_stop": ["Boolean", False]},
    "sendRichMessageDraft": {"can_stop": ["Boolean", False], "keep_on_stop": ["Boolean", False]},
}
TYPE_FIELDS: Json = {
    # 10.2: typed blocks instead of Markdown or HTML.
    "InputRichMessage": {"blocks": ["Array of InputRichBlock", False]},
    # 10.3
    "RichBlockTable": {"is_compact": ["Boolean", False]},
}
NEW_TYPES: Json = {
    "InputRichBlockListItem": {
        "blocks": ["Array of InputRichBlock", True],
        "has_checkbox": ["Boolean", False],
        "is_checked": ["Boolean", False],
        "value": ["Integer", False],
        "type": ["String", False],
    },
    "InputRichBlockExpandableBlockQuotation": {
        "type": ["String", True, "expandable_blockquote"],
        "text": ["RichText", True],
        "credit": ["RichText", False],
    },
}
INPUT_BLOCKS = (
    "Paragraph", "SectionHeading", "Preformatted", "Footer", "Divider", "MathematicalExpression", "Anchor",
    "List", "BlockQuotation", "PullQuotation", "Table", "Details", "Thinking",
)  # fmt: skip
"""Rich blocks that may be sent in the form in which they are received; blocks with media are left out."""


def supplemented(schema: Json) -> Json:
    """Return a copy of the schema with the additions of Bot API 10.2 and 10.3."""
    types: Json = {name: dict(fields) for name, fields in schema["types"].items()}
    methods: Json = {name: dict(fields) for name, fields in schema["methods"].items()}
    for name, fields in METHOD_FIELDS.items():
        methods[name].update(fields)
    for name, fields in TYPE_FIELDS.items():
        types[name].update(fields)
    types.update(NEW_TYPES)
    for name in INPUT_BLOCKS:
        types[f"InputRichBlock{name}"] = _as_input(types[f"RichBlock{name}"])
    unions = dict(schema["unions"])
    unions["InputRichBlock"] = [
        *(f"InputRichBlock{name}" for name in INPUT_BLOCKS),
        "InputRichBlockExpandableBlockQuotation",
    ]
    updates = [*schema["updates"], *UPDATES]
    return {**schema, "methods": methods, "types": types, "unions": unions, "updates": updates}


def _as_input(fields: Json) -> Json:
    changed = {"Array of RichBlock": "Array of InputRichBlock"}
    changed["Array of RichBlockListItem"] = "Array of InputRichBlockListItem"
    return {name: [changed.get(row[0], row[0]), *row[1:]] for name, row in fields.items()}
