"""Who a site says somebody is: no forgery opens anything, and one person has one conversation everywhere."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any, cast

import jwt
import pytest
from pydantic import SecretStr

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.sites import PostgresSites
from shared.config.sites import build_secret_context
from shared.core.identity.handover import NewHandover
from shared.runtime import ignore_crash_point
from shared.services.privacy.erasure import ErasureService
from tests.integration.web.auth.signed_people import KEY, SECRET, claims, signed, with_people
from tests.kit.web.event_stream_client import URL, open_stream, post, ticket
from tests.kit.web.fixtures import Frame, Screen, Server, Starter, hello
from web.auth.site_tokens import BadIdentity, IdentityExpired, read_identity

NOW = 1_800_000_000


def by_hand(header: Any, payload: Any, secret: bytes = SECRET) -> str:
    """What no honest library would make."""
    parts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in (header, payload)]
    body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    mark = hmac.new(secret, body, hashlib.sha256).digest()
    return (body + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


HS256 = {"alg": "HS256", "typ": "JWT"}
PUBLIC_KEY = b"-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAL==\n-----END PUBLIC KEY-----\n"
FORGED: dict[str, Callable[[], str]] = {
    "another secret": lambda: signed(b"x" * 48),
    "no algorithm": lambda: by_hand({"alg": "none"}, claims()).rpartition(".")[0] + ".",
    "none, but signed": lambda: by_hand({"alg": "none"}, claims()),
    "None in other letters": lambda: by_hand({"alg": "nOnE"}, claims()),
    "another algorithm of the family": lambda: jwt.encode(claims(), b"s" * 64, algorithm="HS512"),
    "says RS256": lambda: by_hand({"alg": "RS256"}, claims()),
    "a public key as the secret": lambda: by_hand(HS256, claims(), PUBLIC_KEY),
    "an empty secret": lambda: by_hand(HS256, claims(), b""),
    "a key in the header": lambda: by_hand({**HS256, "jwk": {"kty": "oct", "k": "AAAA"}}, claims()),
    "a key's address": lambda: by_hand({**HS256, "jku": "https://evil.example/keys"}, claims()),
    "critical headers": lambda: by_hand({**HS256, "crit": ["b64"], "b64": False}, claims()),
    "a list as header": lambda: by_hand([], claims()),
    "another site": lambda: signed(aud="other"),
    "several sites": lambda: signed(aud=["default", "other"]),
    "no site": lambda: signed(aud=None),
    "for ever": lambda: signed(exp=None),
    "for a day": lambda: signed(exp=int(time.time()) + 86_400),
    "for ever, as infinity": lambda: by_hand(HS256, b'{"sub":"42","aud":"default","iat":1,"exp":Infinity}'),
    "a moment that is none": lambda: by_hand(HS256, b'{"sub":"42","aud":"default","iat":1,"exp":NaN}'),
    "a moment as text": lambda: by_hand(HS256, claims(exp=str(int(time.time()) + 60))),
    "no beginning": lambda: signed(iat=None),
    "from the future": lambda: signed(iat=int(time.time()) + 300),
    "nobody": lambda: signed(sub=None),
    "nobody, as empty text": lambda: signed(sub=""),
    "a number": lambda: by_hand(HS256, claims(sub=42)),
    "an object": lambda: by_hand(HS256, claims(sub={"$ne": ""})),
    "a long name": lambda: signed(sub="x" * 201),
    "a list as claims": lambda: by_hand(HS256, ["42"]),
    "a number as claims": lambda: by_hand(HS256, 7),
    "nested deeply": lambda: by_hand(HS256, b'{"a":' * 1_500 + b"1" + b"}" * 1_500),
    "huge": lambda: signed(more="x" * 5_000),
    "empty": lambda: " ",
    "two dots": lambda: "..",
    "no token": lambda: "hello",
    "letters of no alphabet": lambda: "ü.ü.ü",
    "cut": lambda: signed()[:-3],
    "changed": lambda: signed().replace(".", "A.", 1),
}


@pytest.mark.control("S06")
@pytest.mark.parametrize("name", FORGED)
def test_no_forgery_is_believed(name: str) -> None:
    with pytest.raises(BadIdentity) as caught:
        read_identity(FORGED[name](), site="default", secrets=[SECRET])
    assert caught.value.code == "identity_invalid"


@pytest.mark.control("S06")
@pytest.mark.parametrize("kid", ["../../dev/null", "' OR 1=1 --", "0", "x" * 500])
def test_a_key_id_chooses_nothing(kid: str) -> None:
    good = jwt.encode(claims(), SECRET, algorithm="HS256", headers={"kid": kid})
    assert read_identity(good, site="default", secrets=[SECRET]).subject == "42"
    bad = jwt.encode(claims(), b"x" * 48, algorithm="HS256", headers={"kid": kid})
    with pytest.raises(BadIdentity):
        read_identity(bad, site="default", secrets=[SECRET])


def test_either_of_two_secrets_will_do_and_none_is_none() -> None:
    for secret in (SECRET, b"t" * 48):
        said = read_identity(signed(secret), site="default", secrets=[b"t" * 48, SECRET])
        assert said.subject == "42"
    with pytest.raises(BadIdentity):
        read_identity(signed(), site="default", secrets=[])


def test_expired_identity_is_distinguished_from_a_forgery() -> None:
    moment = int(time.time())
    with pytest.raises(IdentityExpired):
        read_identity(signed(iat=moment - 900, exp=moment - 60), site="default", secrets=[SECRET])


# On a server.


async def talked(server: Server, text: str = "My parcel?", **values: Any) -> tuple[Screen, Frame]:
    screen, welcome = await server.greet(**values)
    await screen.say(text, cid=f"c-{text[:20].replace(' ', '-').strip('?')}")
    await screen.until("run", state="done")
    return screen, welcome


def texts(welcome: Frame) -> list[str]:
    return [event["text"] for event in welcome["events"] if event.get("role") == "person"]


async def refused(server: Server, **values: Any) -> tuple[str, int | None]:
    screen = await server.connect()
    await screen.send(hello(**values))
    error = await screen.until("error")
    return error["code"], await screen.closed()


async def sound(server: Server) -> bool:
    async with server.services.pool.acquire() as connection:
        report = await check_invariants(cast("Any", connection))
    return [one for one in report if one.code == "I7"] == []


async def test_the_same_person_on_two_browsers_has_one_conversation(starter: Starter) -> None:
    server = await with_people(starter)
    screen, first = await talked(server, identity=signed(name="Ada\nL."))
    there, second = await server.greet(identity=signed())
    assert first["identified"] == second["identified"] != ""
    assert second["session"] == first["session"]
    assert second["token"] != first["token"]
    assert texts(second) == ["My parcel?"]
    await there.say("And from the phone", cid="c2")
    assert (await screen.until("msg", cid="c2"))["text"] == "And from the phone"
    name = await server.services.pool.fetchval("SELECT display_name FROM contacts WHERE display_name <> ''")
    assert name == "Ada L."
    _, other = await server.greet(identity=signed(sub="43"))
    assert other["session"] != first["session"]
    assert await sound(server)


@pytest.mark.control("S36")
async def test_what_a_person_calls_themselves_on_the_site_is_not_stored(starter: Starter) -> None:
    """The e-mail is, once, for whoever answers."""
    server = await with_people(starter)
    await talked(server, identity=signed(sub="ada-of-the-site", email="ada@example.org"))
    pool = server.services.pool
    for table in ("addresses", "contacts", "visitors", "sessions"):
        rows = [row["row"] for row in await pool.fetch(f"SELECT t::text AS row FROM {table} t")]
        assert "ada-of-the-site" not in str(rows)
        assert sum("ada@example.org" in row for row in rows) == (table == "addresses")
    assert await pool.fetchval("SELECT contact ->> 'email' FROM addresses") == "ada@example.org"


async def test_anonymous_conversation_continues_after_sign_in(starter: Starter) -> None:
    server = await with_people(starter)
    stranger, before = await talked(server)
    _, after = await server.greet(token=before["token"], identity=signed())
    assert after["session"] == before["session"]
    assert texts(after) == ["My parcel?"]
    assert (await stranger.until("bye"))["reason"] == "moved", "whoever shares the old token sees no more"
    assert await refused(server, token=before["token"]) == ("unknown_token", 4401)
    _, elsewhere = await server.greet(identity=signed())
    assert elsewhere["session"] == before["session"]
    assert await sound(server)


async def test_an_anonymous_conversation_is_kept_beside_the_one_there_is(starter: Starter) -> None:
    server = await with_people(starter)
    await talked(server, "The long one", identity=signed())
    _, before = await talked(server, "The short one")
    _, after = await server.greet(token=before["token"], identity=signed())
    assert after["session"] != before["session"]
    assert texts(after) == ["The long one"]
    headers = {"Authorization": f"Bearer {after['token']}"}
    async with server.client.get(f"{server.url}/api/v1/archived", headers=headers) as answer:
        kept = (await answer.json())["sessions"]
    assert [one["messages"][0]["text"] for one in kept] == ["The short one"]
    assert await refused(server, token=before["token"]) == ("unknown_token", 4401)
    assert await sound(server)


async def test_an_empty_conversation_is_simply_left(starter: Starter) -> None:
    server = await with_people(starter)
    _, first = await talked(server, identity=signed())
    stranger, before = await server.greet()
    _, after = await server.greet(token=before["token"], identity=signed())
    assert after["session"] == first["session"]
    assert (await stranger.until("bye"))["reason"] == "moved"
    assert await server.services.pool.fetchval("SELECT count(*) FROM contact_links") == 0
    assert await sound(server)


@pytest.mark.control("S06")
async def test_token_of_another_person_merges_nothing_at_sign_in(starter: Starter) -> None:
    server = await with_people(starter)
    _, ada = await talked(server, "Of Ada", identity=signed(sub="ada"))
    _, bob = await server.greet(token=ada["token"], identity=signed(sub="bob"))
    assert bob["session"] != ada["session"]
    assert texts(bob) == []
    assert await refused(server, token=ada["token"]) == ("unknown_token", 4401)
    _, again = await server.greet(identity=signed(sub="ada"))
    assert texts(again) == ["Of Ada"]
    assert await sound(server)


async def test_sign_in_waits_while_the_other_answer_is_written(starter: Starter) -> None:
    server = await with_people(starter)
    await talked(server, "The long one", identity=signed())
    server.conversation.hold.clear()
    screen, before = await server.greet()
    await screen.say("Just a moment", cid="slow")
    await screen.until("delta")
    assert await refused(server, token=before["token"], identity=signed()) == ("busy", 1013)
    server.conversation.hold.set()
    await screen.until("run", state="done")
    _, after = await server.greet(token=before["token"], identity=signed())
    assert texts(after) == ["The long one"]


async def outage(server: Server, session: str) -> None:
    """The provider is away: the answer waits for its next attempt in nobody's hands."""
    await server.services.pool.execute(
        "UPDATE sessions SET retry_at = now() + interval '10 min' WHERE public_id = $1", session
    )


