"""The faults that Evertalk is tried with: the one truth of `./evertalk test faults` and docs/faults.md."""

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
        1, "the web or bot process dies before it stores a message",
        "exit before the commit",
        "nothing was acknowledged; the browser or Telegram sends the message again; it is stored once and"
        " answered once",
    ),
    _row(
        2, "the web or bot process dies after it stores a message and before it acknowledges it",
        "exit after the commit",
        "the repeated message has the same key; it is stored once and answered once",
    ),
    _row(
        3, "the web process dies after it acknowledges a message and before it announces it",
        "SIGKILL as soon as the acknowledgement arrives",
        "the sweep for unanswered turns finds it; it is answered once",
    ),
    _row(
        4, "the process dies between claim and model call",
        "exit after the claim",
        "the lease expires with the heartbeat; another process answers, once",
    ),
    _row(
        5, "the process dies while the answer streams",
        "exit after some deltas",
        "the attempt is discarded and repeated, and the draft is replaced; no partial answer is stored; the"
        " ledger lists the call as aborted, and its reservation counts against the caps",
    ),
    _row(
        6, "the process dies when the model has finished",
        "exit before the answer's commit",
        "one more model call, one answer",
    ),
    _row(
        7, "the process dies when the answer is stored and not yet delivered",
        "exit after the answer's commit",
        "the next process delivers it, without another model call",
    ),
    _row(
        8, "the bot dies before it sends its first message",
        "exit before the send",
        "what was not sent is delivered once; for what may have been sent, the person gets a notice with a"
        " button that delivers it",
    ),
    _row(
        9, "the bot dies when Telegram has a message whose id is not stored",
        "exit after the send",
        "the answer arrives once; at most one stray message stays",
    ),
    _row(
        10, "the bot dies between a message's id and its last edit",
        "exit before the edit",
        "the answer arrives once, in the same message",
    ),
    _row(
        11, "the bot dies when the last edit is made and not recorded",
        "exit after the edit",
        "the edit is repeated; Telegram's “not modified” counts as success",
    ),
    _row(
        12, "the process dies around a tool's side effect",
        "exit before, during and after the run of a tool",
        "the tool runs again only if it is idempotent; otherwise the model reads “outcome unknown”",
    ),
    _row(
        13, "the worker dies between a flush's model call and its notes",
        "exit before the commit",
        "the flush is repeated; no note is lost or stored twice",
    ),
    _row(
        14, "the worker dies when the notes are stored and nothing is summarised",
        "exit after the flush's commit",
        "the flush is not repeated; the summary is written",
    ),
    _row(
        15, "the worker dies between a summary's model call and its commit",
        "exit before the commit",
        "the conversation continues with its original messages; the summary is written later",
    ),
    _row(
        16, "the worker dies when the summary is stored and its job is not marked as done",
        "exit after the summary's commit",
        "the second run finds the range covered and does nothing; one summary",
    ),
    _row(
        17, "processes are killed all the time",
        "SIGKILL to a random process every second under load",
        "no message is lost, doubled or out of order; answers keep coming",
        long="ten minutes",
    ),
    _row(
        18, "a process is terminated during a long answer",
        "SIGTERM during a stream of a minute",
        "the answer is completed or handed over; one answer; the process ends within 30 s",
    ),
    _row(
        19, "a process is suspended and resumed",
        "SIGSTOP for longer than its lease, then SIGCONT",
        "another process answers; the resumed process can no longer write",
        long="thirty seconds",
    ),
    _row(
        20, "an event loop is blocked",
        "the process computes without yielding for longer than its lease",
        "heartbeats come from a thread beside the loop, so that the process keeps its turns and finishes"
        " them; after 30 s the heartbeats stop, another process takes over, and the watch-dog ends the"
        " process; one answer; the log says which of these happened; C code that holds the lock of Python"
        " stops the heartbeats, too: see F60",
        long="twenty seconds",
    ),
    _row(
        21, "the clock of one process jumps",
        "an hour ahead, then an hour back, while it works",
        "no lease is stolen or stuck, because only PostgreSQL's clock counts",
    ),
    _row(
        22, "two bot processes use one token",
        "started side by side",
        "one polls and one stands by; Telegram sees no conflict; the second takes over when the first dies",
    ),
    _row(
        23, "the same update arrives five times at once",
        "posted to two processes",
        "every request is answered with 200; the message is stored once and answered once",
    ),
    _row(
        24, "an update arrives before an earlier one",
        "posted in the wrong order",
        "both are stored and answered in the order of arrival",
    ),
    _row(
        25, "twenty messages arrive within a second while an answer is written",
        "sent at once",
        "each is part of exactly one following turn; none is skipped",
    ),
)  # fmt: skip

