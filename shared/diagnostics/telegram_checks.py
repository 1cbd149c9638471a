"""The doctor's look at Telegram: tokens, how messages come in, who serves each bot, what may be missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shared.adapters.postgres.dashboard.telegram import BotState
from shared.adapters.telegram_probe import (
    BotSeen,
    TelegramSilent,
    TokenRefused,
    WebhookSeen,
    look_at_bot,
    look_at_webhook,
)
from shared.bootstrap.stores import open_stores
from shared.config.bots import BotConfig, find_remarks, load_bots
from shared.config.settings import Settings
from shared.diagnostics.checks import Finding


async def check_bots(settings: Settings, url: str = "") -> Sequence[Finding]:
    bots = load_bots(settings)
    findings = [Finding("warn", remark) for remark in find_remarks(bots, settings)]
    for bot in bots:
        findings += await _check_bot(bot, settings.telegram_api_url)
    return findings


async def _check_bot(bot: BotConfig, api_url: str) -> Sequence[Finding]:
    try:
        seen = await look_at_bot(bot.token, api_url=api_url)
        webhook = await look_at_webhook(bot.token, api_url=api_url)
    except TokenRefused as error:
        advice = "Copy it again from @BotFather; /revoke there makes a new one."
        return [Finding("fail", f"{bot.token_name}: {error}", advice)]
    except TelegramSilent as error:
        advice = (
            "Check the network and EVERTALK_TELEGRAM_API_URL; meanwhile Telegram keeps what people write."
        )
        return [Finding("warn", f"{bot.token_name}: {error}", advice)]
    what = f"Telegram knows @{seen.username} ({bot.mode}, access {bot.access})"
    return [Finding("ok", what), *_check_webhook(bot, seen, webhook)]


def _check_webhook(bot: BotConfig, seen: BotSeen, webhook: WebhookSeen) -> Iterator[Finding]:
    name = f"@{seen.username}"
    if bot.mode == "polling" and webhook.host:
        what = f"{name} is polled here, but Telegram posts its messages to {webhook.host}"
        advice = "The bot takes that webhook away when it starts; does another program use this token?"
        yield Finding("warn", what, advice)
    if bot.mode == "webhook" and not webhook.host:
        what = f"Telegram has no webhook for {name}"
        yield Finding("warn", what, "The bot process sets it: ./evertalk up")
    if webhook.waiting:
        what = f"messages for {name} that wait at Telegram: {webhook.waiting}"
        yield Finding("warn", what, "They come when the bot runs: ./evertalk up")
    if webhook.last_error and webhook.last_error_at is not None:
        what = f"Telegram could not deliver to {webhook.host}: {webhook.last_error}"
        advice = f"That was at {webhook.last_error_at:%Y-%m-%d %H:%M} UTC. Can it be reached from outside?"
        yield Finding("warn", what, advice)


async def check_bots_in_service(settings: Settings, url: str) -> Sequence[Finding]:
    """Whether somebody serves them, what they complain of, and what may not have arrived."""
    bots = load_bots(settings)
    if not bots:
        return []
    async with open_stores(url, size=1) as stores:
        known = {state.bot_id: state for state in await stores.telegram_bots.bots()}
    return [finding for bot in bots for finding in _in_service(bot, known.get(bot.bot_id))]


def _in_service(bot: BotConfig, state: BotState | None) -> Iterator[Finding]:
    if state is None:
        yield Finding("ok", f"the bot of {bot.token_name} has not been started yet")
        return
    name = f"@{state.username}"
    if state.served_by is None:
        yield Finding("ok", f"nobody serves {name} at the moment; ./evertalk up does")
    else:
        yield Finding("ok", f"{name} is served by process {state.served_by}")
    if state.problem:
        yield Finding("warn", f"{name}: {state.problem}", "The log of the bot tells more.")
    if state.uncertain:
        number = "1 message" if state.uncertain == 1 else f"{state.uncertain} messages"
        what = f"{number} of {name} may not have arrived: Telegram did not answer"
        advice = "Each person was told, with a button that brings it; the dashboard shows whose they are."
        yield Finding("warn", what, advice)
