"""The fifty controls, each in a few words: what docs/controls.md shows, beside the tests that prove them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "controls.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """`chapter`: of OWASP ASVS 5.0 (V) and of OWASP's list for applications with language models (LLM)."""

    number: str
    what: str
    chapter: str
    note: str = ""
    """What is done otherwise here, or left to whoever runs it."""


def _control(number: int, what: str, chapter: str, note: str = "") -> Control:
    return Control(number=f"S{number:02}", what=what, chapter=chapter, note=note)


CONTROLS: tuple[Control, ...] = (
    _control(
        1, "A webhook has a secret of 32 characters or more, compared before the body is read", "V4, V13"
    ),
    _control(
        2, "What a proxy says is believed only of trusted ones; other names and bots have no door", "V4"
    ),
    _control(3, "A bot's token is in no log, error, metric and list of processes", "V16, LLM02"),
    _control(4, "A WebSocket is opened for allowed origins only, never for all with a cookie", "V4"),
    _control(
        5,
        "A visitor's token is 256 random bits of one site, stored as a hash, changed by signing in",
        "V7, V9",
        "Random tokens, so that there is no algorithm to confuse; those of signed-in people live for a day.",
    ),
    _control(6, "Who signs in is vouched for by the site, freshly, and takes along only their own", "V9"),
    _control(7, "The number of a conversation alone opens nothing", "V8"),
    _control(
        8,
        "No party and no site reaches what belongs to another",
        "V8",
        "By conditions in every statement and an invariant over the stored rows. Row-level security would "
        "make the read of each turn 1.6 times as slow, and one owner runs all sites.",
    ),
    _control(
        9,
        "Operators' passwords are long, none guessed first, stored by argon2id; beside them one-time codes",
        "V6",
        "A second factor is each operator's choice; for those of an identity provider it is the provider's.",
    ),
    _control(10, "Logins are slowed down by account and by address before anything is hashed", "V2, V6"),
    _control(
        11, "A login has a new number, a strict cookie, an end by age and by idleness, and can be ended", "V7"
    ),
    _control(12, "Nothing changes on the word of another page", "V3"),
    _control(13, "Every address has its role in one table, and what is not in it opens to nobody", "V8"),
    _control(
        14,
        "What operators read and change is in a chained record that nobody changes and that shows a forgery",
        "V16",
        "Nothing of it ever goes, for it holds ids and no words; who owns the tables can take its guard "
        "away, and the chain breaks.",
    ),
    _control(15, "What a model says becomes text, and of Markdown only what is harmless", "V1, LLM05"),
    _control(16, "Nothing that a model says is loaded by itself: a picture is a link", "LLM02, LLM05"),
    _control(17, "Every answer forbids what it does not need: scripts, frames, markup made of text", "V3"),
    _control(18, "Telegram's formatting is made by code and read as it was meant, or left out", "LLM05"),
    _control(19, "The dashboard takes words of people, tools, summaries and notes for words", "LLM05"),
    _control(
        20, "Words of others stay in their place in a prompt, behind marks that nobody can forge", "LLM01"
    ),
    _control(21, "A note says who vouches for it; what only a tool says is never trusted", "LLM01, LLM04"),
    _control(22, "What is remembered of one person reaches nobody else", "LLM02, LLM08"),
    _control(23, "People see, correct, put away and take along what is remembered of them", "LLM04"),
    _control(
        24,
        "A summary is audited: no orders, nothing invented, bounded, prohibitions word for word",
        "LLM01, LLM05",
    ),
    _control(
        25,
        "Tools are named by the agent, their arguments checked, their time and results bounded",
        "LLM06",
        "Nothing that cannot be taken back is a tool of ours; servers of others are the operator's choice.",
    ),
    _control(
        26,
        "A page is fetched from the open internet only, under every name and after every redirect",
        "V1, V15",
    ),
    _control(27, "Prompts hold no secrets", "LLM07"),
    _control(28, "Money is set aside before a call and settled after it, so that no cap is overrun", "LLM10"),
    _control(
        29, "Length, files, pace, rounds, output and summaries have limits that are told kindly", "LLM10"
    ),
    _control(30, "Work in the background counts against the same caps", "LLM10"),
    _control(31, "Strangers of one address begin and say only so much, for only so much money", "LLM10"),
    _control(32, "Bodies, frames and headers have a largest size", "V4"),
    _control(33, "Slow and many connections of one address keep nobody else out", "V15"),
    _control(34, "Who reads slowly holds up nobody", "V15"),
    _control(35, "Nothing is unpacked that others have packed, beyond a bound", "V4"),
    _control(36, "Logs hold no words of people, no addresses and no secrets", "V16, LLM02"),
    _control(37, "Secrets are in the environment or sealed, in no queue and in no printed setting", "V13"),
    _control(38, "The queue is JSON, and Redis is nobody's but ours", "V13"),
    _control(
        39,
        "A statement ends in time, and what was said cannot be changed behind the program's back",
        "V13",
        "Roles are made by `./evertalk database roles` for a PostgreSQL of one's own; the embedded one has "
        "a single role, for whoever reaches its socket owns its files. TLS is `sslmode` in DATABASE_URL.",
    ),
    _control(40, "What is forgotten is nowhere any more, and that it was is on record", "V14"),
    _control(41, "A person's own data can be taken along whole, and nobody else's is in it", "V14"),
    _control(
        42,
        "Everything is kept for its time and no longer, and of whom is on hold nothing goes",
        "V14",
        "Months of usage and of context audits go whole, and Telegram's own copies after 14 days, of people "
        "on hold, too: the messages themselves stay.",
    ),
    _control(43, "Every requirement is pinned by hashes, and known holes are looked for", "V15, LLM03"),
    _control(44, "Containers have no rights, no writable system, no open doors and bounds", "V13"),
    _control(45, "Counting tokens needs no network, and an altered vocabulary is not used", "LLM03"),
    _control(46, "An error shows a number and a sentence, never our insides", "V16"),
    _control(47, "In a group its administrators decide, and each topic is a place of its own", "V8"),
    _control(48, "Files are what their bytes say, bounded, stripped, and shown to their owner only", "V5"),
    _control(49, "A table taken along holds no formulas", "V1"),
    _control(50, "Wrong and unknown look alike and cost the same", "V8"),
)