_SERVERS = (
    _row(
        26, "PostgreSQL commits and its reply is lost",
        "a proxy swallows 2 % of the replies and breaks the connection",
        "the result is looked up by its key; nothing is lost or doubled",
    ),
    _row(
        27, "PostgreSQL stops abruptly",
        "immediate shutdown and start",
        "503 meanwhile; work continues when PostgreSQL accepts connections again",
    ),
    _row(
        28, "PostgreSQL is unavailable for a while",
        "stopped",
        "nothing is acknowledged; updates that Telegram kept are handled afterwards, in order",
        long="a minute",
    ),
    _row(
        29, "PostgreSQL is read-only",
        "as after a failover to a standby, or as a managed server does when its disk is full",
        "nothing is acknowledged, and people are told; `/readyz` is 503 within 3 s, because no heartbeat is"
        " written; doctor repeats the server's reason; after 60 s operators are alerted once per target from"
        " memory, and told when it is over; connections are opened again",
    ),
    _row(
        30, "the disk is full",
        "the write-ahead log of a real PostgreSQL on a disk of a few megabytes; an injected error where a"
        " table grows",
        "nothing is acknowledged that is not stored; work continues when there is space",
    ),
    _row(
        31, "slow statements take every connection",
        "a statement that locks a table, and more people than connections",
        "waits are bounded and end in a polite refusal; no deadlock",
    ),
    _row(
        32, "a thousand clients disconnect in the middle of a request",
        "connections cut off",
        "as many connections to PostgreSQL as before; nothing leaks",
    ),
    _row(
        33, "transactions conflict on the same rows",
        "deadlocks and serialization failures",
        "they are retried, a bounded number of times",
    ),
    _row(
        34, "Redis is killed and restarts empty",
        "SIGKILL, nothing persisted, fifty jobs due",
        "all fifty jobs are done",
    ),
    _row(
        35, "Redis is unavailable for a while",
        "stopped",
        "people keep talking; jobs are done when Redis is back",
        long="a minute",
    ),
    _row(
        36, "Redis does not respond",
        "suspended",
        "calls time out; no turn is stuck",
        long="twenty seconds",
    ),
    _row(
        37, "Redis is full",
        "its memory limit is reached, nothing is evicted",
        "turns continue and errors are counted; jobs are found in PostgreSQL, and those that waited are"
        " done afterwards",
    ),
    _row(
        38, "Redis is emptied again and again",
        "FLUSHALL every ten seconds under load",
        "no message is lost, doubled or out of order",
        long="ten minutes",
    ),
    _row(
        39, "a job is announced twice, unknown, late, failing or endless",
        "each put into the queue",
        "every job ends as done, due again or dead, and PostgreSQL records it",
    ),
)  # fmt: skip

