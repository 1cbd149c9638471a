"""A process dies between storing a recording and its words: it is heard, and answered, all the same."""

from __future__ import annotations

import aiohttp
import pytest

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import AFTER_HEARING, BEFORE_HEARING, SPEECH
from tests.kit.deployment.breakable_servers import Case, Plant, Recovery
from tests.kit.deployment.forks import Hatchery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS, Telegram
from tests.kit.fakes.bot_api import running_bot_api
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.speech.harness import RunningSpeech
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording

WORDS = "My cat Miso is hungry."


@pytest.mark.parametrize(("point", "asked"), [(BEFORE_HEARING, 1), (AFTER_HEARING, 2)])
async def test_a_voice_message_is_heard_and_answered_though_the_bot_dies(
    point: str, asked: int, plant: Plant, hatchery: Hatchery, fake: RunningFake, recovery: Recovery
) -> None:
    """What the service has heard and nobody has stored is heard again; what was set aside for it is spent."""
    case = await plant.case(TEMPLATE)
    async with running_bot_api() as api, RunningTranscriptions() as service:
        await Telegram.answers_of(fake, {"Miso": {"text": "Feed it."}})
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        ada = await telegram.talker()
        async with telegram.bot(crash_point=point, **service.settings) as bot:
            ada.said.append(WORDS)
            await ada.person.send_voice(recording(WORDS, seconds=60))
            await ada.person.sees("Feed it.", within=SECONDS)
            recovery.note(f"bot died at {point}", bot.fell_at)
            assert bot.exits == [CRASHED], bot.words()
            await telegram.promises_hold(strays=1)
        assert len(await service.requests()) == asked
        assert (await ada.person.screen()).texts == [f"I heard: {WORDS}", "Feed it."]
        assert await case.value("SELECT count(*) FROM usage WHERE purpose = 'transcribe'") == 1
        assert await case.value("SELECT count(*) FROM attachments") == 1
    await plant.drop(case.database)


@pytest.mark.parametrize(("point", "asked", "heard"), [*zip(SPEECH, (2, 1, 1), (1, 0, 1), strict=True)])
async def test_an_answer_is_spoken_once_at_most_though_the_bot_dies(
    point: str,
    asked: int,
    heard: int,
    plant: Plant,
    hatchery: Hatchery,
    fake: RunningFake,
    recovery: Recovery,
) -> None:
    """What was made and not stored is made again; what may have been sent is not sent again."""
    case = await plant.case(TEMPLATE)
    async with running_bot_api() as api, RunningSpeech() as service:
        await Telegram.answers_of(fake, {"Miso": {"text": "Feed it."}})
        telegram = Telegram(api=api, provider=fake, case=case, hatchery=hatchery)
        ada = await telegram.talker()
        async with telegram.bot(crash_point=point, **service.settings) as bot:
            await ada.person.command("voice on")
            await ada.person.sees("can also be heard", within=SECONDS)
            ada.said.append(WORDS)
            await ada.person.say(WORDS)
            await ada.person.sees("Feed it.", within=SECONDS)
            await case.until("SELECT count(*) = 1 FROM spoken_answers WHERE state <> 'due'")
            await bot.crashed()
            recovery.note(f"bot died at {point}", bot.fell_at)
            assert bot.exits == [CRASHED], bot.words()
            await telegram.promises_hold(strays=heard + 1)
        assert len(await service.requests()) == asked
        lines = (await ada.person.screen()).answers
        assert sum("voice" in line.raw for line in lines) == heard
        assert [line.text for line in lines].count("Feed it.") == 1
        assert await case.value("SELECT count(*) FROM usage WHERE purpose = 'speech'") == 1
    await plant.drop(case.database)


@pytest.mark.parametrize(("point", "asked"), [(BEFORE_HEARING, 1), (AFTER_HEARING, 2)])
async def test_a_recording_of_a_page_is_heard_though_the_server_dies(
    point: str, asked: int, case: Case, recovery: Recovery
) -> None:
    """Whoever sent it has no answer, and sends it again: it is the same file."""
    async with (
        RunningTranscriptions() as service,
        case.web(crash_point=point, **service.settings) as web,
        Person(case.port) as person,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS)) as browser,
    ):
        await person.ask("Good morning.")
        with pytest.raises(aiohttp.ClientError):
            await _upload(browser, case, person)
        await web.crashed()
        recovery.note(f"web died at {point}", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        await person.ask("Still there?")
        told = await _upload(browser, case, person)
        assert told["heard"] == WORDS
        assert len(await service.requests()) == asked
        assert await case.value("SELECT count(*) FROM attachments") == 1
        assert await case.value("SELECT count(*) FROM usage WHERE purpose = 'transcribe'") == 1
        await case.promises_hold(person)


async def _upload(browser: aiohttp.ClientSession, case: Case, person: Person) -> dict[str, str]:
    url, headers = f"http://127.0.0.1:{case.port}/api/v1/uploads", {"Authorization": f"Bearer {person.token}"}
    async with browser.post(url, data=recording(WORDS), headers=headers) as answer:
        assert answer.status == 200
        told: dict[str, str] = await answer.json()
        return told
