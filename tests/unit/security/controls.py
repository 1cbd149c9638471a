"""The controls, each in a few words: what docs/controls.md shows, beside the tests that prove them."""

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
        1,
        "A webhook has a secret of at least 32 characters, which is checked before the body is read",
        "V4, V13",
    ),
    _control(
        2,
        "Forwarding headers are trusted only from trusted proxies; unknown host names and bots get no answer",
        "V4",
    ),
    _control(3, "A bot's token appears in no log, error, metric or process list", "V16, LLM02"),
    _control(4, "A WebSocket opens only for allowed origins, never for every origin with a cookie", "V4"),
    _control(
        5,
        "A visitor's token has 256 random bits, is valid for one site, stored as a hash and new at sign-in",
        "V7, V9",
        "Tokens are random, so that there is no algorithm to confuse; tokens of signed-in people are "
        "valid for a day.",
    ),
    _control(
        6,
        "The site vouches for who signs in, freshly, and people bring along only their own conversation",
        "V9",
    ),
    _control(7, "The id of a conversation alone gives no access", "V8"),
    _control(
        8,
        "No contact and no site reaches what belongs to another",
        "V8",
        "Conditions in every statement and an invariant over the stored rows ensure this. Row-level "
        "security would make the read of each turn 1.6 times as slow, and one owner runs all sites.",
    ),
    _control(
        9,
        "Operators' passwords are long, not common, stored with argon2id; one-time codes can be added",
        "V6",
        "Each operator chooses whether to use a second factor; for operators of an identity provider "
        "it is the provider's.",
    ),
    _control(10, "Logins are rate-limited by account and by address before anything is hashed", "V2, V6"),
    _control(
        11,
        "An operator session has a new id, a strict cookie and limits on age and idleness, and can be ended",
        "V7",
    ),
    _control(12, "Another page cannot change anything (cross-site request forgery)", "V3"),
    _control(
        13, "One table gives every endpoint its role; an endpoint that is not in it admits nobody", "V8"
    ),
    _control(
        14,
        "A tamper-evident log, which nobody can change, records what operators read and change",
        "V16",
        "The log is permanent, because it contains ids and no content. Whoever owns the tables can "
        "remove its protection, but then the chain breaks.",
    ),
    _control(15, "Model output becomes text, and of Markdown only what is harmless", "V1, LLM05"),
    _control(
        16, "Nothing in model output is loaded automatically: a picture is shown as a link", "LLM02, LLM05"
    ),
    _control(17, "Every response forbids what it does not need: scripts, frames, markup made of text", "V3"),
    _control(18, "Code builds Telegram's formatting; it is read as intended or left out", "LLM05"),
    _control(19, "The dashboard shows text of people, tools, summaries and notes as text", "LLM05"),
    _control(
        20, "Untrusted text stays in its place in a prompt, behind markers that nobody can forge", "LLM01"
    ),
    _control(
        21, "A note records its source; a note that comes only from a tool is never trusted", "LLM01, LLM04"
    ),
    _control(22, "What is remembered about one person reaches nobody else", "LLM02, LLM08"),
    _control(23, "People can see, correct, archive and export what is remembered about them", "LLM04"),
    _control(
        24,
        "A summary is audited: no instructions, nothing invented, limited length, prohibitions word for word",
        "LLM01, LLM05",
    ),
    _control(
        25,
        "An agent names its tools; arguments are checked, and time and results are limited",
        "LLM06",
        "None of the built-in tools has an effect that cannot be undone; the operator decides about "
        "other servers.",
    ),
    _control(
        26,
        "Pages are fetched only from the public internet, under every name and after every redirect",
        "V1, V15",
    ),
    _control(27, "Prompts contain no secrets", "LLM07"),
    _control(28, "Money is reserved before a call and settled after it, so that no cap is exceeded", "LLM10"),
    _control(
        29,
        "Length, files, rates, rounds, output and summaries have limits, and people are told politely",
        "LLM10",
    ),
    _control(30, "Background jobs count against the same caps", "LLM10"),
    _control(
        31,
        "Anonymous visitors of one address can start and say only so much, for only so much money",
        "LLM10",
    ),
    _control(32, "Bodies, frames and headers have a maximum size", "V4"),
    _control(33, "Slow and numerous connections of one address keep nobody else out", "V15"),
    _control(34, "A slow reader delays nobody else", "V15"),
    _control(35, "Compressed input is not unpacked beyond a limit", "V4"),
    _control(36, "Logs contain no text of people, no addresses and no secrets", "V16, LLM02"),
    _control(37, "Secrets are in the environment or encrypted, in no queue and in no printed setting", "V13"),
    _control(38, "The queue is JSON, and only Evertalk uses its Redis", "V13"),
    _control(
        39,
        "A statement has a time limit, and stored messages cannot be changed behind the program's back",
        "V13",
        "`./evertalk database roles` creates the roles for your own PostgreSQL. The embedded one has "
        "a single role, because whoever can reach its socket owns its files. TLS is `sslmode` in "
        "DATABASE_URL.",
    ),
    _control(40, "Erased data are gone everywhere, and the erasure is on record", "V14"),
    _control(41, "A person can export all of their own data, and nobody else's is in it", "V14"),
    _control(
        42,
        "Data are kept for their retention time and no longer; nothing of a person on legal hold is deleted",
        "V14",
        "Months of usage and of context audits, and Telegram's own copies after 14 days, are deleted "
        "even for people on legal hold: the messages themselves stay.",
    ),
    _control(43, "Hashes pin every requirement, and known vulnerabilities are looked for", "V15, LLM03"),
    _control(
        44,
        "Containers have no privileges, a read-only file system, few open ports and resource limits",
        "V13",
    ),
    _control(45, "Counting tokens needs no network, and an altered vocabulary is not used", "LLM03"),
    _control(46, "An error shows an id and a sentence, never internals", "V16"),
    _control(47, "In a group, its administrators decide, and each topic is a separate chat", "V8"),
    _control(
        48,
        "File types are detected from content; files are limited, stripped and shown only to their owner",
        "V5",
    ),
    _control(49, "An exported table contains no formulas", "V1"),
    _control(50, "Wrong and unknown values look alike and cost the same", "V8"),
    _control(51, "Reading foreign text takes work that grows with its length and no faster", "V2, LLM10"),
    _control(52, "A body from outside is read up to its bound, however long the sender goes on", "V4, LLM10"),
    _control(
        53, "No redirect takes a conversation to a server that the operator has not chosen", "V15, LLM02"
    ),
    _control(
        54, "A form that calls any address shows of a server no more than a JSON error's message", "V15, V16"
    ),
    _control(55, "A form names no folder outside of the data folder; that needs a shell", "V5"),
    _control(
        56,
        "A changed tool of a server that can write is not offered before an administrator approves it",
        "V15, LLM03",
    ),
)


_PREFACE = """
This page lists the {number} security controls of Evertalk and the tests that prove each of them.

Each row names every test that is marked with its number. `tests/unit/security/test_controls.py` fails if a
row has no test, or if this page differs from the markers. `./evertalk test` runs all of these tests, and
`./evertalk test --control S09` runs those of one row. Chapters are those of OWASP ASVS 5.0 (V) and of OWASP's
ten for applications with language models (LLM).

`./evertalk doctor --security` checks what only a deployment can get wrong, and `./evertalk audit` looks for
known vulnerabilities of requirements.
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
    preface = (line.format(number=len(CONTROLS)) for line in _PREFACE)
    lines = ["# Controls", "", *preface, ""]
    lines += [f"{total} tests of {len(CONTROLS)} controls.", ""]
    lines += ["To write this page, run `python -m tests.unit.security.controls > docs/controls.md`."]
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