_PROVIDER = (
    _row(
        40, "the provider responds with “too many requests”",
        "429 with a short and with a long wait",
        "the turn waits, or is postponed with one notice: for a minute at most, less once the provider"
        " answers anybody",
    ),
    _row(
        41, "the provider is overloaded",
        "529, also within a stream",
        "the circuit breaker opens, few calls are repeated, and it closes again",
        long="a minute",
    ),
    _row(
        42, "a stream is cut off at any point",
        "a proxy breaks it after any number of bytes",
        "no partial answer is stored; the call is repeated; no text appears twice on the screen",
    ),
    _row(
        43, "a stream stalls or trickles",
        "no event for minutes; a byte a second",
        "the call is given up after 60 s of silence, or at the deadline",
        long="ten minutes",
    ),
    _row(
        44, "a stream has no end event, or is malformed",
        "no last event; broken JSON; unknown events",
        "treated as cut off, or ignored",
    ),
    _row(
        45, "the provider refuses a request as too long",
        "400 although it was counted as short enough",
        "the request is made smaller once and answered; no loop",
    ),
    _row(
        46, "a summary is unusable",
        "empty, longer than its originals, without pinned messages, or full of instructions",
        "the checks refuse it; in the end a digest without a model replaces it; the conversation continues",
    ),
    _row(
        47, "three compactors and a writer work on one conversation",
        "at the same time",
        "one wins each time; ranges are contiguous; every original is kept",
    ),
    _row(
        48, "compact, forget and a new message coincide",
        "at the same time",
        "they run one after the other; erased content does not come back",
    ),
    _row(
        49, "a message fails in every attempt",
        "three failures in a row",
        "it is given up with a notice; the next message is answered",
    ),
)  # fmt: skip

_CHANNELS = (
    _row(
        50, "Telegram refuses, limits or does not respond",
        "429, 403, 400, a call cut off before or after it was accepted, a deleted message",
        "exactly one final answer, found in the chat or sent again if the call was cut off; a refused answer"
        " comes as plain text, as a file or as one line that says so; the answer to a chat that takes no"
        " messages waits for it",
    ),
    _row(
        51, "a widget reconnects, reads slowly, has a second tab",
        "the connection cut at every step, in a browser",
        "the same transcript in both tabs, no message twice, nobody else is slowed down",
    ),
    _row(
        52, "a worker of the former version works beside a new one",
        "a new kind of job and a new column, and processes that do not know them; the program of two"
        " migrations before, from the history, through an upgrade and beside the new one",
        "no job is lost; each migration lets the former version work",
    ),
    _row(
        53, "PostgreSQL is killed again and again while people write on both channels",
        "SIGKILL to its first process every six to nine seconds under load",
        "judged by what each person sent and saw: no message is lost, doubled or out of order; no update is"
        " marked as failed and no job has a fault because of it",
        long="five minutes",
    ),
)  # fmt: skip

_HOSTS = (
    _row(
        54, "a standby that lags becomes the primary",
        "pg_basebackup, a replication connection that stops, the primary killed as with its machine,"
        " pg_promote; two hundred promotions of a simulated standby, by night a thousand",
        "no turn is stuck; clients reload; open browsers and the bot send lost acknowledged messages again,"
        " and they are answered again",
    ),
    _row(
        55, "one of two hosts has all the visitors, and more than it can carry",
        "one of two web processes stops for 1.5 s again and again, and is overloaded from 1.0 s on; at night"
        " eighty people on one of two that run an eighth of the time,"
        " each asking again as soon as they are answered",
        "no turn is taken from a slow process, and none is paid for twice; new turns go to the other"
        " process, so that nearly everybody waits no more than twice as long as with people on both hosts",
    ),
    _row(
        56, "the database's address leads to a standby from the start",
        "a hot standby made by pg_basebackup, processes that are started with its address, pg_promote later",
        "processes wait and say why; their port answers 503 in the reader's language, `/readyz` says"
        " `read-only`, doctor says that the address leads to a standby; operators are alerted once; after the"
        " promotion all start by themselves, and operators are told that it is over",
    ),
    _row(
        57, "the primary fails, and clients follow to the promoted standby",
        "the files of docs/cluster.md with PgBouncer, HAProxy and a synchronous standby, the primary killed;"
        " and a primary in a network of its own whose packets are dropped, so that nothing says goodbye",
        "on a machine at rest at most 10 s without an answer; nothing that was acknowledged is lost",
    ),
    _row(
        58, "a background duty is starved",
        "the table that one duty needs is locked for as long as the others run",
        "the duty fails within its own time limit and says why on the page Jobs; every other duty succeeds"
        " again and again, and next month's partitions are made; without the lock it succeeds by itself",
    ),
    _row(
        59, "the machine has no network but loopback",
        "Chromium, which then reports that it is offline, and the server in a network of their own",
        "widget and dashboard connect as usual; the widget calls a connection offline after a failure"
        " only, tries again by itself, and keeps one that works",
    ),
    _row(
        60, "a message, a tool's result, an answer or a job stops the process that works at it",
        "C code that holds Python's lock without end, in the middle of a turn, before a message is stored,"
        " and in a job; also random SIGKILLs, and an outage of PostgreSQL",
        "the watch-dog ends the process after 20 s of silence; after the second time the turn is ended"
        " with a notice, the message is refused, or the job is dead; operators are alerted; everybody else"
        " waits 30 s at most; `/retry` tries a turn once more; a process killed from outside blames no turn",
        long="twenty seconds of silence instead of three",
    ),
    _row(
        61, "the bot dies while it shows a draft to an owner, or sends an approved one",
        "exit at five points; SIGKILL of bot and worker while twenty customers write 200 messages and an"
        " owner presses each button twice",
        "each message is stored once and has its draft; an approval is sent once, or the owner reads that it"
        " may have arrived; nothing is sent without approval",
    ),
)  # fmt: skip

