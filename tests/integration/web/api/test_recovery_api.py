"""What a page sees of its site before hello, and codes that bring a conversation to another browser."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shared.adapters.postgres.people.visitors import REFUSED_KEPT
from shared.core.identity.people import CODE_ALPHABET
from tests.kit.web.fixtures import Frame, Server, Starter
from web.server.rate_limits import ClientLimits

SHOP = "https://shop.example"


async def shop(server: Server, **config: Any) -> None:
    await server.services.pool.execute(
        """INSERT INTO sites (name, agent_id, audience, allowed_origins, config)
           SELECT 'shop', agent_id, 'public', $1, $2 FROM sites WHERE name = 'default'""",
        [SHOP],
        config,
    )
    server.process.visitors.forget_sites()


async def post(server: Server, path: str, body: Any, *, token: str = "", **headers: str) -> tuple[int, Frame]:
    more = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{server.url}/api/v1/{path}"
    async with server.client.post(url, json=body, headers={**more, **headers}) as answer:
        return answer.status, await answer.json()


async def test_site_appearance_is_public_and_cached_for_five_minutes(server: Server) -> None:
    await shop(server, title="Acme", verified="optional", texts={"de": {"title": "Akme"}})
    url = f"{server.url}/api/v1/sites/shop"
    async with server.client.get(f"{url}?locale=de-AT", headers={"Origin": SHOP}) as answer:
        assert answer.status == 200
        assert await answer.json() == {"title": "Akme", "starters": []}
        assert answer.headers["Cache-Control"] == "public, max-age=300"
        assert answer.headers["Access-Control-Allow-Origin"] == SHOP
        assert "Access-Control-Allow-Credentials" not in answer.headers
        assert "Origin" in answer.headers["Vary"]
    async with server.client.get(f"{server.url}/api/v1/sites/nowhere") as answer:
        assert answer.status == 404


async def test_a_page_that_is_not_allowed_can_read_that_it_is_not(server: Server) -> None:
    await shop(server, title="Acme")
    url = f"{server.url}/api/v1/sites/shop"
    for origin in ("https://evil.example", "null"):
        async with server.client.get(url, headers={"Origin": origin}) as answer:
            told = await answer.json()
            assert (answer.status, told["code"]) == (403, "foreign_origin")
            assert "Acme" not in str(told)
            assert answer.headers["Access-Control-Allow-Origin"] == origin
            assert "Access-Control-Allow-Credentials" not in answer.headers
            assert answer.headers["Cache-Control"] == "no-store"
            assert "Origin" in answer.headers["Vary"]


async def test_the_latest_pages_that_were_refused_are_kept_for_the_operator(server: Server) -> None:
    await shop(server)
    origins = [f"https://page{number}.example" for number in range(REFUSED_KEPT + 3)]
    for origin in (*origins, "null", "https://" + "a" * 300 + ".example", origins[-1]):
        async with server.client.get(f"{server.url}/api/v1/sites/shop", headers={"Origin": origin}) as answer:
            assert answer.status == 403
    kept = await server.services.pool.fetch(
        "SELECT site, origin, refused FROM refused_origins ORDER BY last_at"
    )
    assert [row["origin"] for row in kept] == origins[3:]
    assert {row["site"] for row in kept} == {"shop"}
    assert [row["refused"] for row in kept][-2:] == [1, 2]


async def test_a_welcome_tells_what_the_site_says_in_the_visitors_language(server: Server) -> None:
    await shop(server, welcome="Hello", starters=["One"], accent="#fc0", texts={"de": {"welcome": "Hallo"}})
    _, welcome = await server.greet(site="shop", origin=SHOP, locale="de")
    assert welcome["site"] == {
        "welcome": "Hallo", "starters": ["One"], "accent": "#ffcc00", "on_accent": "#000000",
    }  # fmt: skip
    assert welcome["audience"] == "public"
    _, other = await server.greet()
    assert other["site"] == {"starters": []}


async def test_a_change_of_a_site_is_seen_without_a_restart(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop(server, title="Before")
    await server.greet(site="shop", origin=SHOP)
    await server.services.pool.execute("""UPDATE sites SET config = '{"title": "After"}'""")
    monkeypatch.setattr("web.auth.visitors.SITES_SECONDS", 0.0)
    _, welcome = await server.greet(site="shop", origin=SHOP)
    assert welcome["site"]["title"] == "After"


async def test_apps_without_an_origin_are_let_in_where_the_site_says_so(server: Server) -> None:
    await shop(server)
    refused = await post(server, "recover", {"code": "x", "site": "shop"}, Origin="null")
    assert refused[0] == 403
    with pytest.raises(Exception, match="403"):
        await server.connect(origin="null")
    await server.services.pool.execute(
        """UPDATE sites SET config = '{"webview": true}' WHERE name = 'shop'"""
    )
    server.process.visitors.forget_sites()
    _, welcome = await server.greet(site="shop", origin="null")
    assert welcome["token"]
    elsewhere = await server.connect(origin="null")
    await elsewhere.send({"t": "hello", "v": 1, "site": "default", "last_seq": 0})
    assert await elsewhere.closed() == 4403
    with pytest.raises(Exception, match="403"):
        await server.connect(origin="nullnull")


async def test_a_code_opens_the_conversation_in_another_browser(server: Server) -> None:
    screen, mine = await server.greet()
    await screen.say("Keep me")
    await screen.until("run", state="done")
    status, made = await post(server, "recovery-code", {}, token=mine["token"])
    assert status == 200
    assert re.fullmatch(r"([A-Z2-9]{4}-){5}[A-Z2-9]{4}", made["code"])
    stored = await server.services.pool.fetchval("SELECT r::text FROM recovery_codes r")
    assert made["code"].replace("-", "") not in stored
    status, found = await post(server, "recover", {"code": made["code"].lower().replace("-", " ")})
    assert status == 200
    assert found["token"] != mine["token"]
    _, there = await server.greet(token=found["token"])
    assert there["session"] == mine["session"]
    _, here = await server.greet(token=mine["token"])
    assert here["session"] == mine["session"], "the browser that has it keeps it"
    again = await post(server, "recover", {"code": made["code"]})
    assert again[0] == 200, "an answer that got lost on the way costs nobody their conversation"


async def test_a_new_code_replaces_the_former(server: Server) -> None:
    _, mine = await server.greet()
    (_, first), (_, second) = [await post(server, "recovery-code", {}, token=mine["token"]) for _ in range(2)]
    assert (await post(server, "recover", {"code": first["code"]}))[0] == 404
    assert (await post(server, "recover", {"code": second["code"]}))[0] == 200
    await server.services.pool.execute("UPDATE recovery_codes SET expires_at = now()")
    assert (await post(server, "recover", {"code": second["code"]}))[0] == 404


@pytest.mark.control("S50")
async def test_wrong_codes_are_all_answered_alike(server: Server) -> None:
    _, mine = await server.greet()
    _, made = await post(server, "recovery-code", {}, token=mine["token"])
    await shop(server)
    wrong = [{"code": ""}, {"code": "A" * 5_000}, {"code": "ABCD-EFGH-JKLM-NPQR-STUV-WXYZ"}]
    wrong += [{"code": made["code"], "site": "shop"}, {"code": made["code"], "site": "nowhere"}]
    answers = []
    for body in wrong:
        status, answer = await post(server, "recover", body)
        answers.append((status, answer["code"], answer["message"]))
        server.process.limiter.addresses._windows.clear()
    assert set(answers) == {(404, "unknown_code", answers[0][2])}


@pytest.mark.parametrize("site", ["a\x00b", "\ud800"])
async def test_at_a_site_that_cannot_be_no_code_opens_anything(server: Server, site: str) -> None:
    assert (await post(server, "recover", {"code": "ABCD", "site": site}))[0] == 404


@pytest.mark.parametrize("body", [{}, {"code": 7}, {"code": "x", "site": []}, {"code": "x", "page": "yes"}])
async def test_what_is_no_question_is_refused(server: Server, body: Any) -> None:
    status, answer = await post(server, "recover", body)
    assert (status, answer["code"]) == (400, "bad_field")


@pytest.mark.control("S10")
async def test_guessing_recovery_codes_is_rate_limited(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(recoveries=2))
    statuses = [(await post(server, "recover", {"code": f"GUESS{number}"}))[0] for number in range(4)]
    assert statuses == [404, 404, 429, 429]


@pytest.mark.control("S10")
async def test_guesses_from_many_addresses_lock_no_other_site(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(recoveries=2), trusted_proxies="127.0.0.1")
    _, mine = await server.greet()
    _, made = await post(server, "recovery-code", {}, token=mine["token"])
    for number in range(60):
        from_there = {"X-Forwarded-For": f"198.51.100.{number}"}
        status, _ = await post(
            server,
            "recover",
            {"code": f"{CODE_ALPHABET[number // 8] + CODE_ALPHABET[number % 8]}HHHHHHHHH"},
            **from_there,
        )
        assert status == 404
    assert (await post(server, "recover", {"code": made["code"]}))[0] == 200
    beginning = made["code"][:9]
    statuses = [
        (
            await post(
                server,
                "recover",
                {"code": f"{beginning}-{CODE_ALPHABET[number]}"},
                **{"X-Forwarded-For": f"192.0.2.{number}"},
            )
        )[0]
        for number in range(3)
    ]
    assert statuses == [404, 404, 429]


async def test_recovery_code_needs_a_conversation(server: Server) -> None:
    assert (await post(server, "recovery-code", {}))[0] == 401


async def test_the_full_page_gets_its_cookie_and_no_token(server: Server) -> None:
    _, mine = await server.greet()
    _, made = await post(server, "recovery-code", {}, token=mine["token"])
    url, body = f"{server.url}/api/v1/recover", {"code": made["code"], "page": True}
    async with server.client.post(url, json=body, headers={"Origin": server.url}) as answer:
        assert answer.status == 200
        assert await answer.json() == {"token": None}
        cookie = answer.cookies["evertalk_visitor"]
        assert cookie["httponly"]
    _, there = await server.greet(cookie=f"evertalk_visitor={cookie.value}")
    assert there["session"] == mine["session"]
    async with server.client.post(url, json=body) as answer:
        assert answer.status == 403, "not a page of ours"


async def test_where_signing_in_is_required_codes_open_nothing(server: Server) -> None:
    _, mine = await server.greet()
    _, made = await post(server, "recovery-code", {}, token=mine["token"])
    await server.services.pool.execute("""UPDATE sites SET config = '{"verified": "required"}'""")
    server.process.visitors.forget_sites()
    assert (await post(server, "recover", {"code": made["code"]}))[0] == 404
    assert (await post(server, "recovery-code", {}, token=mine["token"]))[0] == 401


async def test_browser_with_two_site_cookies_must_name_the_site(server: Server) -> None:
    await shop(server)
    url, tokens = server.url, {"default": "a" * 43, "shop": "b" * 43}
    sessions: dict[str, str] = {}
    names = {"default": "evertalk_visitor", "shop": "evertalk_visitor_shop"}
    for site, token in tokens.items():
        _, welcome = await server.greet(site=site, cookie=f"{names[site]}={token}")
        sessions[site] = welcome["session"]
    both = "; ".join(f"{names[site]}={token}" for site, token in tokens.items())
    for site, session in sessions.items():
        headers = {"Cookie": both, "X-Evertalk-Site": site}
        async with server.client.get(f"{url}/api/v1/sessions/{session}/messages", headers=headers) as answer:
            assert answer.status == 200
    headers = {"Cookie": both, "X-Evertalk-Site": "default", "Authorization": "Bearer x"}
    async with server.client.get(f"{url}/api/v1/archived", headers=headers) as answer:
        assert answer.status == 401, "whoever says by what they come is not let in by a cookie"