async def unanswered(server: Server, **values: Any) -> Frame:
    server.conversation.hold.clear()
    screen, welcome = await server.greet(**values)
    await screen.say("Still waiting", cid="waits")
    await screen.until("delta")
    return welcome


async def test_who_waits_out_an_outage_goes_on_and_is_signed_in_later(starter: Starter) -> None:
    server = await with_people(starter)
    await talked(server, "The long one", identity=signed())
    before = await unanswered(server)
    await outage(server, before["session"])
    _, meanwhile = await server.greet(token=before["token"], identity=signed())
    assert (meanwhile["session"], "identified" in meanwhile) == (before["session"], False)
    screen, _ = await server.greet(token=before["token"])
    await screen.send({"t": "identify", "identity": signed()})
    assert "identified" not in await screen.until("welcome")
    server.conversation.hold.set()
    await screen.until("run", state="done")
    _, after = await server.greet(token=before["token"], identity=signed())
    assert (texts(after), bool(after["identified"])) == (["The long one"], True)
    assert await sound(server)


async def test_who_signs_in_joins_a_conversation_that_waits_out_an_outage(starter: Starter) -> None:
    server = await with_people(starter)
    _, before = await talked(server, "The short one")
    mine = await unanswered(server, identity=signed())
    assert await refused(server, token=before["token"], identity=signed()) == ("busy", 1013)
    await outage(server, mine["session"])
    _, after = await server.greet(token=before["token"], identity=signed())
    assert (after["session"], bool(after["identified"])) == (mine["session"], True)
    server.conversation.hold.set()
    assert await refused(server, token=before["token"]) == ("unknown_token", 4401)


