"""The WebSocket's main road: hello, message, answer, resume, two screens, two processes."""

from __future__ import annotations

from shared.core.values.errors import ContextBudgetExceeded
from tests.kit.web.fixtures import Server, Starter, hello
from web.protocol import wire
from web.server.rate_limits import ClientLimits
from web.server.send_queue import MAX_FRAMES


async def test_a_new_visitor_gets_a_token_and_an_answer(server: Server) -> None:
    screen, welcome = await server.greet()
    assert welcome["v"] == 1
    assert welcome["resumed"] is False
    assert welcome["head"] == 0
    assert welcome["events"] == []
    assert welcome["limits"]["max_chars"] == 100_000
    assert welcome["limits"]["files"]["most"] == 5
    assert welcome["model"] == {"name": "scripted", "offline": True}
    assert {"help", "new"} <= {command["name"] for command in welcome["commands"]}
    assert len(welcome["token"]) >= 43
    await screen.say("Hi")
    ack = await screen.until("ack")
    assert (ack["cid"], ack["mid"], ack["event_seq"]) == ("c1", "m1", 1)
    assert "dup" not in ack
    mine = await screen.until("msg")
    assert (mine["role"], mine["text"], mine["cid"], mine["turn"], mine["event_seq"]) == (
        "person",
        "Hi",
        "c1",
        1,
        1,
    )
    assert (await screen.until("run"))["state"] == "started"
    answer = await screen.until("msg")
    assert (answer["role"], answer["text"], answer["event_seq"]) == ("assistant", "Hello there.", 2)
    assert (await screen.until("run"))["state"] == "done"
    assert (await screen.until("ctx"))["used"] == 10
    assert "".join(frame["text"] for frame in screen.frames if frame["t"] == "delta") in (
        "Hello there.",
        "Hello ",
    )


