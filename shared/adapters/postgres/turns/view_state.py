"""Reading of a session's state, also as it was before a compaction hid a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.adapters.postgres.db.pool import Connection, Named, Record, build_value
from shared.adapters.postgres.turns.turn_sql import LOAD
from shared.adapters.postgres.turns.turns import add_descriptions, build_entry, build_view, config_of
from shared.core.session.ledger import ledger_from_json
from shared.core.session.session import Entry, drop_former
from shared.core.session.session_state import HiddenTurns, SessionState


def build_state(row: Record | Mapping[str, Any], entries: Sequence[Entry]) -> SessionState:
    """Return the state of a session from a row of the statement `STATE` and its entries."""
    return build_value(
        SessionState,
        row,
        session_id=row["id"],
        agent=row["agent_name"],
        agent_config=config_of(row),
        view=build_view(row, entries, open_turn=None),
        head_id=row["head"],
        redo_id=row["redo"],
        channel=row["last_channel"],
        talk_ratio=None,
        reserved_tokens=row["context_reserved"],
        learned_scale=None,
        turn_times=tuple(row["turn_times"]),
    )


async def load_hidden(connection: Connection, row: Record, compaction: Record) -> HiddenTurns:
    """Return the session as it was when a compaction's turns were live, after the summary before it.

    `row` is a row of the statement `STATE`, `compaction` a row of the table. Reads only.
    """
    base = compaction["from_turn"] - 1
    parent = await connection.fetchval(*_PARENT(parent=compaction["parent"]))
    rows = await connection.fetch(
        *LOAD(
            session_id=row["id"],
            base_turn=base,
            through_turn=compaction["through_turn"],
        )
    )
    entries = await add_descriptions(connection, drop_former([build_entry(entry) for entry in rows]))
    before = {**dict(row), "base_turn": base, "head_compaction": parent, "frozen": None}
    return build_value(
        HiddenTurns,
        compaction,
        state=build_state(before, entries),
        compaction_id=compaction["id"],
        ledger=ledger_from_json(compaction["ledger"] or {}),
    )


_PARENT = Named("SELECT to_jsonb(l) FROM compactions l WHERE l.id = :parent")
