"""Facts that persons state survive in a digest, whatever the assistant says around them."""

from __future__ import annotations

import pytest

from shared.core.compaction.digest import digest
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.summary import render_summary
from shared.core.values.tokens import estimate_by_script
from tests.kit.builders import exchange

ROOM = 1_500
"""Tokens, as a digest has in the default preset."""

ENGLISH = """
My sister Caroline moved to Lisbon in 2021.|We booked the flight TP 1384 for the 12th of May.
The plumber comes on Thursday at 8:30.|I'm allergic to peanuts.|Our budget for the kitchen is 14,500 euros.
We decided to rent the smaller flat.|My passport expires in March 2027.|The dog is called Bertil.
I take 50 mg of sertraline every morning.|Let's meet at the café Zentral, not at the office.
My son starts school in Graz in September.|The landlord's name is Mr Okonkwo.|I never eat meat on Fridays.
The Wi-Fi password hangs inside the pantry door.|We agreed that Petra writes the first draft.
My blood type is 0 negative.|The invoice number is 2026-118.|I work as a nurse in the Charité.
Our anniversary is on the 3rd of October.|I sold the old Volvo for 2,300.
The spare key is with the neighbours.
We chose oak for the floor.|My mother is 82 and lives in Turku.|The deadline for the grant is the 30th.
I broke my left wrist when I was nine.|We are not going to Norway this year.|The meeting moved to room 4.12.
My favourite author is Tove Jansson.|I owe Samir 140 francs.|The heating is serviced by Kolb & Sons.
I prefer the window seat.|We will paint the nursery green.|My new number ends in 4471.
The twins were born in Bergen.|I gave up smoking in 2019.|The tenants leave at the end of June.
I need the report in French.|We cancelled the gym.
My grandmother taught me Hungarian.|The cat must get drops twice a day.
"""
GERMAN = """
Meine Schwester Karla wohnt seit 2021 in Porto.|Der Flug LH 1172 geht am 12. Mai.|Ich vertrage keine Erdnüsse.
Das Budget für die Küche liegt bei 14.500 Euro.|Wir haben uns für die kleinere Wohnung entschieden.
Der Klempner kommt am Donnerstag um 8:30.|Mein Pass läuft im März 2027 ab.|Der Hund heißt Bertil.
Ich nehme jeden Morgen 50 mg Sertralin.|Unser Hochzeitstag ist der 3. Oktober.
Petra schreibt den ersten Entwurf.
Die Rechnung hat die Nummer 2026-118.|Der Ersatzschlüssel liegt bei den Nachbarn.|Meine Mutter ist 82.
"""
CHINESE = """
我妹妹卡罗琳2021年搬到了里斯本。|航班是5月12日的TP1384。|我对花生过敏。|厨房的预算是14500欧元。
我们决定租那套小一点的公寓。|水管工星期四八点半来。|我的护照2027年3月到期。|那只狗叫贝蒂尔。
我每天早上吃五十毫克舍曲林。|我们的结婚纪念日是十月三日。|彼得拉写初稿。|备用钥匙在邻居那里。
"""
SMALL_TALK = (
    "Good morning, how are you today?", "Haha, that is really funny.", "Okay, thanks a lot for that!",
    "Tell me something nice about the sea, please.", "Hm, I see what you mean there.",
)  # fmt: skip
CITIES = ("Lisbon", "Trondheim", "Valparaíso", "Kraków", "Osaka", "Ghent", "Tbilisi", "Mérida", "Leeds")
CHINESE_SMALL_TALK = ("今天天气真不错呀。", "哈哈,太有意思了。", "好的,谢谢你啊。", "嗯,我明白你的意思。")


def answer_of(number: int, *, chinese: bool) -> str:
    """Return an answer full of names and numbers that were no news of the person."""
    city, people = CITIES[number % len(CITIES)], f"{1_000 + 37 * number:,}"
    if chinese:
        return f"谢谢你告诉我!{city}有{people}座桥,建于{1100 + number}年。那里的第{number}号电车很有名。"
    return (
        f"Thanks for telling me, I will keep that in mind! {city} has {people} bridges, and its Museum "
        f"{number} opened in {1100 + number}. As Fernando Pessoa wrote in {1800 + number}, "
        f"the Tram {number} climbs."
    )


def facts_of(text: str) -> list[str]:
    return [fact for line in text.strip().splitlines() for fact in line.split("|")]


def talk_about(facts: list[str], *, chinese: bool = False) -> list[Entry]:
    """Return a talk in which each fact comes between turns of small talk and long answers."""
    small, log = CHINESE_SMALL_TALK if chinese else SMALL_TALK, list[Entry]()
    said = [one for at, fact in enumerate(facts) for one in (small[at % 4], fact, small[(at + 2) % 4])]
    for number, text in enumerate(said, 1):
        log += exchange(number, text, answer_of(number, chinese=chinese))
    return log


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, CHINESE], ids=["english", "german", "chinese"])
def test_digest_keeps_four_of_five_stated_facts(text: str) -> None:
    facts = facts_of(text)

    talk = talk_about(facts, chinese=text is CHINESE)

    made = render_summary(digest(talk, Ledger(), estimate_by_script, budget_tokens=ROOM))

    kept = [fact for fact in facts if fact in made]
    assert len(kept) >= 0.8 * len(facts), sorted(set(facts) - set(kept))


def test_digest_prefers_facts_to_thanks_of_the_assistant() -> None:
    facts = facts_of(ENGLISH)

    made = render_summary(digest(talk_about(facts), Ledger(), estimate_by_script, budget_tokens=ROOM // 3))

    assert any(fact not in made for fact in facts)
    assert "Thanks for telling me" not in made
    assert "bridges" not in made
