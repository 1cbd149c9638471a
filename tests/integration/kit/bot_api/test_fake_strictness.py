"""What the fake refuses, and in which words, asked over bare HTTP."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.integration.kit.bot_api.conftest import Json, RawCall
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi
from tests.kit.fakes.bot_api.refusals import NOT_MODIFIED, QUERY_TOO_OLD

BUTTON = {"inline_keyboard": [[{"text": "Stop", "callback_data": "stop:1"}]]}


async def refused(call: RawCall, method: str, /, **params: Any) -> str:
    status, answer = await call(method, **params)
    assert status == answer["error_code"] == 400, answer
    return str(answer["description"])


async def test_unknown_method_is_not_found(bot_api: RunningBotApi, call: RawCall) -> None:
    status, answer = await call("sendTelepathy")
    assert (status, answer["description"]) == (404, "Not Found: method not found")
    assert [found["method"] for found in await bot_api.violations()] == ["sendTelepathy"]


async def test_unknown_token_is_unauthorized(bot_api: RunningBotApi, call: RawCall) -> None:
    status, answer = await call("getMe", token="1:nobody")
    assert (status, answer["description"]) == (401, "Unauthorized")
    await bot_api.change_bot(revoked=True)
    assert (await call("getMe"))[0] == 401


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT"])
async def test_verbs_spellings_and_encodings_do_not_matter(
    bot_api: RunningBotApi, http: aiohttp.ClientSession, ann: Person, verb: str
) -> None:
    url = f"{bot_api.base_url}/bot{TOKEN}/SENDmessage"
    form = aiohttp.FormData({"chat_id": "42", "text": f"form {verb}"})
    async with http.request(verb, url, params={"chat_id": "42", "text": f"query {verb}"}) as response:
        assert response.status == 200
    async with http.request(verb, url, data=form) as response:
        assert response.status == 200
    assert (await ann.screen()).texts == [f"query {verb}", f"form {verb}"]


async def test_a_parameter_that_the_method_does_not_have_is_a_violation(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    words = await refused(call, "sendMessage", chat_id=42, text="hi", colour="red")
    assert words == "Bad Request: [strict] sendMessage has no parameter 'colour'"
    assert (await bot_api.violations())[0]["params"]["text"] == "hi"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"text": "hi"}, "chat_id is empty"),
        ({"chat_id": 42}, "message text is empty"),
        ({"chat_id": 42, "text": ""}, "message text is empty"),
        ({"chat_id": 42, "text": " \n"}, "text must be non-empty"),
        ({"chat_id": 42, "text": "a" * 4097}, "message is too long"),
        ({"chat_id": 42, "text": "ä" * 20_000}, "Text is too long"),
        ({"chat_id": 42, "text": "hi", "disable_notification": 3}, "can't parse disable_notification"),
        ({"chat_id": 42, "text": "hi", "entities": "[{"}, "can't parse entities JSON object"),
        ({"chat_id": 42, "text": "hi", "entities": [{"type": "bold"}]}, "can't parse entities[0].offset"),
        ({"chat_id": 42, "text": "hi", "reply_markup": "null"}, "can't parse reply_markup"),
        ({"chat_id": 42, "text": "hi", "reply_parameters": {"message_id": 99}}, "message to be replied not"),
        ({"chat_id": 42, "text": "hi", "message_thread_id": 7}, "message thread not found"),
        ({"chat_id": 4711, "text": "hi"}, "chat not found"),
    ],
)
async def test_a_bad_message_is_refused_in_telegrams_words(
    call: RawCall, ann: Person, params: Json, words: str
) -> None:
    assert (await refused(call, "sendMessage", **params)).startswith(f"Bad Request: {words}")


def bold(offset: int, length: int, kind: str = "bold") -> Json:
    return {"type": kind, "offset": offset, "length": length}


@pytest.mark.parametrize(
    ("text", "entities", "words"),
    [
        ("abc", [bold(0, 4)], "lies outside"),
        ("abc", [bold(2, 0)], "lies outside"),
        ("a😀b", [bold(2, 1)], "cuts a character in two"),
        ("abcdef", [bold(0, 4), bold(2, 4, "italic")], "overlap without nesting"),
        ("abcdef", [bold(0, 6, "pre"), bold(2, 2)], "code cannot be joined"),
        ("abcdef", [bold(0, 6), bold(2, 2, "code")], "code cannot be joined"),
        (
            "abcdef",
            [bold(0, 6, "blockquote"), bold(2, 2, "expandable_blockquote")],
            "quotes cannot be nested",
        ),
        ("abcdef", [bold(0, 2), bold(0, 2)], "the same twice"),
        ("abcdef", [bold(0, 6, "hashtag"), bold(0, 2, "mention")], "one link cannot hold another"),
        ("ab" * 101, [bold(2 * n, 1) for n in range(101)], "101 entities"),
    ],
)
async def test_entities_that_telegram_would_mend_silently_are_violations(
    bot_api: RunningBotApi, call: RawCall, ann: Person, text: str, entities: list[Json], words: str
) -> None:
    assert words in await refused(call, "sendMessage", chat_id=42, text=text, entities=entities)
    assert len(await bot_api.violations()) == 1


async def test_well_nested_entities_are_kept_and_white_space_is_trimmed(call: RawCall, ann: Person) -> None:
    entities = [bold(2, 4, "blockquote"), bold(2, 2, "code"), bold(4, 9)]
    _, answer = await call("sendMessage", chat_id=42, text="\n\nabcd  \n\n", entities=entities[:2])
    assert answer["result"]["text"] == "abcd"
    assert [found["offset"] for found in answer["result"]["entities"]] == [0, 0]
    assert "lies outside" in await refused(call, "sendMessage", chat_id=42, text="abcd", entities=entities)


async def test_a_quote_must_be_in_the_message(call: RawCall, ann: Person) -> None:
    reply = {"message_id": 1, "quote": "ell"}
    _, answer = await call("sendMessage", chat_id=42, text="hi", reply_parameters=reply)
    assert answer["result"]["quote"]["position"] == 1
    reply["quote"] = "elk"
    words = await refused(call, "sendMessage", chat_id=42, text="hi", reply_parameters=reply)
    assert words == "Bad Request: QUOTE_TEXT_INVALID"
    lenient = {"message_id": 99, "allow_sending_without_reply": True}
    assert (await call("sendMessage", chat_id=42, text="hi", reply_parameters=lenient))[0] == 200


@pytest.mark.parametrize(
    ("button", "words"),
    [
        ({"text": "x", "callback_data": "d" * 65}, "BUTTON_DATA_INVALID"),
        ({"text": "x", "callback_data": "ä" * 33}, "BUTTON_DATA_INVALID"),
        ({"text": "x"}, "Text buttons are unallowed"),
        ({"text": "x", "url": "javascript:alert(1)"}, "Wrong HTTP URL"),
        ({"text": "x", "colour": "red"}, "has no such field"),
    ],
)
async def test_bad_buttons_are_refused(call: RawCall, ann: Person, button: Json, words: str) -> None:
    markup = {"inline_keyboard": [[button]]}
    assert words in await refused(call, "sendMessage", chat_id=42, text="hi", reply_markup=markup)


async def test_an_edit_that_changes_nothing_is_refused_but_no_violation(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    _, answer = await call("sendMessage", chat_id=42, text="hi", reply_markup=BUTTON)
    edit: Json = {"chat_id": 42, "message_id": answer["result"]["message_id"]}
    words = await refused(call, "editMessageText", **edit, text="hi ", reply_markup=BUTTON)
    assert words == f"Bad Request: {NOT_MODIFIED}"
    assert NOT_MODIFIED in await refused(call, "editMessageReplyMarkup", **edit, reply_markup=BUTTON)
    assert (await call("editMessageText", **edit, text="hi"))[0] == 200
    assert not await bot_api.violations()


async def test_only_own_messages_that_are_there_can_be_edited(call: RawCall, ann: Person) -> None:
    own = "Bad Request: message can't be edited"
    assert await refused(call, "editMessageText", chat_id=42, message_id=1, text="mine") == own
    missing = "Bad Request: message to edit not found"
    assert await refused(call, "editMessageText", chat_id=42, message_id=9, text="x") == missing
    gone = "Bad Request: message to delete not found"
    assert await refused(call, "deleteMessage", chat_id=42, message_id=9) == gone
    assert (await call("deleteMessages", chat_id=42, message_ids=[1, 9]))[0] == 200


async def test_a_pressed_button_is_answered_once_and_soon(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    await call("sendMessage", chat_id=42, text="hi", reply_markup=BUTTON)
    first, second = await ann.tap("Stop"), await ann.tap("Stop")
    answer = {"callback_query_id": first["query"], "text": "Stopped"}
    assert (await call("answerCallbackQuery", **answer))[0] == 200
    assert await refused(call, "answerCallbackQuery", **answer) == f"Bad Request: {QUERY_TOO_OLD}"
    await bot_api.advance_clock(151)
    words = await refused(call, "answerCallbackQuery", callback_query_id=second["query"])
    assert words == f"Bad Request: {QUERY_TOO_OLD}"
    assert [toast["text"] for toast in (await ann.screen()).toasts] == ["Stopped"]


async def test_commands_and_reactions_keep_to_their_forms(call: RawCall, ann: Person) -> None:
    named = {"command": "Help", "description": "what"}
    assert "BOT_COMMAND_INVALID" in await refused(call, "setMyCommands", commands=[named])
    many = [{"command": f"c{n}", "description": "d"} for n in range(101)]
    assert "BOT_COMMANDS_TOO_MUCH" in await refused(call, "setMyCommands", commands=many)
    odd = [{"type": "emoji", "emoji": "🫎"}]
    assert "REACTION_INVALID" in await refused(
        call, "setMessageReaction", chat_id=42, message_id=1, reaction=odd
    )
    eyes = [{"type": "emoji", "emoji": "👀"}]
    assert (await call("setMessageReaction", chat_id=42, message_id=1, reaction=eyes))[0] == 200


async def test_parse_mode_is_parsed_by_telegrams_own_parser_or_refused(
    bot_api: RunningBotApi, call: RawCall, ann: Person
) -> None:
    status, answer = await call("sendMessage", chat_id=42, text="<b>hi</b>", parse_mode="HTML")
    if status == 200:
        assert answer["result"]["entities"] == [bold(0, 2)]
        assert "can't parse entities" in await refused(
            call, "sendMessage", chat_id=42, text="<b>hi", parse_mode="HTML"
        )
    else:
        assert len(await bot_api.violations()) == 1


async def test_garbage_instead_of_json_is_a_bad_request(
    bot_api: RunningBotApi, http: aiohttp.ClientSession
) -> None:
    url = f"{bot_api.base_url}/bot{TOKEN}/sendMessage"
    headers = {"Content-Type": "application/json"}
    for raw in (b"{", b"[1]", b'"x"'):
        async with http.post(url, data=raw, headers=headers) as response:
            assert response.status == 400
    async with http.get(f"{bot_api.base_url}/elsewhere") as response:
        assert response.status == 404