ROWS: Final = (*_PROCESSES, *_SERVERS, *_PROVIDER, *_CHANNELS, *_HOSTS)
NUMBERS: Final = tuple(row.number for row in ROWS)


def as_markdown() -> str:
    """The whole of docs/faults.md."""
    top = ("# Faults", _ANSWERS, f"> {_PROMISE}".replace("\n", "\n> "), _HOW, _COMMANDS, _LINES, _EXCEPTIONS)
    return "\n\n".join([*top, "\n".join([*_HEAD, *map(_line, ROWS)])]) + "\n"


def _line(row: Row) -> str:
    whole = f" ({row.long} at night)" if row.long else ""
    return f"| {row.number} | {row.fault} | {row.cause}{whole} | {row.holds} |"


_ANSWERS = "This page lists the faults that Evertalk is tested with, and what holds after each of them."
_PROMISE = """Evertalk answers every message that it has acknowledged exactly once and in order, or it
tells the person why not."""
_HOW = f"""{len(ROWS)} faults test this promise: with real processes and signals, a real PostgreSQL and
Valkey, a proxy that breaks connections, strict imitations of Telegram and of the model's provider, and a
browser where a row needs one. Each case ends with the same check of everything stored
(`check_invariants()`; `./evertalk doctor` runs it, too)."""
_COMMANDS = """```sh
./evertalk test faults                 # every row once; a line for each: ok, or the reason
./evertalk test faults --row F09 F10   # only these rows
./evertalk test faults --at-length     # long outages, as at night: minutes, and ten for the storm
./evertalk test faults --seeds 1000    # a night: each seed draws places, moments and orders
./evertalk test chaos --minutes 30     # kills all five processes while forty people write; prints a table
```"""
_LINES = """A line begins with the number of its row and ends in `ok` or the reason. `--seeds 417-417`
repeats what one seed drew. All rows are part of `./evertalk test`. Rows with a longer form at night take
seconds there, and without `--at-length`.

The chaos run checks only the invariants in the database. It judges the transcripts of forty people, half of
them in a browser and half on Telegram: what each of them sent and saw. It kills one process at a time, then
PostgreSQL every ten seconds, then three processes at once, then all of it. It ends with `result: ok` and the
exit code 0, or with what is lost, doubled or out of order. `--transcripts FOLDER` saves the transcripts."""
_EXCEPTIONS = """There are two exceptions. If a process dies after Telegram accepts a first message and before
Evertalk stores its id, one stray message stays, never a second answer. If a process dies while it sends a
short answer, its message's number is lost. The next process finds the answer in the chat by asking for each
number, or sends it again if it is not there. Where Telegram does not say, the person gets a notice with a
button that sends the answer once, and the operator sees it, too."""
_HEAD = ("| row | fault | how the test causes it | what holds |", "|---|---|---|---|")


if __name__ == "__main__":
    print(as_markdown(), end="")
