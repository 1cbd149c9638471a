"""A handler is registered once: its signature says what is taken, and what does not fit is told in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Unpack, cast
from uuid import UUID

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from web.protocol.answers import ABSENT, Absent, to_json
from web.rest.arguments import BadField, In, read_arguments
from web.rest.calls import VisitorDoor, build_handler
from web.rest.kinds import Cut, Digits, Limit, Since
from web.rest.openapi import document
from web.rest.operation import HandlerTable, Operation, OperationRouter, Reply
from web.security import HttpRefusal

Shown = TypedDict("Shown", {"id": UUID, "note": NotRequired[str]})
Asked = TypedDict("Asked", {
    "q": Annotated[str, Cut(5, "words")], "from": Since, "min_pct": Annotated[float, Field(ge=0)],
}, total=False)  # fmt: skip


@with_config(ConfigDict(extra="forbid", strict=True))
class Inner(TypedDict, total=False):
    to: int


router = OperationRouter("memory", visitor=True)
THING = "11111111-2222-4333-8444-555555555555"


@router.on("GET /things/{id}", Shown, refusals=(404,), missing="There is no such thing.")
async def see_thing(
    call: Any,
    thing: UUID,
    *,
    limit: Limit = 50,
    state: Literal["new", "old"] | None = None,
    **asked: Unpack[Asked],
) -> Reply:
    """One thing.

    And more of it.
    """
    return None


@router.on("POST /things/{id:[a-z]+}", Shown, scope="memory:write", strict=True)
async def change_thing(
    call: Any,
    name: str,
    *,
    on: bool,
    level: int = 1,
    wait: Annotated[int, In("query"), Digits(0, 60)] = 0,
    seen: Annotated[str, In("header", "If-Match")] = "",
    title: Annotated[str, Field(max_length=3)] = "",
    inner: list[Inner] | None = None,
) -> Reply:
    """Change a thing."""
    return None


async def read(
    operation: Operation, query: str = "", *, part: str, body: Any = None, **options: Any
) -> dict[str, Any]:
    request = make_mocked_request("GET", f"/x?{query}", match_info={"id": part}, headers={"If-Match": '"7"'})

    async def read_body(needed: bool) -> Mapping[str, Any]:
        assert needed
        return dict(body)

    return await read_arguments(operation, request, read_body=read_body, **options)


async def test_what_is_in_an_address_has_the_types_of_the_signature() -> None:
    found = await read(router[0], "limit=7&state=old&q=remember&from=2026-11-21", part=THING)
    assert found.pop("from").isoformat() == "2026-11-21T00:00:00+00:00"
    assert found == {"thing": UUID(THING), "limit": 7, "state": "old", "q": "remem"}
    assert await read(router[0], part=THING) == {"thing": UUID(THING), "limit": 50, "state": None}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=201", "`limit` is a whole number from 1 to 200."),
        ("limit=+7", "`limit` is a whole number from 1 to 200."),
        ("limit=", "`limit` is a whole number from 1 to 200."),
        ("state=gone", "`state` is one of new, old."),
        ("from=yesterday", "`from` is a date such as 2026-11-21."),
        ("min_pct=-1", "`min_pct` is a number from 0 on."),
    ],
)
async def test_unfitting_value_is_reported_by_its_field(query: str, words: str) -> None:
    with pytest.raises(BadField) as refused:
        await read(router[0], query, part=THING)
    assert (refused.value.advice, refused.value.place) == (words, "query")


async def test_where_a_page_leaves_a_filter_empty_it_is_not_given() -> None:
    found = await read(router[0], "limit=&state=&q=&from=", part=THING, without_empty=True)
    assert found == {"thing": UUID(THING), "limit": 50, "state": None}


async def test_what_is_said_twice_counts_the_first_time() -> None:
    assert (await read(router[0], "limit=7&limit=9", part=THING))["limit"] == 7


async def test_an_id_that_is_none_is_not_found() -> None:
    with pytest.raises(HttpRefusal) as refused:
        await read(router[0], part="x")
    assert (refused.value.status, refused.value.message) == (404, "There is no such thing.")


async def test_body_query_headers_and_path_come_together() -> None:
    found = await read(router[1], "wait=3", part="a\x00b", body={"on": True})
    assert found == {
        "name": "ab",
        "on": True,
        "level": 1,
        "wait": 3,
        "seen": '"7"',
        "title": "",
        "inner": None,
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "`on` is true or false, and is needed."),
        ({"on": 1}, "`on` is true or false, and is needed."),
        ({"on": True, "level": "2"}, "`level` is a whole number."),
        ({"on": True, "level": True}, "`level` is a whole number."),
        ({"on": True, "title": "long"}, "`title` has 4 characters; 3 is the most."),
        ({"on": True, "of\x07f": 1}, "There is no field `off`; known are on, level, title, inner."),
        ({"on": True, "inner": {}}, "`inner` is a list."),
        ({"on": True, "inner": [{"off": 1}]}, "There is no field `inner.0.off`."),
        (
            {"on": True, "inner": [{"to": "x"}]},
            "`inner.0.to` cannot be used: Input should be a valid integer.",
        ),
    ],
)
async def test_json_keeps_its_own_types(body: Any, words: str) -> None:
    with pytest.raises(BadField) as refused:
        await read(router[1], part="a", body=body)
    assert (refused.value.advice, refused.value.place) == (words, "body")


def test_names_words_and_shapes_of_the_description_come_from_the_handler() -> None:
    told = document(router)
    seen, changed = told["paths"]["/api/v1/things/{id}"]["get"], told["paths"]["/api/v1/things/{id}"]["post"]
    assert (seen["operationId"], seen["summary"]) == ("seeThing", "One thing.")
    assert seen["description"] == "And more of it.\n\nAllowed for visitors, in their own conversation."
    assert [(one["name"], one["in"]) for one in changed["parameters"]] == [
        ("session_id", "query"), ("id", "path"), ("wait", "query"), ("If-Match", "header"),
    ]  # fmt: skip
    body = told["components"]["schemas"]["ChangeThing"]
    assert (body["required"], body["additionalProperties"]) == (["on"], False)
    assert told["components"]["schemas"]["Shown"]["required"] == ["id"]
    assert set(seen["responses"]) == {"200", "400", "401", "403", "404", "408", "429", "503"}
    assert set(changed["responses"]) >= {"413", "415"}


@pytest.mark.parametrize("terms", [{"anyone": True}, {"visitor": True, "finds_caller": True}])
def test_operation_without_known_visitor_cannot_name_a_rate(terms: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="GET /api/v1/news must count in its handler"):

        @OperationRouter().on("GET /news", rate="reads", **terms)
        async def list_news(call: object) -> None:
            raise NotImplementedError


async def test_open_operation_without_a_result_is_not_found() -> None:
    open_to_all = OperationRouter(anyone=True, missing="There is no news.")

    @open_to_all.on("GET /news", Shown)
    async def show_news(call: Any) -> Reply:
        return None

    handle = build_handler(open_to_all[0], {}, door=cast("VisitorDoor", None), handlers=HandlerTable())
    with pytest.raises(HttpRefusal) as refused:
        await handle(make_mocked_request("GET", "/api/v1/news"))
    assert (refused.value.status, refused.value.message) == (404, "There is no news.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    parts: list[Part]
    next: str | None = None


typed = OperationRouter("memory", visitor=True)


@typed.on("GET /whole", status=201)
async def see_whole(call: Any) -> Whole | web.StreamResponse | None:
    """Whole thing."""
    return Whole(parts=[Part(id=UUID(THING))])


@typed.on("GET /shown")
async def see_shown(call: Any) -> Shown:
    """Shown thing."""
    return {"id": UUID(THING)}


@typed.on("GET /mixed")
async def see_mixed(call: Any) -> Whole | Shown:
    """Thing of two shapes."""
    return {"id": UUID(THING)}


def test_answer_has_the_shape_that_the_handler_returns() -> None:
    described = document(typed)
    whole, part = (described["components"]["schemas"][name] for name in ("Whole", "Part"))

    assert [one.answers for one in typed][:3] == [{201: Whole}, {200: Shown}, {200: None}]
    assert (whole["required"], part["required"]) == (["parts", "next"], ["id"])
    assert "description" not in whole


async def test_dataclass_of_an_answer_is_written_with_all_fields() -> None:
    assert to_json(await see_whole(None)) == f'{{"parts":[{{"id":"{THING}"}}],"next":null}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    from_: str
    note: Annotated[str, Field(description="what it says")] | Absent = ABSENT
    name: str | Absent | None = ABSENT


@typed.on("GET /filed")
async def see_filed(call: Any) -> Filed:
    """Filed thing."""
    return Filed(from_="desk")


def test_absent_field_of_an_answer_is_optional_and_never_null() -> None:
    filed = document(typed)["components"]["schemas"]["Filed"]

    assert filed["required"] == ["from"]
    assert filed["properties"]["note"] == {"type": "string", "description": "what it says"}
    assert filed["properties"]["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


async def test_absent_field_is_left_out_of_the_answer() -> None:
    assert to_json(await see_filed(None)) == '{"from":"desk"}'
    assert to_json(Filed(from_="a", note="", name=None)) == '{"from":"a","note":"","name":null}'