async def test_long_answer_does_not_prevent_sign_in(starter: Starter) -> None:
    server = await with_people(starter, "optional")
    await talked(server, "The long one", identity=signed())
    before = await unanswered(server)
    await server.services.pool.execute("UPDATE turns SET opened_at = opened_at - interval '31 s'")
    _, meanwhile = await server.greet(token=before["token"], identity=signed())
    assert meanwhile["session"] == before["session"]
    await server.services.pool.execute("""UPDATE sites SET config = '{"verified": "required"}'""")
    server.process.visitors.forget_sites()
    _, strict = await server.greet(token=before["token"], identity=signed())
    assert (texts(strict), bool(strict["identified"])) == (["The long one"], True)


async def test_signing_in_and_out_on_an_open_socket(starter: Starter) -> None:
    server = await with_people(starter)
    screen, before = await talked(server)
    await screen.send({"t": "identify", "identity": signed()})
    after = await screen.until("welcome")
    assert (after["session"], bool(after["identified"])) == (before["session"], True)
    assert after["token"] != before["token"]
    await screen.say("Still here", cid="c9")
    await screen.until("run", state="done")
    await screen.send({"t": "identify", "identity": None})
    out = await screen.until("welcome")
    assert "identified" not in out
    assert out["session"] != before["session"]
    assert out["events"] == []
    assert await refused(server, token=after["token"]) == ("unknown_token", 4401)
    await screen.send({"t": "identify", "identity": "nonsense"})
    assert (await screen.until("error"))["code"] == "identity_invalid"
    assert await screen.closed() == 4401


