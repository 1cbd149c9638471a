"""The 55 faults that Evertalk is tried with: the one truth of `./evertalk test faults` and docs/faults.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    number: str
    fault: str
    cause: str
    """How the fault is brought about."""
    holds: str
    """What is true of it in the end, beside the invariants, which are checked after every case."""
    long: str = ""
    """The length that only a night has time for; every change is tried with a shorter form."""


def _row(number: int, fault: str, cause: str, holds: str, *, long: str = "") -> Row:
    return Row(number=f"F{number:02d}", fault=fault, cause=cause, holds=holds, long=long)


_PROCESSES = (
    _row(
        1, "web or bot dies before a message is stored",
        "exit in front of the commit",
        "nothing was acknowledged; the browser or Telegram sends it again; stored once, answered once",
    ),
    _row(
        2, "web or bot dies when a message is stored and not yet acknowledged",
        "exit behind the commit",
        "the repeat meets its own key; stored once, answered once",
    ),
    _row(
        3, "web dies when it has acknowledged and told nobody",
        "SIGKILL as soon as the acknowledgement is heard",
        "the look for unanswered turns finds it; answered once",
    ),
    _row(
        4, "whoever answers dies between claim and model",
        "exit behind the claim",
        "the lease lapses with the heartbeat, another process answers, once",
    ),
    _row(
        5, "whoever answers dies while words come in",
        "exit after some deltas",
        "the attempt is thrown away and begun again, the draft replaced; nothing half is stored; the ledger"
        " has it as aborted, and what was set aside for it counts against the caps",
    ),
    _row(
        6, "whoever answers dies when the model has ended",
        "exit in front of the answer's commit",
        "one more call of the model, one answer",
    ),
    _row(
        7, "whoever answers dies when the answer is stored and not yet delivered",
        "exit behind the answer's commit",
        "the next process delivers it, without asking the model again",
    ),
    _row(
        8, "the bot dies before its first bubble is sent",
        "exit in front of the send",
        "what had not left is delivered once; what may have left is told, and comes when its person wants it",
    ),
    _row(
        9, "the bot dies when Telegram has a bubble whose number is not stored",
        "exit behind the send",
        "the answer comes once; at most one stray bubble stays",
    ),
    _row(
        10, "the bot dies between the bubble's number and its last edit",
        "exit in front of the edit",
        "the answer comes once, in the same bubble",
    ),
    _row(
        11, "the bot dies when the last edit is made and not noted",
        "exit behind the edit",
        "the edit is repeated; Telegram's “not modified” is success",
    ),
    _row(
        12, "whoever answers dies around a tool's side effect",
        "exit before, in and behind the run of a tool",
        "repeated only where the tool says that this does no harm; else the model reads “outcome unknown”",
    ),
    _row(
        13, "the worker dies between a flush's model call and its notes",
        "exit in front of the commit",
        "flushed again; nothing lost, no note twice",
    ),
    _row(
        14, "the worker dies when the notes are stored and nothing is summarised",
        "exit behind the flush's commit",
        "not flushed again; the summary is made",
    ),
    _row(
        15, "the worker dies between a summary's model call and its commit",
        "exit in front of the commit",
        "the conversation goes on with its originals meanwhile; the summary is made later",
    ),
    _row(
        16, "the worker dies when the summary is stored and its job is not marked",
        "exit behind the summary's commit",
        "the second run finds the range covered and does nothing; one summary",
    ),
    _row(
        17, "processes are killed all the time",
        "SIGKILL to a random one every second under load",
        "none lost, none doubled, none out of order; answers keep coming",
        long="ten minutes",
    ),
    _row(
        18, "an orderly end in the middle of a long answer",
        "SIGTERM during a stream of a minute",
        "ended or handed over; one answer; the process is gone within 30 s",
    ),
    _row(
        19, "whoever answers is stopped and wakes up again",
        "SIGSTOP for longer than its lease, then SIGCONT",
        "another process answers; the late writer is fenced off",
        long="thirty seconds",
    ),
    _row(
        20, "an event loop is blocked",
        "the process computes and returns to nothing else for longer than its lease",
        "its heart beats beside the loop, so that it keeps its turns and ends them; after 30 s the heart no"
        " longer vouches for it, and another process takes over; one answer; the log says which",
        long="twenty seconds",
    ),
    _row(
        21, "the clock of one process jumps",
        "an hour ahead, then an hour back, while it works",
        "no lease stolen, none stuck: only Postgres' clock counts",
    ),
    _row(
        22, "two bot processes with one token",
        "started side by side",
        "one polls and one stands by; Telegram sees no conflict; the second takes over when the first falls",
    ),
    _row(
        23, "the same update comes five times at once",
        "posted to two processes",
        "every post is answered with 200; stored once, answered once",
    ),
    _row(
        24, "an update comes before an earlier one",
        "posted in the wrong order",
        "both stored, both answered, in the order of arrival",
    ),
    _row(
        25, "twenty messages in a second while an answer is written",
        "sent at once",
        "each is part of exactly one following turn; none skipped",
    ),
)  # fmt: skip

_SERVERS = (
    _row(
        26, "Postgres commits and its reply is lost",
        "a proxy swallows 2 % of replies and breaks the line",
        "looked up again by its key; none lost, none doubled",
    ),
    _row(
        27, "Postgres falls without a goodbye",
        "immediate shutdown and start",
        "503 meanwhile; work goes on by itself when it accepts again",
    ),
    _row(
        28, "Postgres is away for a while",
        "stopped",
        "nothing is acknowledged; what Telegram kept is taken in afterwards, in order",
        long="a minute",
    ),
    _row(
        29, "Postgres is read-only",
        "as after a failover to a standby",
        "as if it were away; connections are made anew",
    ),
    _row(
        30, "the disk is full",
        "the log of a real Postgres on a disk of a few megabytes; an error by hand where a table grows",
        "nothing is acknowledged that is not stored; goes on when there is room",
    ),
    _row(
        31, "slow statements take every connection",
        "a sleeper that holds a table, more people than connections",
        "waits are bounded and end in a kind refusal; no deadlock",
    ),
    _row(
        32, "a thousand clients leave in the middle of a request",
        "connections cut off",
        "as many connections to Postgres as before; nothing leaks",
    ),
    _row(
        33, "rivals for the same rows",
        "deadlocks and serialization failures",
        "tried again, a bounded number of times",
    ),
    _row(
        34, "Redis is killed and comes back empty",
        "SIGKILL, nothing persisted, fifty jobs due",
        "all fifty are done",
    ),
    _row(
        35, "Redis is away for a while",
        "stopped",
        "people talk on; jobs are done when it is back",
        long="a minute",
    ),
    _row(
        36, "Redis is frozen",
        "it sleeps",
        "calls time out; no turn is stuck",
        long="twenty seconds",
    ),
    _row(
        37, "Redis is full",
        "its memory limit is reached, nothing is evicted",
        "turns go on, errors are counted; jobs are found in Postgres, those that waited are done afterwards",
    ),
    _row(
        38, "Redis is emptied again and again",
        "FLUSHALL every ten seconds under load",
        "none lost, none doubled, none out of order",
        long="ten minutes",
    ),
    _row(
        39, "a job is rung twice, unknown, late, failing or endless",
        "each put into the queue",
        "every job ends as done, due again or dead, and says so in Postgres",
    ),
)  # fmt: skip

_PROVIDER = (
    _row(
        40, "the provider says: too many requests",
        "429 with a short and with a long wait",
        "waited for, or put back with one notice: a minute at most, less once it answers anybody",
    ),
    _row(
        41, "the provider is overloaded",
        "529, and the same inside of a stream",
        "the breaker opens, few calls are repeated, and it closes again",
        long="a minute",
    ),
    _row(
        42, "a stream is cut off anywhere",
        "a proxy breaks it after any number of bytes",
        "nothing half is stored; begun again; no words twice on the screen",
    ),
    _row(
        43, "a stream falls silent, or drips",
        "no event for minutes; a byte a second",
        "given up after 30 s of silence, or at the deadline",
        long="ten minutes",
    ),
    _row(
        44, "a stream ends without its end, or holds nonsense",
        "no last event; broken JSON; unknown events",
        "taken as cut off, or passed over",
    ),
    _row(
        45, "the provider finds a request too long",
        "400 although it was counted as short enough",
        "made smaller once, answered, never in circles",
    ),
    _row(
        46, "a summary is useless",
        "empty, longer than its originals, without what was pinned, or full of orders",
        "refused by its checks; a digest without a model in the end; the conversation lives",
    ),
    _row(
        47, "three compactors and a writer in one conversation",
        "at the same time",
        "one wins each time; ranges are contiguous; every original is kept",
    ),
    _row(
        48, "compact, forget and a new message at the same moment",
        "at the same time",
        "one after the other; what was erased does not come back",
    ),
    _row(
        49, "a message that no attempt survives",
        "three failures in a row",
        "given up with a notice; the next message is answered",
    ),
)  # fmt: skip

_CHANNELS = (
    _row(
        50, "Telegram refuses, limits or is silent",
        "429, 403, 400, a call cut off before or after it was accepted, a bubble deleted",
        "exactly one final answer, on a press where it was cut off; or the chat is marked closed",
    ),
    _row(
        51, "a widget reconnects, reads slowly, has a second tab",
        "the line cut at every step, in a browser",
        "the same transcript in both tabs, no bubble twice, nobody else is slowed down",
    ),
    _row(
        52, "a worker of the version before works beside a new one",
        "a new kind of job and a new column, processes running that do not know them; the program of two"
        " migrations before, from the history, through an upgrade and beside the new one",
        "no job lost; each migration lets the version before work on",
    ),
    _row(
        53, "Postgres is killed again and again while people write on both channels",
        "SIGKILL to its first process every six to nine seconds under load",
        "judged by what each person sent and saw: none lost, none doubled, none out of order; no update is"
        " marked and no job has a fault because of it",
        long="five minutes",
    ),
)  # fmt: skip

_HOSTS = (
    _row(
        54, "a standby that was behind becomes the primary",
        "pg_basebackup, a line to it that stops, the primary killed as with its machine, pg_promote;"
        " a thousand promotions of a simulated one",
        "no turn is stuck; screens begin afresh; what was acknowledged and is lost comes again from browsers"
        " that are open and from the bot, and is answered anew",
    ),
    _row(
        55, "one of two hosts has all the visitors, and more than it can carry",
        "sixty people on one of two web processes that run a fifth of the time, each asking again as soon as"
        " they are answered",
        "no turn is taken from whoever is slow, none is paid for twice; new turns go to the other process, so"
        " that nearly everybody waits no more than twice as long as with people on both",
    ),
)  # fmt: skip

ROWS: Final = (*_PROCESSES, *_SERVERS, *_PROVIDER, *_CHANNELS, *_HOSTS)
NUMBERS: Final = tuple(row.number for row in ROWS)


def as_markdown() -> str:
    """The whole of docs/faults.md."""
    top = ("# Faults", f"> {_PROMISE}".replace("\n", "\n> "), _HOW, _COMMANDS, _LINES, _EXCEPTIONS)
    return "\n\n".join([*top, "\n".join([*_HEAD, *map(_line, ROWS)])]) + "\n"


def _line(row: Row) -> str:
    whole = f" ({row.long} at night)" if row.long else ""
    return f"| {row.number} | {row.fault} | {row.cause}{whole} | {row.holds} |"


_PROMISE = """Every message that Evertalk has acknowledged is answered exactly once, in order, or the
person is told why not."""
_HOW = """That is tried with 55 faults: real processes and signals, a real PostgreSQL and Valkey, a proxy
that breaks lines, strict imitations of Telegram and of the model's provider, and a browser where a row
needs one. Each case ends with the same check of everything stored (`check_invariants()`; `./evertalk
doctor` runs it, too)."""
_COMMANDS = """```sh
./evertalk test faults                 # every row once; a line for each: ok, or the reason
./evertalk test faults --row F09 F10   # these only
./evertalk test faults --at-length     # each outage as long as at night: minutes, and ten of the storm
./evertalk test faults --seeds 1000    # a night: places, moments and orders drawn anew for each seed
./evertalk test chaos --minutes 30     # all five processes killed while forty people write, and a table
```"""
_LINES = """A line begins with the number of its row and ends in `ok` or the reason. `--seeds 417-417`
repeats what one seed drew. All rows are part of `./evertalk test`; those with a longer form at night are
tried in seconds there, and without `--at-length`.

The chaos run takes nothing from the database but its invariants: each of forty people, half of them in a
browser and half on Telegram, keeps a transcript of what they sent and saw, and these are judged. One process
falls at a time, then Postgres every ten seconds, then three at once, then all of it; it ends with
`result: ok` and the exit code 0, or with what is lost, doubled or out of order. `--transcripts FOLDER`
keeps what everybody saw."""
_EXCEPTIONS = """Two exceptions are honest ones. A process that dies between Telegram's taking a first
bubble and our storing its number leaves one stray bubble, never a second answer. And a short answer that
was being sent when its process died may be in the chat or not: it is not sent again by guess. Its person is
told so within five seconds, with a button that brings it once; the operator sees it, too."""
_HEAD = ("| row | fault | how it is brought about | what holds |", "|---|---|---|---|")


if __name__ == "__main__":
    print(as_markdown(), end="")
