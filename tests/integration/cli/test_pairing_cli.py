"""Pairing at the terminal: plain tables, clear lines for bad codes, links that the first owner opens."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest
from pydantic import SecretStr

from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.cli.pairing import describe_bots, read_pairing_arguments, run_pairing
from shared.config.bots import BotConfig
from tests.kit.audit import read_audit

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BOT = 7_000_000_001


@pytest.fixture
async def access(pool: Pool) -> PostgresTelegramAccess:
    await enrol(pool)
    return PostgresTelegramAccess(pool)


async def enrol(pool: Pool, *, bot_id: int = BOT, username: str = "ever_bot") -> None:
    await PostgresTelegramChats(pool).enrol(
        bot_id, username=username, agent="default", audience="personal", access="pairing", mode="polling"
    )


def bot(number: int = BOT, name: str = "TELEGRAM_BOT_TOKEN") -> BotConfig:
    return BotConfig(
        token=SecretStr(f"{number}:{'x' * 35}"), token_name=name, agent="default", audience="personal",
        access="pairing", allowed=frozenset(), mode="polling",
    )  # fmt: skip


async def pairing(database_url: str, *words: str) -> tuple[int, str]:
    said: list[str] = []
    code = await run_pairing(
        read_pairing_arguments(words), database_url=database_url, bots=(bot(),), say=said.append
    )
    return code, "\n".join(said)


async def asked(access: PostgresTelegramAccess, number: int = 42, **told: str) -> str:
    row = await access.request_access(
        BOT, number, name=told.get("name", "Ada"), username=told.get("username", "ada")
    )
    assert row is not None
    assert row.code is not None
    return row.code


async def test_an_empty_list_says_how_it_is_filled(access: PostgresTelegramAccess, database_url: str) -> None:
    code, said = await pairing(database_url, "list")
    assert code == 0
    assert said.startswith("No requests yet.")


async def test_the_list_shows_who_waits_and_who_may_write(
    access: PostgresTelegramAccess, database_url: str
) -> None:
    code = await asked(access)
    await access.decide(BOT, 7, allowed=True, by="test", name="Grace", owner=True)
    _, said = await pairing(database_url, "list")
    header, first, second = said.splitlines()
    assert header.split() == ["code", "state", "id", "name", "asked", "bot"]
    assert first.split()[:5] == [code, "pending", "42", "Ada", "(@ada)"]
    assert second.split()[:4] == ["–", "owner", "7", "Grace"]
    assert first.endswith("@ever_bot")


async def test_a_strangers_name_cannot_steer_the_terminal(
    access: PostgresTelegramAccess, database_url: str
) -> None:
    await asked(access, name="\x1b[2J\u202eEve\nstate allowed" + "x" * 300)
    _, said = await pairing(database_url, "list")
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert len(said.splitlines()) == 2
    assert max(map(len, said.splitlines())) < 150


async def test_pairing_code_is_accepted_however_typed(
    access: PostgresTelegramAccess, database_url: str
) -> None:
    code = await asked(access)
    done, said = await pairing(database_url, "approve", f" {code.lower()} ")
    assert done == 0
    assert "Ada (@ada), number 42, can write to the bot from now on." in said
    assert "The bot tells them" in said
    row = await access.find(BOT, 42)
    assert row is not None
    assert row.state == "allowed"


async def test_a_code_can_be_denied(access: PostgresTelegramAccess, database_url: str) -> None:
    done, said = await pairing(database_url, "deny", await asked(access))
    assert (done, said) == (0, "Ada (@ada), number 42, was refused.")


@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_a_code_that_does_not_wait_gets_a_clear_line(
    verb: str, access: PostgresTelegramAccess, database_url: str
) -> None:
    code = await asked(access)
    await pairing(database_url, "approve", code)
    for wrong in (code, "NONSENSE", "\x1b[2J"):
        done, said = await pairing(database_url, verb, wrong)
        assert done == 1
        assert "is waiting" in said
        assert "\x1b" not in said


async def test_an_old_code_has_lapsed_and_the_list_says_so(
    access: PostgresTelegramAccess, pool: Pool, database_url: str
) -> None:
    code = await asked(access)
    await pool.execute("UPDATE telegram_access SET asked_at = now() - interval '61 minutes'")
    _, said = await pairing(database_url, "list")
    assert said.splitlines()[1].split()[:2] == ["–", "lapsed"]
    assert (await pairing(database_url, "approve", code))[0] == 1


async def test_allowed_chat_can_be_blocked_again(access: PostgresTelegramAccess, database_url: str) -> None:
    await access.decide(BOT, -1002718281828, allowed=True, by="test", name="Family")
    done, said = await pairing(database_url, "revoke", "-1002718281828")
    assert (done, said) == (0, "Family, number -1002718281828, can no longer write to @ever_bot.")
    done, said = await pairing(database_url, "revoke", "-1002718281828")
    assert done == 1
    assert said.startswith("Nobody with the number -1002718281828")


async def test_the_last_owner_does_not_go_unnoticed(
    access: PostgresTelegramAccess, database_url: str
) -> None:
    await access.decide(BOT, 7, allowed=True, by="test", name="Grace", owner=True)
    done, said = await pairing(database_url, "revoke", "7")
    assert done == 0
    assert "@ever_bot has no owner now" in said


async def test_a_link_makes_an_owner_once(
    access: PostgresTelegramAccess, pool: Pool, database_url: str
) -> None:
    done, said = await pairing(database_url, "owner")
    assert done == 0
    link = said.splitlines()[0]
    assert link.startswith("@ever_bot – https://t.me/ever_bot?start=")
    code = link.partition("start=")[2]
    assert len(code) <= 64
    assert await access.become_owner(BOT, 42, code=code, name="Ada")
    assert not await access.become_owner(BOT, 43, code=code, name="Eve")
    (entry,) = await read_audit(pool)
    assert (entry.actor, entry.action) == ("command line", "pairing.owner_link")
    assert entry.about == f"telegram:{BOT}"
    assert code not in str(entry)


async def test_a_bot_that_never_met_telegram_has_no_link_yet(database_url: str) -> None:
    done, said = await pairing(database_url, "owner")
    assert done == 1
    assert "has not reached Telegram yet" in said
    nobody: list[str] = []
    wish = read_pairing_arguments(["owner"])
    assert await run_pairing(wish, database_url=database_url, bots=(), say=nobody.append) == 1
    assert "./evertalk setup" in nobody[0]


@pytest.mark.parametrize("words", [[], ["approve"], ["revoke", "@ada"], ["lits"]])
def test_words_that_mean_nothing_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_pairing_arguments(words)
    assert ended.value.code == 2
    assert "evertalk pairing" in capsys.readouterr().err


async def test_up_shows_owner_link_until_the_bot_has_one(
    access: PostgresTelegramAccess, database_url: str
) -> None:
    lines, late = await describe_bots(database_url, [bot()], seconds=0)
    assert late == ()
    assert lines[0].startswith("@ever_bot – https://t.me/ever_bot?start=")
    await access.become_owner(BOT, 42, code=lines[0].partition("start=")[2], name="Ada")
    assert await describe_bots(database_url, [bot()], seconds=0) == (
        ["@ever_bot – https://t.me/ever_bot"],
        (),
    )


async def test_up_tells_what_is_wrong_with_a_bot_and_which_is_late(
    access: PostgresTelegramAccess, pool: Pool, database_url: str
) -> None:
    await PostgresTelegramChats(pool).record_problem(BOT, "Telegram refuses the token.")
    second = bot(7_000_000_002, "SHOP_BOT_TOKEN")
    lines, late = await describe_bots(database_url, [bot(), second], seconds=0)
    assert lines == ["@ever_bot: Telegram refuses the token."]
    assert late == (second,)
    await enrol(pool, bot_id=second.bot_id, username="shop_bot")
    lines, late = await describe_bots(database_url, late, seconds=0)
    assert lines[0].startswith("@shop_bot – ")
    assert late == ()


async def test_without_bots_nothing_is_said_and_nothing_opened() -> None:
    assert await describe_bots("postgresql://nowhere.invalid/x", [], seconds=5) == ([], ())
