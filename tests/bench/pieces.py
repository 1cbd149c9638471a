"""Which bench measures which figure of the budgets, how it is asked, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.budgets import BUDGETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One program that prints a JSON object."""

    module: str
    figures: tuple[str, ...]
    seconds: float
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """What else is worth a place in the table: floors, and what surrounds a figure."""

    def command(self, *, quick: bool) -> tuple[str, ...]:
        return ("-m", f"tests.bench.{self.module}", "--json", *(self.quick if quick else self.full))

    def read(self, found: Mapping[str, object]) -> dict[str, float]:
        """The figures that it brought."""
        named = {figure: found.get(figure) for figure in self.figures}
        return {figure: float(value) for figure, value in named.items() if isinstance(value, int | float)}


PIECES: tuple[Piece, ...] = (
    Piece(
        module="turn",
        figures=(
            "overhead_ratio",
            "cpu_ms_per_turn",
            "cpu_ms_per_turn_behind_summaries",
            "commits",
            "statements",
            "redis_commands",
            "rss_web_at_rest_mib",
            "rss_worker_at_rest_mib",
            "rss_web_after_model_mib",
            "rss_worker_after_model_mib",
            "pss_supervisor_mib",
            "pss_everything_mib",
        ),
        seconds=600,
        full=("--blocks", "77", "--minutes", "5"),
        quick=("--turns", "5", "--blocks", "5"),
        told=(
            "overhead_ratio_of_groups",
            "cpu_ratio",
            "floor_cpu_ms_per_turn",
            "wall_ms_per_turn",
            "floor_wall_ms_per_turn",
        ),
    ),
    Piece(
        module="together",
        figures=("p99_to_p50_of_16",),
        seconds=300,
        quick=("--turns", "10", "--blocks", "3"),
        told=("p99_to_p50_of_16_floor", "overhead_ratio_of_16"),
    ),
    Piece(
        module="streaming",
        figures=("streamed_cpu_ratio", "streams_of_the_sdk_alone"),
        seconds=300,
        quick=("--streams", "8", "--blocks", "3"),
        told=(
            "streamed_cpu_ms",
            "sdk_cpu_ms",
            "bare_cpu_ms",
            "streams_per_core",
            "streams_per_core_sdk_alone",
        ),
    ),
    Piece(
        module="engine",
        figures=("million_ratio", "million_blocks_ratio", "million_rss_mib"),
        seconds=600,
        quick=("--entries", "20000", "--turns", "5", "--blocks", "5"),
        told=("million_entries", "blocks_per_turn", "build_to_serialise_ratio", "digest_25k_ms"),
    ),
    Piece(
        module="compacting",
        figures=("compacting_ratio",),
        seconds=420,
        quick=("--turns", "8", "--blocks", "3"),
        told=("slowest_turn_ms_at_rest", "slowest_turn_ms_while_compacted", "compacted"),
    ),
    Piece(
        module="sockets",
        figures=("idle_kib_house",),
        seconds=900,
        full=("--sockets", "5000"),
        quick=("--sockets", "1000", "--blocks", "1", "--deltas", "10", "--frames", "1000"),
        told=("idle_kib_echo", "sockets", "delta_latency_ratio", "frames_per_second", "slow_reader_ratio"),
    ),
    Piece(
        module="inflight",
        figures=("inflight_kib", "inflight_bytes_per_prompt_byte"),
        seconds=300,
        told=("prompt_bytes", "turns_at_once"),
    ),
    Piece(
        module="million",
        figures=(
            "idle_sessions_rss_mib",
            "sweep_ms",
            "first_page_ms",
            "far_page_ms",
            "far_to_first_ratio",
        ),
        seconds=1_500,
        quick=("--sessions", "20000", "--rounds", "5", "--processes", "1"),
        told=(
            "sessions",
            "sweep_ratio",
            "select_one_ms",
            "far_to_first_ratio_of_the_usual_order",
            "many_to_few_ratio",
        ),
    ),
    Piece(
        module="storage",
        figures=("bytes_per_text_byte",),
        seconds=240,
        quick=("--sessions", "5"),
        told=("bytes_per_text_byte_of_all_tables", "bytes_per_turn", "messages"),
    ),
    Piece(
        module="recovering",
        figures=("after_sigkill_p99_s", "after_wipe_s"),
        seconds=900,
        quick=("--rounds", "1"),
        told=(
            "after_sigkill_p50_s",
            "after_sigkill_of_web_s",
            "after_sigkill_of_worker_s",
            "after_sigkill_of_bot_s",
            "after_sigkill_of_web_without_file_s",
            "kills",
        ),
    ),
    Piece(
        module="starting",
        figures=(
            "bot_first_answer_s",
            "web_first_answer_ms",
            "rss_bot_at_rest_mib",
            "rss_bot_after_answer_mib",
        ),
        seconds=300,
        quick=("--blocks", "2"),
        told=(
            "bot_start_s",
            "bot_start_to_import",
            "import_alone_s",
            "bot_warm_s",
            "web_second_answer_ms",
            "web_first_to_second",
        ),
    ),
    Piece(
        module="rate",
        figures=("ack_to_request_p99_ms", "turns_per_second", "behind_summaries_to_young"),
        seconds=600,
        quick=(
            "--people",
            "16",
            "--seconds",
            "3",
            "--blocks",
            "2",
            "--questions",
            "100",
            "--behind",
            "2",
        ),
        told=(
            "ack_to_request_p50_ms",
            "turns_per_second_bare",
            "share_of_bare",
            "people",
            "turns_per_second_behind_summaries",
            "people_behind_summaries",
        ),
    ),
)


def pieces_for(numbers: Sequence[str]) -> tuple[Piece, ...]:
    """Those that measure any figure of these budgets."""
    wanted = {limit.key for one in BUDGETS if one.number in numbers for limit in one.limits}
    return tuple(piece for piece in PIECES if wanted & set(piece.figures))
