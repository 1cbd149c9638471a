"""A session as it stood before a link hid a part of it, read back from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.adapters.postgres.db.store import Connection, Record, value_from
from shared.adapters.postgres.turns.turn_sql import LOAD
from shared.adapters.postgres.turns.turns import config_of, described, entry_from, view_from
from shared.core.session.ledger import ledger_from_json
from shared.core.session.session import Entry, without_former
from shared.core.session.session_state import Hidden, SessionState


def state_from(row: Record | Mapping[str, Any], entries: Sequence[Entry]) -> SessionState:
    """From a row of the `STATE` statement."""
    return value_from(
        SessionState,
        row,
        session_id=row["id"],
        agent=row["agent_name"],
        agent_config=config_of(row),
        view=view_from(row, entries, open_turn=None),
        head_id=row["head"],
        redo_id=row["redo"],
        channel=row["last_channel"],
    )


async def hidden_by(connection: Connection, row: Record, link: Record) -> Hidden:
    """The turns of the link live again, behind what stood in for those before them."""
    base = link["from_turn"] - 1
    parent = await connection.fetchval("SELECT to_jsonb(l) FROM links l WHERE l.id = $1", link["parent"])
    rows = await connection.fetch(LOAD, row["id"], base, link["through_turn"])
    entries = await described(connection, without_former([entry_from(entry) for entry in rows]))
    before = {**dict(row), "base_turn": base, "head_link": parent, "frozen": None}
    return value_from(
        Hidden,
        link,
        state=state_from(before, entries),
        link_id=link["id"],
        ledger=ledger_from_json(link["ledger"] or {}),
    )
