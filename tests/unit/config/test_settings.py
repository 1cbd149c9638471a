"""Settings: read once, refused with name, value and reason, secrets never shown."""

from __future__ import annotations

import random
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shared.bootstrap.from_settings import build_policy
from shared.config.settings import (
    BadSettings,
    Settings,
    find_setting_sources,
    find_unknown_names,
    is_secret,
    list_setting_names,
    load_environment,
    load_settings,
    resolve_secret_key,
)
from shared.core.presets.catalog import PRESETS
from shared.supervision.process_secrets import PROCESSES_BY_SETTING, select_environment
from tests.kit.night import by_night


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings) as refused:
        load_settings()
    return str(refused.value)


def test_of_every_secret_it_is_said_which_processes_are_given_it() -> None:
    assert set(PROCESSES_BY_SETTING) == {field for field in Settings.model_fields if is_secret(field)}


def test_a_secret_of_another_process_is_known_to_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = {"EVERTALK_TELEGRAM_MODE": "webhook", "EVERTALK_PUBLIC_URL": "https://chat.example.org"}
    for name, value in {**webhook, "EVERTALK_TELEGRAM_WEBHOOK_SECRET": "s" * 32}.items():
        monkeypatch.setenv(name, value)
    given = select_environment("worker", load_environment(), tokens=["SHOP_TOKEN"])
    for name in select_environment("bot", load_environment(), tokens=()):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert load_settings().telegram_webhook_secret is None
    assert find_setting_sources()["telegram_webhook_secret"] == "environment"
    monkeypatch.delenv("EVERTALK_ORIGINS")
    with pytest.raises(BadSettings, match="WEBHOOK_SECRET: is needed"):
        load_settings()


