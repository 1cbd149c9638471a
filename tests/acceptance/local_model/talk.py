"""What the person says: long enough to fill the window several times, different in every message."""

from __future__ import annotations

from collections.abc import Iterator

_PEOPLE = ("Mira", "Tobias", "Aunt Helen", "Jonas", "Priya", "old Mr Falk", "Lucía", "the baker")
_PLACES = ("the mill", "the harbour", "the north field", "the station", "the chapel", "the lower bridge")
_THINGS = ("a blue bicycle", "two crates of pears", "the brass lamp", "a map of the hills", "nine candles")
_WEATHER = ("It rained until noon", "The wind came from the sea", "A thin frost lay on the roofs")
_FEELINGS = ("which made me laugh", "which I had not expected", "and I was glad of it", "to my surprise")
_ASKED = (
    "What would you do first tomorrow?",
    "Which of these things matters most?",
    "Please say in one sentence what I did.",
    "Should I write to them about it?",
)
SCENES = 5

# Few vocabularies know this script well: a model's own count may be half as high again as our estimate.
_FOREIGN = "სოფლის ბოლოს მდინარის პირას ძველი წისქვილი დგას და მის გვერდით დიდი კაკლის ხე იზრდება. "


def diary() -> Iterator[str]:
    """Without end; some 300 tokens each."""
    number = 0
    while True:
        number += 1
        scenes = " ".join(_scene(number * SCENES + place) for place in range(SCENES))
        yield f"Page {number} of my diary. {scenes} {_ASKED[number % len(_ASKED)]}"


def foreign_letter(chars: int) -> str:
    return (_FOREIGN * (chars // len(_FOREIGN) + 1))[:chars].strip()


def _scene(number: int) -> str:
    def one(of: tuple[str, ...], step: int) -> str:
        return of[number * step // 3 % len(of)]

    hour, minute = 6 + number % 15, 7 * number % 60
    return (
        f"{one(_WEATHER, 2)}, and at {hour:02}:{minute:02} I met {one(_PEOPLE, 5)} near {one(_PLACES, 4)}. "
        f"We carried {one(_THINGS, 7)} to {one(_PLACES, 11)}, {one(_FEELINGS, 1)}. "
        f"It cost {number * 13 % 97 + 3} crowns, and {one(_PEOPLE, 13)} still owes me {number % 9 + 1}."
    )
