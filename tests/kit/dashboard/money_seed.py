"""Inserts a month of the ledger: several models, people and days, unknown prices, hostile names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.dashboard import seed
from tests.kit.dashboard.seed import Seeded
from tests.kit.midday import TODAY

if TYPE_CHECKING:
    from tests.kit.dashboard.seed import Connection

FORMULA = '=HYPERLINK("http://evil.example","Click")'


async def a_month(connection: Connection, first: Seeded) -> list[Seeded]:
    """Insert model calls on each of the last 40 days, by the person of `first` and three others.

    Return their sessions.
    """
    people = [first]
    for number, name in enumerate(("Jonas", FORMULA, seed.HOSTILE)):
        people.append(
            await seed.a_session(
                connection,
                person=name,
                channel=("web", "telegram")[number % 2],
                turns=4 + number,
                context=(95_000, 50_000, 0)[number],
                limit=(100_000, 100_000, 0)[number],
                tokens=(5_000, 900, 60_000, 1_200),
                cost_micro=(1_500_000, 0, 20_000)[number],
                cost_unknown_calls=int(number == 1),
                minutes_ago=20 * number,
            )
        )
    for place, one in enumerate(people):
        await connection.execute(
            """INSERT INTO usage (at, session_id, contact_id, turn_no, purpose, model, input_tokens,
                                  output_tokens, cache_read_tokens, cache_write_tokens, cost_micro)
               SELECT now() - make_interval(days => n), $1, $2, n,
                      (ARRAY['chat', 'chat', 'flush', 'compact'])[1 + n % 4], m.name, 900 + n * 10, 200 + n,
                      n * 1000, 500, CASE WHEN m.name = 'local' THEN NULL ELSE 9000 * m.dear + n * 131 END
                 FROM generate_series($3::int, 40, 3) n,
                      (VALUES ('claude-opus-5-5', 5), ('claude-sonnet-5-5', 2), ('local', 0))
                      AS m(name, dear)""",
            one.session_id,
            one.contact_id,
            place,
        )
    await connection.execute("UPDATE sessions SET created_at = created_at - interval '41 days'")
    await connection.execute(
        """UPDATE turns SET claimed_at = opened_at + make_interval(secs => 0.2 + turn_no % 7 * 0.1),
                  first_token_ms = 900 + turn_no % 7 * 150
            WHERE ended_at IS NOT NULL"""
    )
    await connection.execute(
        """UPDATE turn_context_audit c SET model_alias = 'claude-sonnet-5-5',
                  model_ms = 20000 + c.turn_id * 10,
                  head = (SELECT max(l.id) FROM compactions l
                           WHERE l.session_id = c.session_id AND l.through_turn < c.turn_id)
            WHERE session_id = $1""",
        first.session_id,
    )
    await connection.execute(
        f"""INSERT INTO spend_days (scope, day, spent_micro, reserved_micro, warned_at)
           VALUES ('total', {TODAY}, 700000, 50000, NULL), ('contact:1', {TODAY}, 5, 0, now())
           ON CONFLICT DO NOTHING"""
    )
    await connection.execute(
        """INSERT INTO handovers (session_id, address_id, asked_by, reason, asked_at)
           VALUES ($1, $2, 'person', 'wants a human', now() - interval '3 min')""",
        people[1].session_id,
        people[1].address_id,
    )
    return people