async def test_visitor_who_signs_in_and_out_keeps_the_cap_of_the_network(starter: Starter) -> None:
    server = await with_people(starter, settings={"profile": "public", "trusted_proxies": "127.0.0.1"})
    headers = {"X-Forwarded-For": "203.0.113.9", "Origin": server.url}
    screen = Screen(socket=await server.client.ws_connect(f"{server.url}/ws", headers=headers))
    await screen.send(hello())
    await screen.until("welcome")
    for identity in (signed(), None):
        await screen.send({"t": "identify", "identity": identity})
        await screen.until("welcome")
    await screen.say("My parcel?", cid="c1")
    await screen.until("run", state="done")
    networks = await server.services.pool.fetchval("SELECT array_agg(network) FROM contacts WHERE anonymous")
    assert len(set(networks)) == 1
    assert None not in networks


async def test_a_screen_that_comes_back_late_goes_by_its_own_token(starter: Starter) -> None:
    server = await with_people(starter)
    _, mine = await talked(server, identity=signed())
    moment = int(time.time())
    old = signed(iat=moment - 900, exp=moment - 100)
    _, back = await server.greet(token=mine["token"], identity=old)
    assert back["session"] == mine["session"]
    _, anonymous = await server.greet()
    assert await refused(server, token=anonymous["token"], identity=old) == ("identity_expired", 4401)
    await server.services.pool.execute(
        "UPDATE visitors SET expires_at = now() - interval '1 s' WHERE identified"
    )
    assert await refused(server, token=mine["token"], identity=old) == ("identity_expired", 4401)


@pytest.mark.control("S05")
async def test_signed_in_token_lives_one_day_however_often_used(starter: Starter) -> None:
    server = await with_people(starter)
    _, mine = await server.greet(identity=signed())
    pool = server.services.pool
    await pool.execute("UPDATE visitors SET last_seen_at = now() - interval '1 h'")
    await server.greet(token=mine["token"])
    assert await pool.fetchval("SELECT max(expires_at) < now() + interval '25 hours' FROM visitors")