async def test_the_ack_comes_before_the_answer_begins(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.say("Hi")
    await screen.until("ctx")
    kinds = [frame["t"] for frame in screen.frames]
    assert kinds.index("ack") < kinds.index("msg") < kinds.index("run")


async def test_an_id_used_before_swallows_no_other_message(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("One", cid="c1")
    await screen.until("ack", cid="c1")
    await screen.say("Two", cid="c1")
    refused = await screen.until("error", cid="c1")
    assert refused["code"] == "cid_used"
    assert (refused["message"], refused["advice"]) == (
        "Another message has this id already.",
        "Please send the message again, under a new id.",
    )
    await screen.say("One", cid="c1")
    assert (await screen.until("ack", cid="c1"))["dup"] is True
    session_id = await server.session_id(welcome["session"])
    stored = await server.services.pool.fetchval(
        "SELECT count(*) FROM entries WHERE session_id = $1 AND role = 'user'", session_id
    )
    assert stored == 1


async def test_a_repeated_cid_gets_the_same_mid(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("Hi")
    first = await screen.until("ack")
    await screen.until("ctx")
    await screen.say("Hi")
    second = await screen.until("ack")
    assert (second["mid"], second["event_seq"], second["dup"]) == (first["mid"], first["event_seq"], True)
    again, back = await server.greet(token=welcome["token"])
    assert [event["event_seq"] for event in back["events"]] == [1, 2]
    await again.say("Hi")
    assert (await again.until("ack"))["dup"] is True


async def test_a_token_opens_the_same_session_again(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("ctx")
    await screen.socket.close()
    _, back = await server.greet(token=welcome["token"])
    assert back["session"] == welcome["session"]
    assert "token" not in back
    assert [(event["role"], event["text"]) for event in back["events"]] == [
        ("person", "Hi"),
        ("assistant", "Hello there."),
    ]
    assert back["events"][0]["cid"] == "c1"


async def test_coming_back_brings_only_what_was_missed(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("ctx")
    _, back = await server.greet(token=welcome["token"], last_seq=1)
    assert back["resumed"] is True
    assert back["head"] == 2
    assert [event["event_seq"] for event in back["events"]] == [2]
    _, nothing = await server.greet(token=welcome["token"], last_seq=2)
    assert (nothing["resumed"], nothing["events"]) == (True, [])


async def test_a_number_that_was_never_given_begins_again(server: Server) -> None:
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("ctx")
    _, back = await server.greet(token=welcome["token"], last_seq=99)
    assert back["resumed"] is False
    assert [event["event_seq"] for event in back["events"]] == [1, 2]


async def test_a_backlog_beyond_500_is_replaced_by_the_last_50_messages(server: Server) -> None:
    _, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    await server.services.pool.execute(
        """WITH s AS (UPDATE sessions SET next_event_seq = 603 WHERE id = $1)
           INSERT INTO events (session_id, event_seq, kind, payload)
           SELECT $1, n, 'msg', jsonb_build_object('text', 'notice ' || n) FROM generate_series(1, 602) n""",
        session_id,
    )
    _, back = await server.greet(token=welcome["token"], last_seq=101)
    assert back["resumed"] is False
    assert [event["event_seq"] for event in back["events"]] == list(range(553, 603))
    assert back["events"][0]["mid"] == "n553"
    _, near = await server.greet(token=welcome["token"], last_seq=102)
    assert near["resumed"] is True
    assert [event["event_seq"] for event in near["events"]] == list(range(103, 603))


async def test_both_screens_of_a_session_see_everything_in_order(server: Server) -> None:
    one, welcome = await server.greet()
    two, _ = await server.greet(token=welcome["token"])
    for number in range(5):
        await one.say(f"Message {number}", cid=f"c{number}")
        await one.until("ctx")
    await two.until("msg", event_seq=10)
    assert one.numbers == two.numbers == list(range(1, 11))


async def test_messages_during_an_answer_are_answered_next(server: Server) -> None:
    server.conversation.hold.clear()
    screen, welcome = await server.greet()
    await screen.say("One", cid="c1")
    await screen.until("delta")
    await screen.say("Two", cid="c2")
    await screen.until("ack", cid="c2")
    _, other = await server.greet(token=welcome["token"])
    assert other["state"]["queued"] == ["m2"]
    server.conversation.hold.set()
    await screen.until("msg", event_seq=4)
    assert server.conversation.answered[0] == 1


async def test_a_screen_that_comes_during_an_answer_gets_its_text_so_far(server: Server) -> None:
    server.conversation.hold.clear()
    server.conversation.script = ["Grüße 😀 ", "an alle."]
    screen, welcome = await server.greet()
    await screen.say("Hi")
    shown = ""
    while shown != "Grüße 😀 an alle.":
        shown += (await screen.until("delta"))["text"]
    _, late = await server.greet(token=welcome["token"])
    run = late["state"]["run"]
    assert (run["turn"], run["state"], run["text"]) == (1, "started", "Grüße 😀 an alle.")
    server.conversation.hold.set()
    await screen.until("ctx")
    _, after = await server.greet(token=welcome["token"])
    assert "run" not in after["state"]


async def test_deltas_are_put_together_and_lose_nothing(server: Server) -> None:
    server.conversation.script = [f"{number} " for number in range(400)]
    server.conversation.hold.clear()
    screen, _ = await server.greet()
    await screen.say("Count")
    text = ""
    while text != "".join(server.conversation.script):
        delta = await screen.until("delta")
        assert (delta["mid"], delta["attempt"], delta["off"]) == ("t1", 1, len(text))
        text += delta["text"]
    assert sum(frame["t"] == "delta" for frame in screen.frames) < 20
    server.conversation.hold.set()


async def test_stop_reaches_the_conversation(server: Server) -> None:
    server.conversation.hold.clear()
    screen, welcome = await server.greet()
    await screen.say("Hi")
    await screen.until("delta")
    await screen.send({"t": "stop", "mid": "t1"})
    await screen.until("msg", event_seq=2)
    assert server.conversation.stopped == [await server.session_id(welcome["session"])]


async def test_stop_without_an_answer_ends_a_screens_waiting(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.send({"t": "stop", "mid": "t7"})
    assert await screen.until("run") == {"t": "run", "turn": 7, "state": "done"}


async def test_a_command_shows_progress_and_one_durable_result(server: Server) -> None:
    screen, welcome = await server.greet()
    other, _ = await server.greet(token=welcome["token"])
    await screen.send({"t": "command", "cid": "k1", "command": "compact", "args": "--force"})
    progress = await screen.until("command.progress")
    assert (progress["cid"], progress["message"], progress["percent"]) == ("k1", "Working", 50)
    result = await screen.until("command.result")
    assert (result["command"], result["success"], result["cid"], result["event_seq"]) == (
        "compact",
        True,
        "k1",
        1,
    )
    assert (await other.until("command.result"))["event_seq"] == 1
    assert server.services.commands.asked == [("compact", "--force")]


async def test_ping_is_answered(server: Server) -> None:
    screen, _ = await server.greet()
    await screen.send({"t": "ping", "n": 7})
    assert await screen.until("pong") == {"t": "pong", "n": 7}


async def test_frames_that_come_together_do_not_crowd_out_their_own_replies(starter: Starter) -> None:
    """More of them in one packet than wait for a slow reader at most."""
    server = await starter.start(limits=ClientLimits(frames=10_000))
    screen, _ = await server.greet()
    for number in range(3 * MAX_FRAMES):
        await screen.send({"t": "ping", "n": number})
    for number in range(3 * MAX_FRAMES):
        await screen.until("pong", n=number)


async def test_an_orphaned_turn_is_picked_up(server: Server) -> None:
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    address_id = await server.services.pool.fetchval(
        "SELECT id FROM addresses WHERE session_id = $1", session_id
    )
    from shared.core.session.turns import Inbound

    await server.conversation.accept_and_claim(
        Inbound(session_id=session_id, address_id=address_id, text="Lost", dedupe_key="web:x", cid="x")
    )
    assert (await screen.until("msg", role="assistant"))["event_seq"] == 2
    assert screen.numbers == [1, 2]
    assert server.conversation.beats > 0


async def test_a_compaction_is_followed_by_the_new_gauge(server: Server) -> None:
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    number = await server.conversation.store_event(session_id, "compaction", {"id": "x", "state": "done"})
    server.process.hub.advance_to(session_id, number)
    assert (await screen.until("compaction"))["state"] == "done"
    await screen.until("ctx")


async def test_a_public_site_shows_a_plain_chat(starter: Starter) -> None:
    server = await starter.start(profile="public")
    screen, welcome = await server.greet()
    assert welcome["audience"] == "public"
    assert welcome["ctx"] is None
    assert welcome["model"] == {"name": "", "offline": True}
    assert {command["name"] for command in welcome["commands"]} == {
        "help", "new", "stop", "feedback", "search", "forget", "human", "export",
    }  # fmt: skip
    session_id = await server.session_id(welcome["session"])
    number = await server.conversation.store_event(session_id, "compaction", {"id": "x", "summary": "secret"})
    server.process.hub.advance_to(session_id, number)
    assert await screen.until("hidden") == {"t": "hidden", "event_seq": number}
    await screen.say("Hi")
    await screen.until("run", state="done")
    await screen.send({"t": "ping", "n": 1})
    await screen.until("pong")
    assert not {"ctx", "compaction"} & {frame["t"] for frame in screen.frames}
    await screen.send({"t": "command", "cid": "k", "command": "compact", "args": ""})
    refused = await screen.until("error")
    assert (refused["code"], refused["advice"]) == ("unknown_command", "/help shows what I know.")


async def test_a_public_visitor_reads_kind_words_where_an_error_names_tokens(starter: Starter) -> None:
    server = await starter.start(profile="public")
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    refused = ContextBudgetExceeded(hard=5_000, largest=[("system", 4_321), ("message m1", 900)])
    shown = {"mid": "m7", "role": "notice", "turn": 1, "text": refused.advice, "error": refused.code}
    number = await server.conversation.store_event(session_id, "msg", shown)
    server.process.hub.advance_to(session_id, number)
    live = await screen.until("msg", error=refused.code)
    again, later = await server.greet(token=welcome["token"])
    stored = [event for event in later["events"] if event.get("error")]
    missed, resumed = await server.greet(token=welcome["token"], last_seq=number - 1)
    for frame in (live, *stored, *(event for event in resumed["events"] if event.get("error"))):
        assert frame["text"] == "This is too much for me at once. Please make it shorter."
    assert stored
    said = str([*screen.frames, *again.frames, *missed.frames])
    assert not [word for word in ("4,321", "tokens", "system (") if word in said]


async def test_on_a_personal_site_the_same_error_names_its_numbers(server: Server) -> None:
    screen, welcome = await server.greet()
    session_id = await server.session_id(welcome["session"])
    refused = ContextBudgetExceeded(hard=5_000, largest=[("system", 4_321)])
    shown = {"mid": "m7", "role": "notice", "turn": 1, "text": refused.advice, "error": refused.code}
    server.process.hub.advance_to(session_id, await server.conversation.store_event(session_id, "msg", shown))
    assert "4,321 tokens" in (await screen.until("msg", error=refused.code))["text"]


def test_an_error_frame_for_a_public_visitor_has_the_same_kind_words() -> None:
    refused = ContextBudgetExceeded(hard=5_000, largest=[("system", 4_321)])
    frame = wire.error(refused, public=True)
    assert "tokens" not in str(frame)
    assert "4,321" in wire.error(refused)["advice"]


async def test_visitor_is_stored_only_after_acting(server: Server) -> None:
    visitors = "SELECT count(*) FROM visitors"
    screen, welcome = await server.greet(begin=False)
    assert (welcome["session"], welcome["head"], welcome["events"], "token" in welcome) == ("", 0, [], False)
    assert welcome["commands"]
    await screen.send({"t": "ping", "n": 1})
    await screen.until("pong")
    assert await server.services.pool.fetchval(visitors) == 0
    await screen.say("Hi", cid="c1")
    begun = await screen.until("welcome")
    assert (await screen.until("ack"))["cid"] == "c1"
    assert await server.services.pool.fetchval(visitors) == 1
    _, back = await server.greet(token=begun["token"], begin=False)
    assert back["session"] == begun["session"]


async def test_frames_about_a_conversation_begin_none(server: Server) -> None:
    screen, _ = await server.greet(begin=False)
    for frame in (
        {"t": "typing"},
        {"t": "stop", "mid": None},
        {"t": "resync", "mid": "t1"},
        {"t": "read", "seq": 1},
        {"t": "of_a_later_protocol"},
        hello(begin=False),
    ):
        await screen.send(frame)
    await screen.send({"t": "ping", "n": 1})
    await screen.until("pong")
    assert await server.services.pool.fetchval("SELECT count(*) FROM visitors") == 0
    assert [frame["t"] for frame in screen.frames] == ["welcome", "pong"]


async def test_visitor_begins_a_conversation_before_sending_a_file(server: Server) -> None:
    screen, _ = await server.greet(begin=False)
    await screen.send({"t": "begin"})
    begun = await screen.until("welcome")
    assert begun["session"]
    await screen.send({"t": "begin"})
    await screen.send({"t": "ping", "n": 1})
    await screen.until("pong")
    assert [frame["t"] for frame in screen.frames] == ["welcome", "welcome", "pong"]
    assert await server.services.pool.fetchval("SELECT count(*) FROM visitors") == 1


async def test_who_looks_in_is_asked_to_come_back_when_the_server_restarts(server: Server) -> None:
    screen, _ = await server.greet(begin=False)
    server.process.hub.close_all()
    assert (await screen.until("bye"))["code"] == 1012
