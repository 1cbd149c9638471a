"""What Evertalk may cost, P1 to P20: what is measured, its floor, what it must and what it should reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["moonshot", "must", "missed", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One figure of a budget: how much it must be at most (or `at_least`), and how much it should."""

    key: str
    unit: str = ""
    must: float
    moonshot: float
    at_least: bool = False

    def verdict(self, value: float) -> Verdict:
        if self._reaches(value, self.moonshot):
            return "moonshot"
        return "must" if self._reaches(value, self.must) else "missed"

    def _reaches(self, value: float, aim: float) -> bool:
        return value >= aim if self.at_least else value <= aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    number: str
    measured: str
    floor: str
    must: str
    moonshot: str
    limits: tuple[Limit, ...]
    in_the_way: str
    """What stands between the figure and the moonshot, where it is missed."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(limit.key for limit in self.limits)

    def verdict(self, values: Mapping[str, float]) -> Verdict:
        """The worst of its figures; one that is missing speaks for itself."""
        found = [limit.verdict(values[limit.key]) for limit in self.limits if limit.key in values]
        if len(found) < len(self.limits):
            return "missed" if "missed" in found else "not measured"
        return max(found, key=("moonshot", "must", "missed").index)


BUDGETS: tuple[Budget, ...] = (
    Budget(
        number="P1",
        measured="time of a turn without its model, beside the four bare commits",
        floor="1.0",
        must="≤ 2.0",
        moonshot="≤ 1.5",
        limits=(Limit(key="overhead_ratio", unit="×", must=2.0, moonshot=1.5),),
        in_the_way="Of 2.7 ms in a quick minute the two statements take 1.7 and Python around them 1.0. A "
        "third of the server's work is to prepare the statements' parts, 14 % are indexes, 8 % checks, 6 % "
        "foreign keys, 10 % the two flushes: they write keys, links, ledger, reservation and delivery in the "
        "commits that the floor makes bare. Without all checks or all foreign keys a turn would take 4 % "
        "or 3 % less. Two of the floor's four flushes are spared; they cost little on this disk: with a "
        "millisecond more for each (`tests.bench.turn --flush-ms 1`) the same turn is 1.04 ×. The "
        "machine's processor changes its speed from minute to minute and its disk does not: the eleven "
        "groups of blocks, spread over five minutes, have lain between 1.60 × and 3.23 ×.",
    ),
    Budget(
        number="P2",
        measured="slowest of a hundred turns beside the middle one, 16 conversations at once",
        floor="about 2",
        must="≤ 4",
        moonshot="≤ 3",
        limits=(Limit(key="p99_to_p50_of_16", unit="×", must=4.0, moonshot=3.0),),
        in_the_way="Sixteen conversations share an event loop and its pool of connections; what else runs on "
        "the machine falls upon the slowest turns first.",
    ),
    Budget(
        number="P3",
        measured="CPU of the web process for a turn without streaming: young / behind three summaries",
        floor="0.4 – 0.9 ms",
        must="≤ 3 / 9 ms",
        moonshot="≤ 1.5 / 4 ms",
        limits=(
            Limit(key="cpu_ms_per_turn", unit="ms", must=3.0, moonshot=1.5),
            Limit(key="cpu_ms_per_turn_behind_summaries", unit="ms", must=9.0, moonshot=4.0),
        ),
        in_the_way="Reading the view, building the request and packing rows are Python; the floor has none. "
        "Behind summaries two fifths are recall: it weighs some 200 passages, and fits the best into their "
        "room.",
    ),
    Budget(
        number="P4",
        measured="CPU of a streamed turn of 150 deltas, beside bare commits and the provider's SDK",
        floor="1.0",
        must="≤ 1.5",
        moonshot="≤ 1.25",
        limits=(Limit(key="streamed_cpu_ratio", unit="×", must=1.5, moonshot=1.25),),
        in_the_way="Each delta becomes part of the draft, of the piece for screens and of that for other "
        "processes; the turn around them builds its request and its rows in Python.",
    ),
    Budget(
        number="P5",
        measured="commits / statements / Redis commands of a plain web turn",
        floor="4 / 5 / 2",
        must="≤ 5 / 10 / 2",
        moonshot="4 / 6 / 2",
        limits=(
            Limit(key="commits", must=5, moonshot=4),
            Limit(key="statements", must=10, moonshot=6),
            Limit(key="redis_commands", must=2, moonshot=2),
        ),
        in_the_way="A count above the aim is a fault of the code, and tests/bench/test_turn_bench.py fails.",
    ),
    Budget(
        number="P6",
        measured="from a message's acknowledgement until the provider has the request, p99",
        floor="1 ms",
        must="≤ 50 ms",
        moonshot="≤ 20 ms",
        limits=(Limit(key="ack_to_request_p99_ms", unit="ms", must=50.0, moonshot=20.0),),
        in_the_way="A claim, a view and the SDK's own request lie between; on a busy machine each waits for "
        "a core.",
    ),
    Budget(
        number="P7",
        measured="a turn in a conversation of a million messages beside one of a hundred: time / memory / "
        "blocks read",
        floor="1.12",
        must="≤ 1.3",
        moonshot="≤ 1.1",
        limits=(
            Limit(key="million_ratio", unit="× time", must=1.3, moonshot=1.1),
            Limit(key="million_blocks_ratio", unit="× blocks", must=1.3, moonshot=1.1),
            Limit(key="million_rss_mib", unit="MiB more", must=5.0, moonshot=1.0),
        ),
        in_the_way="Indexes of a million rows are a level deeper, and each lookup reads one block more.",
    ),
    Budget(
        number="P8",
        measured="a turn while its conversation is being compacted, beside one at rest",
        floor="1.0",
        must="≤ 1.2, never blocked",
        moonshot="≤ 1.1",
        limits=(Limit(key="compacting_ratio", unit="×", must=1.2, moonshot=1.1),),
        in_the_way="Nothing waits for the summary; the worker that reads and writes it takes a share of the "
        "same two cores.",
    ),
    Budget(
        number="P9",
        measured="memory of an idle WebSocket",
        floor="14.5 KiB",
        must="≤ 24 KiB",
        moonshot="≤ 18 KiB",
        limits=(Limit(key="idle_kib_house", unit="KiB", must=24.0, moonshot=18.0),),
        in_the_way="aiohttp's own socket takes the floor; a screen's seat, outbox and limits come on top.",
    ),
    Budget(
        number="P10",
        measured="memory of a process for a million conversations without a socket",
        floor="0",
        must="≤ 5 MiB",
        moonshot="≤ 5 MiB",
        limits=(Limit(key="idle_sessions_rss_mib", unit="MiB", must=5.0, moonshot=5.0),),
        in_the_way="Nothing is kept of a conversation that nobody has open.",
    ),
    Budget(
        number="P11",
        measured="memory of a turn that is being answered: small, and per byte of its prompt",
        floor="60 – 100 KiB + 2.2 ×",
        must="≤ 256 KiB + 3 ×",
        moonshot="≤ 160 KiB + 2.5 ×",
        limits=(
            Limit(key="inflight_kib", unit="KiB", must=256.0, moonshot=160.0),
            Limit(key="inflight_bytes_per_prompt_byte", unit="×", must=3.0, moonshot=2.5),
        ),
        in_the_way="The view's rows, the built request and the SDK's body hold the same text at once.",
    ),
    Budget(
        number="P12",
        measured="one look for unanswered turns among a million idle conversations",
        floor="0.02 ms",
        must="≤ 5 ms",
        moonshot="≤ 1 ms",
        limits=(Limit(key="sweep_ms", unit="ms", must=5.0, moonshot=1.0),),
        in_the_way="One partial index holds what is unanswered; the rest is the way to the server and back.",
    ),
    Budget(
        number="P13",
        measured="bytes on disk for each byte of text: messages with their indexes",
        floor="1.26",
        must="≤ 1.5",
        moonshot="≤ 1.3",
        limits=(Limit(key="bytes_per_text_byte", unit="×", must=1.5, moonshot=1.3),),
        in_the_way="Plain words stand as text and nothing is written twice. Beside its words a row has 100 "
        "bytes, of which its own head takes 32 that only a table of fewer columns would save, and its two "
        "keys take 80, as much as conversations that grow among each other leave of an index's pages.",
    ),
    Budget(
        number="P14",
        measured="from the SIGKILL of a process until what it was doing is done, p99",
        floor="–",
        must="≤ 15 s",
        moonshot="≤ 5 s",
        limits=(Limit(key="after_sigkill_p99_s", unit="s", must=15.0, moonshot=5.0),),
        in_the_way="Most of it is CPU: a process is imported, the bot with Telegram's library, and the "
        "provider's SDK for its first answer.",
    ),
    Budget(
        number="P15",
        measured="from an emptied Redis until everything that waited is done",
        floor="–",
        must="≤ 15 s",
        moonshot="≤ 5 s",
        limits=(Limit(key="after_wipe_s", unit="s", must=15.0, moonshot=5.0),),
        in_the_way="The sweep rings again each second, and for the same job at most every two.",
    ),
    Budget(
        number="P16",
        measured="memory of web / worker / bot at rest, and after a first answer; supervisor; everything",
        floor="71 / about 115 / 200 MiB",
        must="≤ 180 / 170 / 250 MiB, 180 / 180 / 250 MiB; 60; 560 MiB",
        moonshot="≤ 90 / 140 / 220 MiB; 40; 400 MiB",
        limits=(
            Limit(key="rss_web_at_rest_mib", unit="MiB", must=180.0, moonshot=90.0),
            Limit(key="rss_worker_at_rest_mib", unit="MiB", must=170.0, moonshot=140.0),
            Limit(key="rss_bot_at_rest_mib", unit="MiB", must=250.0, moonshot=220.0),
            Limit(key="rss_web_after_model_mib", unit="MiB", must=180.0, moonshot=90.0),
            Limit(key="rss_worker_after_model_mib", unit="MiB", must=180.0, moonshot=140.0),
            Limit(key="rss_bot_after_answer_mib", unit="MiB", must=250.0, moonshot=220.0),
            Limit(key="pss_supervisor_mib", unit="MiB", must=60.0, moonshot=40.0),
            Limit(key="pss_everything_mib", unit="MiB", must=560.0, moonshot=400.0),
        ),
        in_the_way="The provider's SDK takes some 40 MiB of each and the vocabulary that counts tokens 21: "
        "each process loads both after its start, so that the first answer waits for no import. Therefore a "
        "web process holds at rest what it holds after an answer, and has the same *must*. aiogram and its "
        "models are the rest of the bot. Of everything, the spare is 118 MiB, which a machine with less than "
        "2 GiB available does not have, and PostgreSQL 90.",
    ),
    Budget(
        number="P17",
        measured="from the start of the bot until somebody who wrote before has a first answer; first answer "
        "of a web process that has just become ready",
        floor="2 – 3.5 s, the import of aiogram; the second answer",
        must="≤ 6 s; ≤ 300 ms",
        moonshot="≤ 3 s; ≤ 100 ms",
        limits=(
            Limit(key="bot_first_answer_s", unit="s", must=6.0, moonshot=3.0),
            Limit(key="web_first_answer_ms", unit="ms", must=300.0, moonshot=100.0),
        ),
        in_the_way="Importing aiogram and the provider's SDK is most of the bot's time. A web process has "
        "imported the SDK when it is ready; its first answer prepares statements and makes the client.",
    ),
    Budget(
        number="P18",
        measured="the dashboard's list of a million conversations: first page / page 10,000",
        floor="an index in the order of the list",
        must="≤ 50 ms / ≤ 50 ms",
        moonshot="equal within 1.2 ×",
        limits=(
            Limit(key="first_page_ms", unit="ms", must=50.0, moonshot=50.0),
            Limit(key="far_page_ms", unit="ms", must=50.0, moonshot=50.0),
            Limit(key="far_to_first_ratio", unit="×", must=1_000.0, moonshot=1.2),
        ),
        in_the_way="Both pages are found by their index; the far one reads blocks that nobody read before.",
    ),
    Budget(
        number="P19",
        measured="streams of 50 deltas a second that one core carries, beside the SDK alone",
        floor="1.0 (about 330 on a quiet core)",
        must="≥ 0.6 (200)",
        moonshot="≥ 0.82 (270)",
        limits=(Limit(key="streams_of_the_sdk_alone", unit="×", must=0.6, moonshot=0.82, at_least=True),),
        in_the_way="The turn around three seconds of stream costs as much as half a second of it; the SDK's "
        "reading of the deltas is most of the rest.",
    ),
    Budget(
        number="P20",
        measured="turns a second, all processes, servers, people and a provider of 20 deltas on two cores; "
        "share of them behind three summaries",
        floor="about 2,000 bare; 1.0",
        must="≥ 100; ≥ 0.2",
        moonshot="≥ 250; ≥ 0.5",
        limits=(
            Limit(key="turns_per_second", unit="/s", must=100.0, moonshot=250.0, at_least=True),
            Limit(key="behind_summaries_to_young", unit="×", must=0.2, moonshot=0.5, at_least=True),
        ),
        in_the_way="The people and the provider of the measurement run on the same two cores. Behind "
        "summaries half of the time is recall, most of it PostgreSQL's.",
    ),
)


def budget(number: str) -> Budget:
    """Raises KeyError."""
    return {one.number: one for one in BUDGETS}[number]