_PREFACE = """
What keeps people's words, an operator's money and the machine safe, and the tests that prove it. Each
row names every test that is marked with its number; `tests/unit/security/test_controls.py` fails when a row
has none, or when this page says anything else than the markers do. All of them run with `./evertalk
test`, those of one row with `./evertalk test --control S09`. Chapters are those of OWASP ASVS 5.0 (V)
and of OWASP's ten for applications with language models (LLM).

What only a deployment can get wrong is looked at by `./evertalk doctor --security`, and known holes of
requirements by `./evertalk audit`.
""".strip().splitlines()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Proof:
    """One test that says which controls it proves."""

    file: str
    test: str

    @property
    def sentence(self) -> str:
        return self.test.removeprefix("test_").replace("_", " ")


def proofs() -> dict[str, tuple[Proof, ...]]:
    """Tests by control, as their markers say; without importing any of them."""
    found: dict[str, list[Proof]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.control(" not in text:
            continue
        for number, test in _marked(ast.parse(text)):
            proof = Proof(file=path.relative_to(ROOT / "tests").as_posix(), test=test)
            found.setdefault(number, []).append(proof)
    return {number: tuple(sorted(set(tests))) for number, tests in found.items()}


def _marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                if ast.unparse(decorator).startswith("pytest.mark.control("):
                    assert isinstance(decorator, ast.Call)
                    yield from ((str(ast.literal_eval(word)), node.name) for word in decorator.args)


def page(proven: Mapping[str, tuple[Proof, ...]]) -> str:
    """What docs/controls.md says."""
    total = len({proof for tests in proven.values() for proof in tests})
    lines = ["# Controls", "", *_PREFACE, ""]
    lines += [f"{total} tests of {len(CONTROLS)} controls.", ""]
    lines += ["This page is written by `python -m tests.unit.security.controls > docs/controls.md`."]
    lines += ["", "| control | what | chapters | tests |", "| --- | --- | --- | --- |"]
    lines += [
        f"| [{one.number}](#{one.number.lower()}) | {one.what} | {one.chapter} | {len(proven[one.number])} |"
        for one in CONTROLS
        if one.number in proven
    ]
    for control in CONTROLS:
        lines += ["", f"## {control.number}", "", f"{control.what}.{control.note and ' '}{control.note}", ""]
        files: dict[str, list[str]] = {}
        for proof in proven.get(control.number, ()):
            files.setdefault(proof.file, []).append(proof.sentence)
        lines += [f"* `{file}`: {'; '.join(sentences)}" for file, sentences in files.items()]
    return "\n".join(lines) + "\n"


def numbers_of(marker_arguments: object) -> tuple[str, ...]:
    """The numbers that a marker names; raises ValueError for what is none."""
    words = marker_arguments if isinstance(marker_arguments, tuple) else ()
    if not words or not all(isinstance(word, str) and re.fullmatch(r"S\d\d", word) for word in words):
        raise ValueError(f"a marker names controls such as S09, not {marker_arguments!r}")
    return words


if __name__ == "__main__":
    sys.stdout.write(page(proofs()))
