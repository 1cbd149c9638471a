"""Checks the parameters of a call against the published Bot API and converts them to their types."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.kit.fakes.bot_api.refusals import misuse, stricter
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.supplement import supplemented

STORED = Path(__file__).with_name("schema.json")
WHOLE = re.compile(r"^-?\d{1,19}$")
SIMPLE: dict[str, tuple[type, ...]] = {
    "Integer": (int,),
    "Float": (int, float),
    "String": (str,),
    "Boolean": (bool,),
    "True": (bool,),
    "InputFile": (str,),
}
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


class Schema:
    def __init__(self, facts: Json) -> None:
        self._methods: Json = facts["methods"]
        self._types: Json = facts["types"]
        self._unions: Json = facts["unions"]
        self._names = {name.lower(): name for name in self._methods}
        self.reactions = frozenset(facts["reactions"])
        self.updates = frozenset(facts["updates"])

    def method(self, name: str) -> str | None:
        """Return the method's name in its published spelling, whatever the case of `name`.

        None if there is no such method.
        """
        return self._names.get(name.lower())

    def checked(self, method: str, sent: Json) -> Json:
        """Return the parameters of a call converted to their types.

        Raises Refusal if a parameter is unknown, missing or malformed.
        """
        fields = self._methods[method]
        unknown = sorted(set(sent) - set(fields))
        if unknown:
            raise stricter(f"{method} has no parameter {unknown[0]!r}")
        found = {name: self._parameter(name, value, fields[name][0]) for name, value in sent.items()}
        missing = [name for name, row in fields.items() if row[1] and name not in found]
        if missing:
            raise misuse(_missing(missing[0]))
        return found

    def _parameter(self, name: str, value: object, declared: str) -> object:
        """Return one parameter converted to its declared type.

        On the wire every value may come as a string; objects are then read as JSON. Raises Refusal if the
        value does not fit.
        """
        kinds = declared.split("|")
        read = _read(name, value, kinds)
        fault = self._fault(read, kinds, name)
        if fault:
            raise misuse(fault)
        return read

    def _fault(self, value: object, kinds: list[str], at: str) -> str | None:
        """Return why the value fits none of the types `kinds`, as an error message that names the place `at`.

        None if it fits one.
        """
        faults = [self._fault_of_one(value, kind, at) for kind in kinds]
        if None in faults:
            return None
        # Of several types the one that got deepest into the value tells most.
        return max(
            (fault for fault in faults if fault), key=lambda fault: fault.count(".") + fault.count("[")
        )

    def _fault_of_one(self, value: object, kind: str, at: str) -> str | None:
        if kind.startswith("Array of "):
            return self._fault_of_list(value, kind.removeprefix("Array of "), at)
        if kind in SIMPLE:
            fits = isinstance(value, SIMPLE[kind]) and (kind in ("Boolean", "True")) == isinstance(
                value, bool
            )
            return None if fits else f"can't parse {at}: expected {kind}"
        if kind in self._unions:
            return self._fault(value, self._unions[kind], at)
        return self._fault_of_object(value, kind, at)

    def _fault_of_list(self, value: object, kind: str, at: str) -> str | None:
        if not isinstance(value, list):
            return f"can't parse {at}: expected an Array"
        for number, item in enumerate(value):
            fault = self._fault_of_one(item, kind, f"{at}[{number}]")
            if fault:
                return fault
        return None

    def _fault_of_object(self, value: object, kind: str, at: str) -> str | None:
        if not isinstance(value, dict):
            return f"can't parse {at}: expected an object ({kind})"
        fields: Json = self._types[kind]
        for name, row in fields.items():
            if len(row) > 2 and value.get(name) != row[2]:
                return f"can't parse {at}: {name} is not {row[2]!r}"
        for name, item in value.items():
            if name not in fields:
                return f"can't parse {at}.{name}: {kind} has no such field"
            fault = self._fault(item, fields[name][0].split("|"), f"{at}.{name}")
            if fault:
                return fault
        missing = [name for name, row in fields.items() if row[1] and name not in value]
        return f"can't parse {at}.{missing[0]}: {kind} needs it" if missing else None


@cache
def load_schema() -> Schema:
    """Return the stored schema of the Bot API, extended by what `supplement` adds."""
    return Schema(supplemented(json.loads(STORED.read_text(encoding="utf-8"))))


def _read(name: str, value: Any, kinds: list[str]) -> object:
    if not isinstance(value, str):
        return value
    if "Integer" in kinds and WHOLE.fullmatch(value.strip()):
        return int(value)
    if "String" in kinds or "InputFile" in kinds:
        return value
    if "Boolean" in kinds or "True" in kinds:
        if value.lower() in TRUTHS:
            return TRUTHS[value.lower()]
        raise misuse(f"can't parse {name}: expected true or false")
    if "Integer" in kinds:
        raise misuse(f"can't parse {name}: expected an Integer")
    return _read_json(name, value)


def _read_json(name: str, value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        if name == "reply_markup":
            raise misuse("can't parse reply keyboard markup JSON object") from None
        raise misuse(f"can't parse {name} JSON object") from None


def _missing(name: str) -> str:
    match name:
        case "chat_id":
            return "chat_id is empty"
        case "text":
            return "message text is empty"
        case "callback_query_id":
            return "query ID must be specified"
        case "message_id":
            return "message identifier is not specified"
    return f"parameter {name!r} is required"
