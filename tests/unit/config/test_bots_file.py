"""Which bots there are: read from settings and the bots file, every mistake named, no token ever shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared.config.bots import find_remarks, load_bots
from shared.config.settings import BadSettings, load_settings

FIRST = "111111:" + "a" * 35
TOKEN = SecretStr(FIRST)
SHOP = "222222:" + "b" * 35
ENVIRON = {"SHOP_BOT_TOKEN": SHOP, "AGAIN": FIRST, "BROKEN": "222222:hunter2", "EMPTY": ""}


def bots_file(folder: Path, content: Any) -> Path:
    file = folder / "bots.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def refusal(folder: Path, content: Any) -> str:
    settings = load_settings(
        telegram_bots_file=bots_file(folder, content), telegram_bot_token=SecretStr(FIRST)
    )
    with pytest.raises(BadSettings) as refused:
        load_bots(settings, ENVIRON)
    return str(refused.value)


def test_without_a_token_there_is_no_bot() -> None:
    assert load_bots(load_settings()) == ()


def test_one_token_is_one_bot_as_the_settings_say() -> None:
    settings = load_settings(
        telegram_bot_token=SecretStr(FIRST), telegram_access="allowlist", telegram_allowed=(42, -100)
    )
    (bot,) = load_bots(settings)
    assert (bot.bot_id, bot.agent, bot.audience, bot.mode) == (111111, "default", "personal", "polling")
    assert (bot.access, bot.allowed) == ("allowlist", frozenset({42, -100}))
    assert bot.lease_name == "telegram:111111"
    assert "aaaa" not in repr(bot)
    (other,) = load_bots(load_settings(telegram_bot_token=SecretStr(FIRST), telegram_agent="ada"))
    assert other.agent == "ada"


def test_a_bots_file_adds_bots_and_leaves_the_rest_to_the_settings(tmp_path: Path) -> None:
    entry = {"token_env": "SHOP_BOT_TOKEN", "agent": "shop", "audience": "public", "access": "open"}
    settings = load_settings(
        telegram_bot_token=SecretStr(FIRST),
        telegram_bots_file=bots_file(tmp_path, [entry]),
        telegram_allowed=(42,),
    )
    first, shop = load_bots(settings, ENVIRON)
    assert (first.token_name, shop.token_name) == ("TELEGRAM_BOT_TOKEN", "SHOP_BOT_TOKEN")
    assert (shop.bot_id, shop.agent, shop.audience, shop.access) == (222222, "shop", "public", "open")
    assert shop.allowed == {42}


def test_a_bots_file_alone_is_enough(tmp_path: Path) -> None:
    file = bots_file(tmp_path, [{"token_env": "SHOP_BOT_TOKEN", "allowed": [7, "-100"]}])
    (bot,) = load_bots(load_settings(telegram_bots_file=file), ENVIRON)
    assert (bot.bot_id, bot.access, bot.allowed) == (222222, "pairing", frozenset({7, -100}))


@pytest.mark.control("S03")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[{", "cannot be read as JSON"),
        ({"token_env": "X"}, "must be a list"),
        (["SHOP_BOT_TOKEN"], "entry 1: is not a JSON object"),
        ([{"agent": "shop"}], "entry 1: token_env is missing"),
        ([{"token": SHOP}], "entry 1: tokens do not belong into this file"),
        ([{"token_env": SHOP}], "entry 1: token_env must name a variable"),
        ([{"token_env": "NOWHERE"}], "NOWHERE is set neither in the environment nor in .env"),
        ([{"token_env": "EMPTY"}], "entry 1: token_env: EMPTY is empty"),
        ([{"token_env": "BROKEN"}], "BROKEN is not a bot's token"),
        ([{"token_env": "SHOP_BOT_TOKEN", "acess": "open"}], "acess is unknown; did you mean access?"),
        (
            [{"token_env": "SHOP_BOT_TOKEN", "access": "all"}],
            "access must be one of pairing, allowlist",
        ),
        ([{"token_env": "SHOP_BOT_TOKEN", "audience": []}], "audience must be one of personal, public"),
        ([{"token_env": "SHOP_BOT_TOKEN", "agent": 7}], "agent must be text"),
        ([{"token_env": "SHOP_BOT_TOKEN", "allowed": "42"}], "allowed must be a list of numbers"),
        ([{"token_env": "SHOP_BOT_TOKEN", "allowed": [True]}], "allowed: True is not the number"),
        ([{"token_env": "AGAIN"}], "TELEGRAM_BOT_TOKEN and AGAIN hold the token of the same bot"),
        ([{"token_env": "SHOP_BOT_TOKEN"}] * 51, "at most 50 bots"),
    ],
)
def test_a_mistake_in_the_file_is_named_without_showing_a_token(
    tmp_path: Path, content: Any, reason: str
) -> None:
    line = refusal(tmp_path, content)
    assert line.startswith(f"EVERTALK_TELEGRAM_BOTS_FILE={tmp_path / 'bots.json'}: ")
    assert reason in line
    assert "hunter2" not in line
    assert "bbbb" not in line


def test_stored_bot_without_its_token_names_the_setting_that_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokens of stored bots come from that setting alone, whatever the environment holds."""
    monkeypatch.setenv("SHOP_BOT_TOKEN", SHOP)
    settings = load_settings(telegram_bots=json.dumps([{"token_env": "SHOP_BOT_TOKEN"}]))
    with pytest.raises(BadSettings) as refused:
        load_bots(settings, ENVIRON)
    assert "SHOP_BOT_TOKEN has no token in EVERTALK_TELEGRAM_TOKENS" in str(refused.value)


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, [{"token_env": "NOWHERE"}, {}, {"token_env": "AGAIN"}]).splitlines()) == 3


def test_an_open_bot_in_the_personal_profile_is_remarked_upon() -> None:
    token = SecretStr(FIRST)
    open_to_all = load_settings(telegram_bot_token=token, telegram_access="open")
    (remark,) = find_remarks(load_bots(open_to_all), open_to_all)
    assert "spend up to $5.00 a day" in remark
    public = load_settings(telegram_bot_token=token, telegram_access="open", profile="public")
    assert find_remarks(load_bots(public), public) == ()


def test_a_list_without_anyone_is_remarked_upon() -> None:
    settings = load_settings(telegram_bot_token=SecretStr(FIRST), telegram_access="allowlist")
    (remark,) = find_remarks(load_bots(settings), settings)
    assert "the list is empty" in remark
