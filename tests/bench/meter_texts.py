"""Eleven kinds of text for the meter's bench, made from words of our own and a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Make = Callable[[random.Random, int], str]
"""`make(random, size)`: a text of roughly `size` words."""

_WORDS: Mapping[str, tuple[str, str]] = {
    "english": (
        (
            "the river was cold this morning and my sister asked whether we should still bring old bread for "
            "ducks before lunch because nobody remembers when it closed maybe Thursday evening after work I "
            "think that would suit everyone much better than another long walk along an empty harbour"
        ),
        " ",
    ),
    "german": (
        (
            "gestern Abend haben wir lange über die Wohnungsbesichtigung gesprochen "
            "obwohl niemand wusste ob der "
            "Schlüssel noch beim Nachbarn liegt vielleicht könnten wir am Donnerstag früher losfahren und "
            "unterwegs Brötchen für alle Geschwister kaufen das wäre schöner als warten"
        ),
        " ",
    ),
    "russian": (
        (
            "вчера вечером мы долго говорили о старом доме у реки где никто больше не "
            "живёт может быть сестра "
            "привезёт ключи в четверг тогда поедем вместе посмотрим сад и решим что делать дальше с крышей"
        ),
        " ",
    ),
    "chinese": (
        (
            "昨天 晚上 我们 谈了 很久 关于 河边 的 老房子 没有人 住 在 那里 "
            "也许 姐姐 星期四 会 带来 钥匙 然后 一起 去 看看 花园 再 决定 "
            "屋顶 怎么办"
        ),
        "",
    ),
    "japanese": (
        (
            "昨日の 夜 私たちは 川の そばの 古い 家について 長く 話しました "
            "誰も 住んで いません 姉が 木曜日に 鍵を 持って くるかも "
            "しれません 一緒に 庭を 見に 行きましょう"
        ),
        "",
    ),
    "arabic": (
        (
            "تحدثنا مساء أمس طويلا عن البيت القديم قرب النهر حيث لا يسكن أحد ربما تحضر "
            "أختي المفاتيح يوم الخميس "
            "ثم نذهب معا لنرى الحديقة ونقرر ماذا نفعل بالسقف"
        ),
        " ",
    ),
    "hindi": (
        (
            "कल शाम हमने नदी के पास वाले पुराने घर के बारे में बहुत देर तक बात की वहाँ अब "
            "कोई नहीं रहता शायद बहन "
            "गुरुवार को चाबी लाएगी फिर हम साथ में बगीचा देखेंगे"
        ),
        " ",
    ),
}


def texts(kind: str, *, seed: int) -> Iterator[str]:
    """Endlessly, of very different lengths: a word of thanks, a paragraph, now and then a page."""
    dice = random.Random(f"{kind} {seed}")
    while True:
        yield KINDS[kind](dice, dice.choice((4, 12, 30, 60, 60, 120, 400)))


def texts_of(path: Path) -> Mapping[str, list[str]]:
    """An operator's own: each file is a kind, its paragraphs are the texts."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found = {}
    for file in files:
        paragraphs = file.read_text(encoding="utf-8", errors="replace").split("\n\n")
        found[file.name] = [text for text in paragraphs if text.strip()] or ["-"]
    return found


def _sentences(words: str, glue: str) -> Make:
    known = words.split()
    end = ". " if glue else "。"

    def make(dice: random.Random, size: int) -> str:
        said: list[str] = []
        while size > 0:
            length = min(size, dice.randint(4, 14))
            said.append(glue.join(dice.choice(known) for _ in range(length)))
            size -= length
        return end.join(said) + end.strip()

    return make


def _code(dice: random.Random, size: int) -> str:
    names = ("total", "entries", "index", "window", "first_seen", "parse_line", "Budget", "result")
    lines = ["def measure(entries: list[Entry], *, limit: int = 100) -> int:"]
    for _ in range(max(1, size // 8)):
        a, b, c = dice.sample(names, 3)
        lines.append(f"    {a} = {b}[{dice.randint(0, 99)}].{c}(limit - {dice.randint(1, 9)})  # {a} of {c}")
        lines.append(f"    if {a} > {b} and not {c}:\n        return {a} + {dice.randint(10, 9999)}")
    return "\n".join(lines)


def _json(dice: random.Random, size: int) -> str:
    rows = [
        {"id": dice.randint(1, 10**6), "name": f"item-{dice.randint(1, 999)}", "ok": dice.random() < 0.5,
         "price": round(dice.random() * 100, 2), "tags": ["new", "sale"][: dice.randint(0, 2)]}
        for _ in range(max(1, size // 10))
    ]  # fmt: skip
    return json.dumps({"rows": rows, "next": None}, indent=dice.choice((None, 2)))


def _log(dice: random.Random, size: int) -> str:
    return "\n".join(_log_line(dice) for _ in range(max(1, size // 12)))


def _log_line(dice: random.Random) -> str:
    day, hour, minute = dice.randint(1, 28), dice.randint(0, 23), dice.randint(0, 59)
    return (
        f"2026-05-{day:02d}T{hour:02d}:{minute:02d}:07.{dice.randint(0, 999):03d}Z "
        f"{dice.choice(('INFO', 'WARN', 'ERROR'))} worker[{dice.randint(1, 9999)}] "
        f"req={dice.getrandbits(64):016x} GET https://shop.example.org/api/v1/items/"
        f"{dice.randint(1, 10**6)}?page=2 {dice.choice((200, 404, 503))} {dice.randint(1, 900)}ms"
    )


def _emoji(dice: random.Random, size: int) -> str:
    faces = ("😀", "🎉", "👍🏽", "🚲", "🌧️", "❤️", "🐕", "🍰", "👩‍👧", "🇳🇴")
    words = ("yes", "see you", "happy birthday", "ok", "wow", "so nice", "tomorrow")
    return " ".join(
        f"{dice.choice(words)} {''.join(dice.choices(faces, k=3))}" for _ in range(max(1, size // 4))
    )


KINDS: Mapping[str, Make] = {
    **{name: _sentences(words, glue) for name, (words, glue) in _WORDS.items()},
    "code": _code,
    "json": _json,
    "log": _log,
    "emoji": _emoji,
}
