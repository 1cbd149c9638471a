"""What no database can hold is shown while it is written, stored, and there when a browser looks again."""

from __future__ import annotations

from tests.acceptance.web.conftest import Visitor, promises_hold
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.fixtures import Screen, hello

WORDS = (
    "The first line ends\x00 here, a picture \U0001f600 and half of one \ud83d follow,\x00 and all is well. "
    * 3
)
SHOWN = WORDS.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd")


async def test_an_answer_with_nul_amid_its_pieces_is_shown_and_kept(
    web_guest: Visitor, fake: RunningFake
) -> None:
    await fake.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": WORDS}}])
    await web_guest.ask("Read me the file", cid="c1")
    pieces = [frame["text"] for frame in web_guest.screen.frames if frame["t"] == "delta"]
    # A finished answer comes whole without waiting for its last pieces.
    assert pieces
    assert SHOWN.startswith("".join(pieces))
    await _stands(web_guest)


async def test_a_tool_that_is_called_with_nul_runs_and_the_answer_comes(
    web_guest: Visitor, fake: RunningFake
) -> None:
    call = {"name": "save_memory", "input": {"text": "Miso is a cat\x00 and\ud83d purrs", "kind": "fact"}}
    await fake.script(
        [
            {"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [call]}},
            {"match": {"kind": "chat"}, "times": 1, "action": {"text": WORDS}},
        ]
    )
    await web_guest.ask("Please remember that Miso is a cat", cid="c1")
    assert await web_guest.app.pool.fetchval("SELECT array_agg(status) FROM turn_steps") == ["done"]
    await _stands(web_guest)


async def _stands(visitor: Visitor) -> None:
    """Whoever opens the page anew sees it, too."""
    headers = {"Origin": visitor.url}
    again = Screen(socket=await visitor.client.ws_connect(f"{visitor.url}/ws", headers=headers))
    await again.send(hello(token=visitor.token))
    events = (await again.until("welcome"))["events"]
    answers = [one["text"] for one in events if one.get("role") == "assistant"]
    assert [text.strip() for text in answers] == [SHOWN.strip()]
    assert await visitor.app.pool.fetchval("SELECT array_agg(state) FROM turns") == ["answered"]
    await promises_hold(visitor.app)