@pytest.mark.control("S06")
async def test_required_identity_refuses_unsigned_visitors(starter: Starter) -> None:
    server = await with_people(starter, "optional")
    _, anonymous = await server.greet()
    await server.services.pool.execute("""UPDATE sites SET config = '{"verified": "required"}'""")
    server.process.visitors.forget_sites()
    for values in ({}, {"token": anonymous["token"]}):
        assert await refused(server, **values) == ("identity_required", 4401)
    status, code = await get(server, "/api/v1/commands", anonymous["token"])
    assert (status, code) == (401, "identity_required")
    assert await refused(server, identity="x.y.z") == ("identity_invalid", 4401)
    screen, mine = await server.greet(identity=signed())
    assert (await get(server, "/api/v1/commands", mine["token"]))[0] == 200
    _, again = await server.greet(token=mine["token"])
    assert again["session"] == mine["session"]
    await screen.send({"t": "identify", "identity": None})
    assert (await screen.until("error"))["code"] == "identity_required"
    assert await screen.closed() == 4401
    cookie = f"evertalk_visitor={'a' * 43}"
    screen = await server.connect(cookie=cookie)
    await screen.send(hello())
    assert (await screen.until("error"))["code"] == "identity_required"


async def get(server: Server, path: str, token: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with server.client.get(f"{server.url}{path}", headers=headers) as answer:
        return answer.status, (await answer.json()).get("code", "")


async def test_site_without_sign_in_refuses_identities(starter: Starter) -> None:
    server = await with_people(starter, "off")
    assert await refused(server, identity=signed()) == ("identity_invalid", 4401)


@pytest.mark.control("S06")
async def test_a_revoked_secret_opens_nothing_and_ends_what_it_opened(starter: Starter) -> None:
    server = await with_people(starter)
    _, mine = await server.greet(identity=signed())
    assert await PostgresSites(server.services.pool).revoke_secret("default", "one", by="test")
    server.process.visitors.forget_sites()
    assert await refused(server, identity=signed()) == ("identity_invalid", 4401)
    assert await refused(server, token=mine["token"]) == ("unknown_token", 4401)


@pytest.mark.control("S06", "S08")
async def test_another_sites_signature_and_token_are_strangers_here(starter: Starter) -> None:
    server = await with_people(starter)
    pool = server.services.pool
    await pool.execute(
        """INSERT INTO sites (name, agent_id, config)
           SELECT 'other', agent_id, '{"verified": "optional"}' FROM sites"""
    )
    sealed = Encryption(KEY.encode()).seal(b"o" * 48, about=build_secret_context("other", "two"))
    assert await PostgresSites(pool).add_secret("other", "two", sealed, by="test")
    server.process.visitors.forget_sites()
    _, theirs = await talked(server, site="other", identity=signed(b"o" * 48, aud="other"))
    for forged in (signed(b"o" * 48), signed(aud="other"), signed(b"o" * 48, aud="other")):
        assert await refused(server, identity=forged) == ("identity_invalid", 4401)
    assert await refused(server, token=theirs["token"]) == ("unknown_token", 4401)
    _, mine = await server.greet(token=theirs["token"], identity=signed())
    assert mine["session"] != theirs["session"]
    assert texts(mine) == []
    _, still = await server.greet(site="other", token=theirs["token"])
    assert still["session"] == theirs["session"]


@pytest.mark.control("S08")
@pytest.mark.parametrize("begin", [True, None])
async def test_cookie_with_token_of_another_site_opens_a_new_conversation(
    starter: Starter, begin: bool | None
) -> None:
    server = await with_people(starter)
    await server.services.pool.execute(
        "INSERT INTO sites (name, agent_id, config) SELECT 'other', agent_id, config FROM sites"
    )
    server.process.visitors.forget_sites()
    _, theirs = await talked(server, site="other")
    screen = await server.connect(cookie=f"evertalk_visitor={theirs['token']}")
    await screen.send(hello(begin=begin))
    mine = await screen.until("welcome")
    assert mine["session"] != theirs["session"]
    assert texts(mine) == []
    _, still = await server.greet(site="other", token=theirs["token"])
    assert still["session"] == theirs["session"]


@pytest.mark.parametrize("identity", [7, ["x"], {"a": 1}, True])
async def test_an_identity_that_is_no_text_is_a_bad_hello(server: Server, identity: Any) -> None:
    assert await refused(server, identity=identity) == ("bad_frame", 4400)


async def test_unreadable_site_secret_refuses_all_identities(starter: Starter) -> None:
    server = await with_people(starter)
    await server.services.pool.execute("UPDATE site_secrets SET key_id = 'another'")
    server.process.visitors.forget_sites()
    assert await refused(server, identity=signed()) == ("identity_invalid", 4401)
    _, welcome = await server.greet()
    assert welcome["token"]


async def test_unreadable_site_settings_refuse_all_visitors(starter: Starter) -> None:
    server = await with_people(starter)
    await server.services.pool.execute("""UPDATE sites SET config = '{"verified": "perhaps"}'""")
    server.process.visitors.forget_sites()
    assert await refused(server) == ("unknown_site", 4403)


@pytest.mark.control("S06")
async def test_an_old_signature_of_another_person_opens_nobodys_conversation(starter: Starter) -> None:
    server = await with_people(starter)
    _, ada = await talked(server, "Of Ada", identity=signed(sub="ada"))
    moment = int(time.time())
    old = signed(sub="bob", iat=moment - 900, exp=moment - 100)
    assert await refused(server, token=ada["token"], identity=old) == ("identity_expired", 4401)
    _, back = await server.greet(
        token=ada["token"], identity=signed(sub="ada", iat=moment - 900, exp=moment - 100)
    )
    assert texts(back) == ["Of Ada"]


async def test_where_signing_in_is_required_a_stream_is_let_in_for_it(starter: Starter) -> None:
    server = await with_people(starter, "required")
    screen, welcome = await open_stream(server, identity=signed())
    assert welcome["identified"]
    await screen.say("My parcel?")
    assert (await screen.until("msg", role="assistant"))["text"] == "Hello there."
    assert (await ticket(server))["code"] == "identity_required"


@pytest.mark.control("S05")
async def test_a_ticket_opens_nothing_after_signing_out(starter: Starter) -> None:
    server = await with_people(starter)
    given = await ticket(server, identity=signed())
    answer = await post(server, given["token"], {"t": "identify", "identity": None})
    assert answer["close"]["reason"] == "signed again"
    async with server.client.get(f"{server.url}{URL}", params={"ticket": given["ticket"]}) as response:
        assert response.status == 401


async def test_signing_out_in_one_tab_sends_the_others_away(starter: Starter) -> None:
    server, other = await with_people(starter), await starter.start(secret_key=SecretStr(KEY))
    screen, mine = await talked(server, identity=signed())
    tabs = [(await one.greet(token=mine["token"]))[0] for one in (server, other)]
    stream, _ = await open_stream(server, token=mine["token"])
    phone, _ = await server.greet(identity=signed())
    await screen.send({"t": "identify", "identity": None})
    assert "identified" not in await screen.until("welcome")
    for tab in (*tabs, phone):
        assert (await tab.until("bye"))["reason"] == "signed out"
        assert await tab.closed() is not None
    assert await stream.closed() == 1012
    assert await refused(server, token=mine["token"]) == ("unknown_token", 4401)
    _, back = await server.greet(token=phone.frames[0]["token"])
    assert back["session"] == mine["session"], "another browser of theirs comes back by its own token"


async def test_signing_in_does_not_part_anybody_from_the_human_they_talk_with(starter: Starter) -> None:
    server = await with_people(starter)
    pool = server.services.pool
    await talked(server, "The long one", identity=signed())
    screen, before = await talked(server, "A human please")
    session_id = await server.session_id(before["session"])
    asked = NewHandover(session_id=session_id, address_id=None, asked_by="person")
    await PostgresHandovers(pool).request_handover(asked)
    await screen.send({"t": "identify", "identity": signed()})
    assert (await screen.until("welcome"))["session"] == before["session"]
    there, again = await server.greet(token=before["token"], identity=signed())
    assert again["session"] == before["session"]
    await there.say("Are you there?", cid="c7")
    await there.until("msg", role="assistant")
    await PostgresHandovers(pool).release(session_id, by="person")
    _, after = await server.greet(token=before["token"], identity=signed())
    assert texts(after) == ["The long one"]


# Several conversations.


async def conversations(server: Server, token: str) -> list[tuple[str, str]]:
    headers = {"Authorization": f"Bearer {token}"}
    async with server.client.get(f"{server.url}/api/v1/conversations", headers=headers) as answer:
        told = await answer.json()
        return [(one["session_id"], one["title"]) for one in told["conversations"]]


async def with_two(server: Server, first: str, second: str) -> str:
    """The token of an anonymous visitor who has spoken in two conversations, or in the second alone."""
    screen, welcome = await server.greet()
    token = welcome["token"]
    if first:
        await screen.say(first)
        await screen.until("run", state="done")
    else:
        await screen.send({"t": "command", "cid": "k1", "command": "help", "args": ""})
        await screen.until("command.result")
    headers = {"Authorization": f"Bearer {token}"}
    async with server.client.post(f"{server.url}/api/v1/conversations", headers=headers) as answer:
        session = (await answer.json())["session_id"]
    await talked(server, second, token=token, session=session)
    return str(token)


@pytest.mark.parametrize("first", ["One", ""])
async def test_all_conversations_of_a_visitor_come_along_when_they_sign_in(
    starter: Starter, first: str
) -> None:
    server = await with_people(starter, conversations="many")
    token = await with_two(server, first, "Two")
    _, after = await server.greet(token=token, identity=signed())
    assert texts(after) == ["Two"], "they go on in the one that they spoke in last"
    shown = [title for _, title in await conversations(server, after["token"])]
    assert shown == ["Two", first] if first else shown == ["Two"]
    another = await with_two(server, first and "Three", "Four")
    _, home = await server.greet(token=another, identity=signed())
    shown = [title for _, title in await conversations(server, home["token"])]
    assert shown[:2] == ["Four", "Two"]
    _, elsewhere = await server.greet(identity=signed())
    assert await conversations(server, elsewhere["token"]) == await conversations(server, home["token"])
    assert await refused(server, token=token) == ("unknown_token", 4401)
    assert await sound(server)


async def test_who_is_joined_with_another_channel_keeps_their_other_conversations(starter: Starter) -> None:
    server = await with_people(starter, conversations="many")
    token = await with_two(server, "One", "Two")
    _, mine = await server.greet(token=token)
    (second, _), (first, _) = await conversations(server, token)
    links, pool = server.services.stores.account_links, server.services.pool
    place = "SELECT a.id FROM addresses a JOIN sessions s ON s.id = a.session_id WHERE s.public_id = $1"
    code = await links.issue_code(await server.session_id(first), await pool.fetchval(place, first))
    _, other = await talked(server, "Elsewhere")
    joined = await links.link_account(
        await server.session_id(other["session"]), await pool.fetchval(place, other["session"]), code
    )
    assert not isinstance(joined, str)
    assert joined.session_id == await server.session_id(other["session"])
    assert dict(await conversations(server, token)) == {second: "Two", other["session"]: "Elsewhere"}
    assert mine["session"] == second
    assert [title for _, title in await conversations(server, other["token"])] == ["Elsewhere"]
    assert await sound(server)


async def test_forgetting_everything_forgets_each_conversation(starter: Starter) -> None:
    server = await with_people(starter, conversations="many")
    token = await with_two(server, "One", "Two")
    _, mine = await server.greet(token=token)
    other = next(session for session, title in await conversations(server, token) if title == "One")
    headers = {"Authorization": f"Bearer {token}"}
    async with server.client.patch(
        f"{server.url}/api/v1/sessions/{other}", headers=headers, json={"title": "Secret trip"}
    ) as answer:
        assert answer.status == 200
    erasure = server.services.stores.erasure
    await ErasureService(
        store=erasure, announcer=server.services.announcer, crash_point=ignore_crash_point
    ).erase_everything(await server.session_id(mine["session"]), "person")
    assert await conversations(server, token) == [(mine["session"], "")]
    for table in ("addresses", "entries", "events"):
        rows = await server.services.pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not [row for row in rows if "Secret trip" in row["row"] or '"One"' in row["row"]], table
    assert await sound(server)