def test_nothing_has_to_be_set() -> None:
    settings = load_settings()
    assert (settings.http_host, settings.http_port) == ("127.0.0.1", 8080)
    assert settings.preset == "steady"
    assert settings.cap_total_per_day_usd == Decimal("5.00")
    assert settings.embedded_postgres
    assert settings.embedded_redis


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("EVERTALK_HTTP_PORT", "99999", "less than or equal to 65535"),
        ("EVERTALK_HTTP_PORT", "web", "valid integer"),
        ("EVERTALK_TIMEZONE", "Mars/Olympus", "is not a time zone"),
        ("EVERTALK_TIMEZONE", "../../etc/passwd", "is not a time zone"),
        ("EVERTALK_PROFILE", "shared", "'personal' or 'public'"),
        ("EVERTALK_CAP_TOTAL_PER_DAY_USD", "-1", "greater than or equal to 0"),
        ("EVERTALK_CAP_TOTAL_PER_DAY_USD", "NaN", "finite"),
        ("EVERTALK_PUBLIC_URL", "chat.example.org", "must begin with http:// or https://"),
        ("EVERTALK_PUBLIC_URL", "https://", "no host name"),
        ("EVERTALK_ALLOWED_ORIGINS", "https://a.org/page", "is not an origin"),
        ("EVERTALK_TRUSTED_PROXIES", "10.0.0.0/99", "is not an address or a network"),
        ("EVERTALK_MODELS_FILE", "/nowhere/models.json", "there is no such file"),
        ("EVERTALK_KEEP_TURNS", "0", "greater than or equal to 1"),
        ("CONTEXT_MAX_OUTPUT_TOKENS", "many", "valid integer"),
        ("EVERTALK_TELEGRAM_ACCESS", "everybody", "'pairing', 'allowlist' or 'open'"),
        ("EVERTALK_TELEGRAM_ALLOWED", "42,@ada", "'@ada' is not the number of a person or a group"),
        ("EVERTALK_TELEGRAM_ALLOWED", "0", "'0' is not the number"),
        ("EVERTALK_TELEGRAM_AUDIENCE", "shop", "'personal' or 'public'"),
        ("EVERTALK_TELEGRAM_MODE", "push", "'polling' or 'webhook'"),
        ("EVERTALK_TELEGRAM_PORT", "-1", "greater than or equal to 0"),
        ("EVERTALK_TELEGRAM_API_URL", "api.telegram.org", "must begin with http:// or https://"),
        ("EVERTALK_TELEGRAM_BOTS_FILE", "/nowhere/bots.json", "there is no such file"),
        ("EVERTALK_TELEGRAM_DRAFTS", "perhaps", "valid boolean"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_reason(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refusal(monkeypatch, **{name: value})
    assert line.startswith(f"{name}={value}: ")
    assert reason in line


@pytest.mark.control("S37")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://root:hunter2@db/x"),
        ("REDIS_URL", "http://:hunter2@cache"),
        ("EVERTALK_SECRET_KEY", "hunter2"),
        ("TELEGRAM_BOT_TOKEN", "hunter2"),
        ("TELEGRAM_BOT_TOKEN", "123456:hunter2-is-too-short"),
        ("TELEGRAM_BOT_TOKEN", "bot123456:hunter2" + "x" * 40),
        ("TELEGRAM_BOT_TOKEN", "123456:hunter2/../" + "x" * 40),
        ("EVERTALK_TELEGRAM_WEBHOOK_SECRET", "hunter2"),
        ("EVERTALK_TELEGRAM_WEBHOOK_SECRET", "hunter2 with blanks " + "x" * 40),
    ],
)
def test_a_bad_secret_is_refused_without_being_shown(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refusal(monkeypatch, **{name: value})
    assert line.startswith(f"{name}=(hidden): ")
    assert "hunter2" not in line


def test_every_problem_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = refusal(monkeypatch, EVERTALK_HTTP_PORT="x", EVERTALK_PROFILE="y", REDIS_URL="z")
    assert len(lines.splitlines()) == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"EVERTALK_SOFT_BUDGET": "2500"},
            (
                "EVERTALK_SOFT_BUDGET=2500: EVERTALK_FLUSH_THRESHOLD=4000 is not below "
                "EVERTALK_SOFT_BUDGET=2500 (preset steady); 4001 fits"
            ),
        ),
        (
            {"EVERTALK_CONTEXT_WINDOW": "8000", "EVERTALK_RESERVE": "8000"},
            (
                "EVERTALK_RESERVE=8000: EVERTALK_RESERVE=8000 leaves nothing of "
                "EVERTALK_CONTEXT_WINDOW=8000 (preset steady); 7599 fits"
            ),
        ),
        (
            {"EVERTALK_PRESET": "pantheon", "EVERTALK_KEEP_TURNS": "9"},
            (
                "EVERTALK_KEEP_TURNS=9: compact_after_turns=8 is not above EVERTALK_KEEP_TURNS=9"
                " (preset pantheon); 7 fits"
            ),
        ),
        ({"EVERTALK_CONTEXT_WINDOW": "900"}, "EVERTALK_CONTEXT_WINDOW=900: a window of 900 tokens less"),
        ({"EVERTALK_PRESET": "stedy"}, "EVERTALK_PRESET=stedy: is not a preset; did you mean steady?"),
        ({"EVERTALK_PRESET": "best"}, "EVERTALK_PRESET=best: is not a preset; choose one of arawn, chatbox"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused_with_one_that_fits(
    given: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(monkeypatch, **given).startswith(told)


NUMBERS: dict[str, tuple[int, ...]] = {
    "CONTEXT_MAX_OUTPUT_TOKENS": (1, 512, 8_192, 200_000),
    "EVERTALK_CONTEXT_WINDOW": (1, 900, 2_700, 8_192, 16_000, 128_000, 2_000_000),
    "EVERTALK_SOFT_BUDGET": (1, 2_500, 4_000, 4_001, 40_000, 1_000_000),
    "EVERTALK_RESERVE": (1, 8_000, 20_000, 199_999, 1_000_000),
    "EVERTALK_FLUSH_THRESHOLD": (1, 4_000, 40_000, 180_000, 1_000_000),
    "EVERTALK_KEEP_TURNS": (1, 2, 7, 8, 1_000),
    "EVERTALK_MAX_ROUNDS": (1, 5),
    "EVERTALK_WINDOW_MESSAGES": (1, 6),
    "EVERTALK_TRIM_TOKENS": (1, 4_000, 1_000_000),
}


def any_numbers(dice: random.Random) -> dict[str, str]:
    """A few of the settings, at their edges, beside them, or anywhere."""
    chosen = dice.sample(sorted(NUMBERS), dice.randint(1, 5))
    edges = {name: dice.choice(NUMBERS[name]) + dice.choice((-1, 0, 0, 1)) for name in chosen}
    anywhere = {name: dice.randint(0, 10 ** dice.randint(1, 30)) for name in chosen if dice.random() < 0.1}
    return {name: str(number) for name, number in {**edges, **anywhere}.items()}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_any_numbers_start_or_are_refused_once_with_fitting_ones(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, refused, rounds = random.Random(preset), 0, by_night(150, else_=50)
    monkeypatch.setenv("EVERTALK_PRESET", preset)
    for _ in range(rounds):
        given = any_numbers(dice)
        with monkeypatch.context() as setting:
            for name, value in given.items():
                setting.setenv(name, value)
            try:
                assert build_policy(load_settings()).name == preset
                assert build_policy(load_settings(), demo=True).name == preset
                continue
            except BadSettings as error:
                problems = error.problems
            refused += 1
            assert {problem.name for problem in problems} <= set(given), problems
            if any("Input should be" in problem.reason for problem in problems):
                continue  # no number of this kind at all
            for problem in problems:
                remedy = problem.reason.rpartition("; ")[2]
                setting.setenv(problem.name, "" if remedy == "leave it out" else remedy.removesuffix(" fits"))
            assert build_policy(load_settings()).name == preset
    assert rounds / 8 < refused < rounds


@pytest.mark.parametrize(
    ("given", "budget"),
    [({}, 3_750), ({"soft_budget": 20_000}, 20_000), ({"flush_threshold": 5_000}, 16_000),
     ({"context_window": 100_000}, 16_000), ({"preset": "langmem"}, 2_000), ({"preset": "goclaw"}, None)],
)  # fmt: skip
def test_the_demo_summarises_early_unless_the_operator_says_when(
    given: dict[str, Any], budget: int | None
) -> None:
    settings = load_settings(**given)
    assert build_policy(settings, demo=True).soft_budget == budget
    if given:
        assert build_policy(settings, demo=True) == build_policy(settings)


def test_small_window_shrinks_margins_that_are_not_set() -> None:
    assert load_settings(context_window=8_000).context_window == 8_000


def test_telegram_defaults_need_approval_of_an_operator() -> None:
    settings = load_settings(telegram_bot_token=SecretStr("123456789:" + "x" * 35))
    assert (settings.telegram_access, settings.telegram_mode) == ("pairing", "polling")
    assert settings.telegram_allowed == ()
    assert settings.telegram_default_audience == "personal"
    assert load_settings(profile="public").telegram_default_audience == "public"
    assert (
        load_settings(profile="public", telegram_audience="personal").telegram_default_audience == "personal"
    )
    assert (settings.telegram_drafts, settings.telegram_rich) == (True, True)


def test_people_and_groups_are_listed_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTALK_TELEGRAM_ALLOWED", "4503599627370495, -1002718281828 42,42")
    assert load_settings().telegram_allowed == (4503599627370495, -1002718281828, 42)


@pytest.mark.control("S01")
def test_a_webhook_needs_a_secret_and_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = refusal(monkeypatch, EVERTALK_TELEGRAM_MODE="webhook").splitlines()
    assert lines[0].startswith("EVERTALK_TELEGRAM_WEBHOOK_SECRET: is needed in webhook mode")
    assert lines[1].startswith("EVERTALK_PUBLIC_URL: is needed in webhook mode")


def test_telegram_posts_to_encrypted_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTALK_TELEGRAM_WEBHOOK_SECRET", "s" * 32)
    monkeypatch.setenv("EVERTALK_TELEGRAM_MODE", "webhook")
    line = refusal(monkeypatch, EVERTALK_PUBLIC_URL="http://chat.example.org")
    assert line.startswith("EVERTALK_PUBLIC_URL=http://chat.example.org: must begin with https://")
    own_server = load_settings(telegram_api_url="http://127.0.0.1:8082")
    assert own_server.telegram_mode == "webhook"


def test_names_that_an_operator_chose_are_found_in_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".env"
    file.write_text("SHOP_BOT_TOKEN=from-file\nOTHER_TOKEN=from-file\n")
    monkeypatch.setenv("OTHER_TOKEN", "from-environment")
    monkeypatch.setenv("SHOP_BOT_TOKEN", "")
    found = load_environment(file)
    assert (found["SHOP_BOT_TOKEN"], found["OTHER_TOKEN"]) == ("from-file", "from-environment")


def test_an_empty_value_is_as_if_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTALK_HTTP_PORT", "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    settings = load_settings()
    assert settings.http_port == 8080
    assert settings.anthropic_api_key is None


def test_lists_are_written_with_commas_or_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTALK_ALLOWED_ORIGINS", "https://A.example, https://b.example/")
    assert load_settings().allowed_origins == ("https://a.example", "https://b.example")


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".env"
    file.write_text("EVERTALK_HTTP_PORT=1000\nEVERTALK_PROFILE=public\n")
    monkeypatch.setenv("EVERTALK_HTTP_PORT", "2000")
    settings = load_settings(file)
    assert (settings.http_port, settings.profile) == (2000, "public")


@pytest.mark.control("S37")
def test_secrets_do_not_show_when_settings_are_printed() -> None:
    settings = load_settings(anthropic_api_key=SecretStr("sk-very-secret"))
    assert "sk-very-secret" not in f"{settings!r} {settings}"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::1", "http://[::1]:8080"),
    ],
)
def test_the_local_address_can_be_opened(host: str, url: str) -> None:
    assert load_settings(http_host=host).local_url == url


def test_links_begin_with_the_public_address_when_there_is_one() -> None:
    assert load_settings(public_url="https://chat.example.org/").base_url == "https://chat.example.org"


def test_a_misspelled_name_is_found_with_the_nearest_right_one() -> None:
    given = {"EVERTALK_HTPP_PORT": "1", "EVERTALK_HTTP_PORT": "1", "EVERTALK_ENV_FILE": "", "PATH": ""}
    assert find_unknown_names(given) == {"EVERTALK_HTPP_PORT": "EVERTALK_HTTP_PORT"}


def test_only_eight_names_go_without_the_prefix() -> None:
    bare = {name for name in list_setting_names().values() if not name.startswith("EVERTALK_")}
    assert bare == {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "TELEGRAM_BOT_TOKEN",
        "DATABASE_URL",
        "REDIS_URL",
        "CONTEXT_MAX_OUTPUT_TOKENS",
    }


@pytest.mark.control("S37")
def test_the_secret_key_is_made_once_and_for_us_alone(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data")
    first = resolve_secret_key(settings)
    assert len(first) >= 32
    assert resolve_secret_key(settings) == first
    file = tmp_path / "data" / "secret_key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list((tmp_path / "data").iterdir()) == [file]


def test_a_given_secret_key_is_used() -> None:
    settings = load_settings(secret_key=SecretStr("k" * 40))
    assert resolve_secret_key(settings) == b"k" * 40


@pytest.mark.control("S37")
def test_an_external_database_needs_a_secret_key(tmp_path: Path) -> None:
    settings = Settings(database_url=SecretStr("postgresql://db/x"), data_dir=tmp_path)
    with pytest.raises(BadSettings, match="EVERTALK_SECRET_KEY: is needed with DATABASE_URL"):
        resolve_secret_key(settings)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"alert_webhook_url": "http://hooks.example.org/x", "alert_webhook_secret": "s" * 32},
            "WEBHOOK_URL",
        ),
        ({"alert_webhook_url": "https://me:pw@hooks.example.org/", "alert_webhook_secret": "s" * 32}, "URL"),
        ({"alert_webhook_url": "https://hooks.example.org/x"}, "ALERT_WEBHOOK_SECRET"),
        ({"alert_webhook_secret": "short"}, "ALERT_WEBHOOK_SECRET"),
        ({"alert_smtp_url": "smtp://mail.example.org"}, "ALERT_EMAIL_TO"),
        ({"alert_smtp_url": "imap://mail.example.org"}, "ALERT_SMTP_URL"),
        ({"alert_smtp_url": "smtp://mail.example.org/path"}, "ALERT_SMTP_URL"),
        ({"alert_email_to": "anna"}, "ALERT_EMAIL_TO"),
        ({"alert_email_from": "a@b\r\nBcc: c@d"}, "ALERT_EMAIL_FROM"),
        ({"alert_telegram_chats": "@anna"}, "ALERT_TELEGRAM_CHATS"),
    ],
)
def test_a_target_of_alerts_that_cannot_work_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load_settings(**given)
    assert named in str(refused.value)
    assert "me:pw" not in str(refused.value)


def test_the_targets_of_alerts_are_those_that_are_set_up() -> None:
    assert load_settings().alert_targets == ()
    settings = load_settings(
        alert_telegram_chats="5, -100",
        alert_webhook_url="http://127.0.0.1:9/x", alert_webhook_secret="s" * 32,
        alert_smtp_url="smtps://mail.example.org",
        alert_email_from="a@example.org", alert_email_to="b@example.org",
    )  # fmt: skip
    assert settings.alert_targets == ("telegram:5", "telegram:-100", "webhook", "email")
