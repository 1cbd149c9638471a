"""Statements for money: reservations of calls under the caps, and the ledger with its sums.

A reservation is made before a call and settled after it. The ledger has each call; its sums by conversation, purpose
and model grow in the statement that writes the ledger, so that none is forgotten or counted twice.
"""

from __future__ import annotations

from shared.adapters.postgres.db.leases import LEASE_SECONDS
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.turns.turn_sql import WARN_PERCENT

NO_LIMIT = 2**62
"""Cap in place of one that was removed after a reservation was made, in micro-dollars."""
UNBOUND_SECONDS = 270
"""Seconds after which a reservation without a turn is settled: a picture may take two thirds of them
(`adapters.media.drawing`)."""
TOKEN_CALL_SECONDS = 660
"""Seconds after which a call that reserved tokens is settled: ten minutes for all attempts of an answer
(`Patience.total_seconds`), and one for the database."""

SUMS = {
    "calls": "count(*)",
    "aborted": "count(*) FILTER (WHERE status = 'aborted')",
    "input_tokens": "sum(input_tokens)",
    "output_tokens": "sum(output_tokens)",
    "cache_read_tokens": "sum(cache_read_tokens)",
    "cache_write_tokens": "sum(cache_write_tokens)",
    "cost_micro": "sum(cost_micro)",
    "unknown_cost": "count(*) FILTER (WHERE cost_micro IS NULL)",
    "unknown_tokens": "count(*) FILTER (WHERE NOT known)",
}
"""Columns of `session_spend`, and the sums of ledger rows that invariants compare them with."""

RECORD_CALLS = Named("""
WITH u AS (
  INSERT INTO usage (session_id, contact_id, turn_no, job_id, purpose, status, model, input_tokens, output_tokens,
                     cache_read_tokens, cache_write_tokens, known, cost_micro, request_id)
  SELECT :session_id, coalesce(:contact_id, (SELECT contact_id FROM sessions WHERE id = :session_id)), :turn, :job_id,
         :purpose, x.status, x.model, x.input_tokens, x.output_tokens, x.cache_read_tokens, x.cache_write_tokens,
         x.known, x.cost_micro, x.request_id
    FROM jsonb_to_recordset(:usage::jsonb) AS x(status text, model text, input_tokens bigint,
         output_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, known bool,
         cost_micro bigint, request_id text)
  RETURNING session_id, purpose, model, status, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, known, cost_micro
)
INSERT INTO session_spend AS k (session_id, purpose, model, calls, aborted, input_tokens, output_tokens,
                                cache_read_tokens, cache_write_tokens, cost_micro, unknown_cost, unknown_tokens)
SELECT session_id, purpose, model, count(*), count(*) FILTER (WHERE status = 'aborted'), sum(input_tokens),
       sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), sum(cost_micro),
       count(*) FILTER (WHERE cost_micro IS NULL), count(*) FILTER (WHERE NOT known)
  FROM u GROUP BY session_id, purpose, model
ON CONFLICT (session_id, purpose, model) DO UPDATE SET
       calls = k.calls + excluded.calls, aborted = k.aborted + excluded.aborted,
       input_tokens = k.input_tokens + excluded.input_tokens,
       output_tokens = k.output_tokens + excluded.output_tokens,
       cache_read_tokens = k.cache_read_tokens + excluded.cache_read_tokens,
       cache_write_tokens = k.cache_write_tokens + excluded.cache_write_tokens,
       unknown_cost = k.unknown_cost + excluded.unknown_cost,
       unknown_tokens = k.unknown_tokens + excluded.unknown_tokens,
       cost_micro = coalesce(k.cost_micro + excluded.cost_micro, k.cost_micro, excluded.cost_micro)
""")
"""Insert model calls into the ledger and add them to what their conversation spent by purpose and model.

`usage` has the calls as `build_usage_rows` makes them; without `contact_id` they are the session's contact's. A
cost stays null while no call's is known. `ADD_TOTALS` goes with it, in the same transaction.
"""
ADD_TOTALS = Named("""
UPDATE session_totals
   SET total_tokens = total_tokens + (:sums::bigint[])[1] + (:sums::bigint[])[2] + (:sums::bigint[])[3]
                      + (:sums::bigint[])[4],
       input_tokens = input_tokens + (:sums::bigint[])[1],
       output_tokens = output_tokens + (:sums::bigint[])[2],
       cache_read_tokens = cache_read_tokens + (:sums::bigint[])[3],
       cache_write_tokens = cache_write_tokens + (:sums::bigint[])[4],
       cost_micro = cost_micro + (:sums::bigint[])[5],
       cost_unknown_calls = cost_unknown_calls + (:sums::bigint[])[6]
 WHERE session_id = :session_id
""")
"""Add the sums of calls, as `sum_spending` makes them, to the lifetime totals of a session."""
LIST_BOOKED = Named("""
SELECT coalesce(array_agg(request_id), '{}') FROM usage
 WHERE session_id = :session_id AND turn_no = :turn AND request_id = ANY (:request_ids::text[])
""")
"""Select which of these calls of a turn the ledger has."""
SETTLE_RESERVATION = Named("""
WITH done AS (
  UPDATE reservations SET state = 'settled', settled_micro = :settled_micro, ended_at = now()
   WHERE id = :reservation_id AND state = 'held' RETURNING amount_micro, settled_micro, scopes, day
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
       spent_micro = d.spent_micro + done.settled_micro
  FROM done WHERE d.day = done.day AND d.scope = ANY (done.scopes)
""")
"""End a reservation at the cost of its calls; one that has ended before, or null, changes nothing."""

RESERVE = Named("""
WITH cost AS (
  SELECT nullif(:micro::bigint, 0) AS micro, (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id,
         p.anonymous, a.config, CASE WHEN p.anonymous THEN p.network END AS network,
         CASE WHEN p.anonymous THEN to_char(now() AT TIME ZONE :timezone, 'HH24') END AS hour
    FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
   WHERE s.id = :session_id
  UNION ALL
  SELECT nullif(:micro::bigint, 0), (now() AT TIME ZONE :timezone)::date, 0, 0, false, '{}', NULL, NULL
   WHERE :session_id::bigint IS NULL
), want AS (
  SELECT x.scope, c.micro, c.day, x.cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
), capped AS (
  SELECT scope, day, micro, cap, count(*) OVER () AS number FROM want
   WHERE cap IS NOT NULL AND micro >= 0
), alone AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + one.micro
    FROM capped one
   WHERE one.number = 1 AND d.scope = one.scope AND d.day = one.day
     AND d.reserved_micro + d.spent_micro + one.micro <= one.cap
  RETURNING d.scope, d.reserved_micro + d.spent_micro AS used, d.warned_at
), together AS (
  INSERT INTO spend_days AS d (scope, day, reserved_micro)
  SELECT scope, day, micro FROM capped
   WHERE NOT EXISTS (SELECT FROM alone)
     AND NOT EXISTS (SELECT FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
                      WHERE c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap)
   ORDER BY scope
  ON CONFLICT (scope, day) DO UPDATE SET reserved_micro = d.reserved_micro + excluded.reserved_micro
   WHERE d.reserved_micro + d.spent_micro + excluded.reserved_micro <=
         (SELECT cap FROM capped WHERE capped.scope = excluded.scope)
  RETURNING scope, reserved_micro + spent_micro AS used, warned_at
), held AS (
  SELECT * FROM alone UNION ALL SELECT * FROM together
), whole AS (
  SELECT is_whole((SELECT count(*) FROM held), count(*)) AS is_held, count(*) AS asked FROM capped
), refused AS (
  SELECT c.scope, c.cap, coalesce(o.spent_micro, 0) AS spent, coalesce(o.reserved_micro, 0) AS held,
         c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap AS has_no_room
    FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
   WHERE NOT (SELECT is_held FROM whole)
), refusing AS (
  SELECT * FROM refused WHERE has_no_room OR NOT EXISTS (SELECT FROM refused x WHERE x.has_no_room)
), r AS (
  INSERT INTO reservations (session_id, contact_id, turn_no, job_id, day, amount_micro, scopes, asked_scopes)
  SELECT c.id, c.contact_id, :turn, :job_id, c.day, c.micro, (SELECT array_agg(scope ORDER BY scope) FROM held),
         w.asked
    FROM cost c CROSS JOIN whole w WHERE w.is_held AND w.asked > 0
  RETURNING id
)
SELECT (SELECT id FROM r) AS id,
       (SELECT jsonb_agg(jsonb_build_object('scope', scope, 'cap', cap, 'spent', spent, 'held', held))
          FROM refusing) AS shortages
""")
"""Reserve a call's most cost in every cap that holds, or in none; one row always.

A call without `session_id` belongs to no conversation. `id` is null if no cap holds, and if one refuses: then
`shortages` has each cap that refused, with the numbers from before the statement. How scopes are locked is said at
`CLAIM`.
"""
RAISE_RESERVATION = Named(
    """
WITH mine AS (
  SELECT id, session_id, day, scopes, amount_micro, :micro::bigint - amount_micro AS more FROM reservations
   WHERE id = :reservation_id AND state = 'held' AND amount_micro < :micro::bigint FOR UPDATE
), cost AS (
  SELECT m.more AS micro, m.day, s.id, s.contact_id, p.anonymous, a.config, m.scopes,
         substring(array_to_string(m.scopes, ' ') FROM 'network:([^ ]+)') AS network,
         substring(array_to_string(m.scopes, ' ') FROM 'visitors:([^ ]+)') AS hour
    FROM mine m JOIN sessions s ON s.id = m.session_id JOIN contacts p ON p.id = s.contact_id
    JOIN agents a ON a.id = s.agent_id
), want AS (
  SELECT x.scope, c.micro, c.day, coalesce(x.cap, :no_limit) AS cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
), capped AS (
  SELECT scope, day, micro, cap, count(*) OVER () AS number FROM want
   WHERE cap IS NOT NULL AND micro >= 0 AND scope = ANY ((SELECT scopes FROM cost)::text[])
), alone AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro + one.micro
    FROM capped one
   WHERE one.number = 1 AND d.scope = one.scope AND d.day = one.day
     AND d.reserved_micro + d.spent_micro + one.micro <= one.cap
  RETURNING d.scope, d.reserved_micro + d.spent_micro AS used, d.warned_at
), together AS (
  INSERT INTO spend_days AS d (scope, day, reserved_micro)
  SELECT scope, day, micro FROM capped
   WHERE NOT EXISTS (SELECT FROM alone)
     AND NOT EXISTS (SELECT FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
                      WHERE c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap)
   ORDER BY scope
  ON CONFLICT (scope, day) DO UPDATE SET reserved_micro = d.reserved_micro + excluded.reserved_micro
   WHERE d.reserved_micro + d.spent_micro + excluded.reserved_micro <=
         (SELECT cap FROM capped WHERE capped.scope = excluded.scope)
  RETURNING scope, reserved_micro + spent_micro AS used, warned_at
), held AS (
  SELECT * FROM alone UNION ALL SELECT * FROM together
), whole AS (
  SELECT is_whole((SELECT count(*) FROM held), count(*)) AS is_held, count(*) AS asked FROM capped
), refused AS (
  SELECT c.scope, c.cap, coalesce(o.spent_micro, 0) AS spent, coalesce(o.reserved_micro, 0) AS held,
         c.micro + coalesce(o.reserved_micro + o.spent_micro, 0) > c.cap AS has_no_room
    FROM capped c LEFT JOIN spend_days o ON o.scope = c.scope AND o.day = c.day
   WHERE NOT (SELECT is_held FROM whole)
), refusing AS (
  SELECT * FROM refused WHERE has_no_room OR NOT EXISTS (SELECT FROM refused x WHERE x.has_no_room)
), r AS (
  UPDATE reservations r SET amount_micro = :micro, may_be_sent = true FROM mine, whole w
   WHERE r.id = mine.id AND w.is_held
)
SELECT (SELECT amount_micro FROM mine) AS mine,
       (SELECT jsonb_agg(jsonb_build_object('scope', scope, 'cap', cap, 'spent', spent, 'held', held))
          FROM refusing) AS shortages
""",
    no_limit=NO_LIMIT,
)
"""Raise a reservation on the day and in the scopes that it was made for, or leave it as it is if one refuses.

One row always: `mine` is the amount before, null if the reservation has ended or is as large already; `shortages`
has each cap that refused. How scopes are locked is said at `CLAIM`.
"""
LOWER_RESERVATION = Named("""
WITH mine AS (
  SELECT id, amount_micro FROM reservations
   WHERE id = :reservation_id AND state = 'held' AND amount_micro > :micro::bigint FOR UPDATE
), r AS (
  UPDATE reservations r SET amount_micro = :micro FROM mine WHERE r.id = mine.id
  RETURNING r.scopes, r.day, mine.amount_micro - r.amount_micro AS less
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - r.less
  FROM r WHERE d.day = r.day AND d.scope = ANY (r.scopes)
""")
"""Release money of a turn that waits for more; the cost of its calls stays reserved."""
MARK_MAY_BE_SENT = Named("""
UPDATE reservations SET may_be_sent = true WHERE id = :reservation_id AND state = 'held'
""")

WARN = Named(
    """
WITH cost AS (
  SELECT (now() AT TIME ZONE :timezone)::date AS day, s.id, s.contact_id, p.anonymous, a.config,
         CASE WHEN p.anonymous THEN p.network END AS network,
         CASE WHEN p.anonymous THEN to_char(now() AT TIME ZONE :timezone, 'HH24') END AS hour
    FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
   WHERE s.id = :session_id
), want AS (
  SELECT x.scope, c.day, x.cap
    FROM cost c CROSS JOIN LATERAL
         spending_caps(:limits::bigint[], c.config, c.contact_id, c.id, c.anonymous, c.network, c.hour) x
), w AS (
  UPDATE spend_days d SET warned_at = now() FROM want
   WHERE d.scope = want.scope AND d.day = want.day AND d.warned_at IS NULL
     AND d.spent_micro * 100 >= want.cap * :warn_percent
  RETURNING d.scope
), s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1
   WHERE id = :session_id AND EXISTS (SELECT FROM w WHERE scope ~ '^(contact|session):')
  RETURNING next_event_seq - 1 AS event_seq
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', :turn, :notice::jsonb FROM s
)
SELECT (SELECT array_agg(scope ORDER BY scope) FROM w) AS scopes, (SELECT event_seq FROM s) AS event_seq,
       now() AS at
""",
    warn_percent=WARN_PERCENT,
)
"""Mark the caps of a session that are nearly used up, once per scope and day; one row always.

`scopes` is null if there are none; of rivals that see the same scope near its cap, one finds it not warned of yet. For
a cap of the person or the session, `notice` becomes an event; else `event_seq` is null.
"""

LEFT_BEHIND = Named(
    """
SELECT r.id FROM reservations r
 WHERE r.state = 'held' AND r.created_at < now() - make_interval(secs => :lease_seconds) AND (
       r.created_at < now() - interval '2 days'
    OR r.turn_no IS NOT NULL AND NOT EXISTS (
         SELECT FROM turns t WHERE t.session_id = r.session_id AND t.turn_no = r.turn_no AND t.ended_at IS NULL)
    OR r.job_id IS NOT NULL AND NOT EXISTS (
         SELECT FROM jobs j JOIN workers w ON w.id = j.leased_by AND worker_is_alive(w)
          WHERE j.id = r.job_id AND j.state = 'running' AND j.started_at <= r.created_at)
    OR r.scopes = '{tokens}' AND r.created_at < now() - make_interval(secs => :token_call_seconds)
    OR r.turn_no IS NULL AND r.job_id IS NULL AND r.scopes <> '{tokens}'
       AND r.created_at < now() - make_interval(secs => :unbound_seconds)
       AND NOT EXISTS (
         SELECT FROM sessions s JOIN workers w ON w.id = s.leased_by AND worker_is_alive(w)
           JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
          WHERE s.id = r.session_id AND coalesce(s.leased_at, t.claimed_at) <= r.created_at))
 ORDER BY r.id LIMIT 100
""",
    lease_seconds=LEASE_SECONDS,
    token_call_seconds=TOKEN_CALL_SECONDS,
    unbound_seconds=UNBOUND_SECONDS,
)
"""Select at most 100 reservations that no living process can settle: their turn, or the attempt at their job, has ended.

A turn that waits for its next attempt is excluded: that one books the rest (`SETTLE_LOST`); after two days no cap
counts it. One without turn and job is a subagent's, which lives as long as its session's lease, or of a
picture, a recording or speech, which takes at most three minutes.
"""
SWEEP_RESERVATION = Named("""
WITH done AS (
  UPDATE reservations r SET state = 'released', ended_at = now(), settled_micro = CASE
           WHEN r.job_id IS NOT NULL THEN
             greatest(0, (SELECT coalesce(sum(u.cost_micro), 0) FROM usage u
                           WHERE u.session_id = r.session_id AND u.job_id = r.job_id)
                       - (SELECT coalesce(sum(o.settled_micro), 0) FROM reservations o
                           WHERE o.job_id = r.job_id AND o.session_id = r.session_id AND o.id <> r.id))
           WHEN r.turn_no IS NULL THEN r.amount_micro
           ELSE committed_micro(r) END
   WHERE r.id = :reservation_id AND r.state = 'held' RETURNING amount_micro, settled_micro, scopes, day
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
       spent_micro = d.spent_micro + done.settled_micro
  FROM done WHERE d.day = done.day AND d.scope = ANY (done.scopes)
""")
"""End a reservation that was left behind, and book what the ledger says; one that has ended changes nothing.

A job pays what its other reservations have not paid, so that nothing is charged twice; a turn pays the rounds that it
committed. Without turn and job the cost is unknown and counts in full.
"""
RELEASE_RESERVATION = Named("""
WITH done AS (
  UPDATE reservations r SET state = 'released', ended_at = now(),
         settled_micro = greatest(:spent_micro::bigint, committed_micro(r))
   WHERE r.id = :reservation_id AND r.state = 'held' RETURNING amount_micro, settled_micro, scopes, day
)
UPDATE spend_days d SET reserved_micro = d.reserved_micro - done.amount_micro,
       spent_micro = d.spent_micro + done.settled_micro
  FROM done WHERE d.day = done.day AND d.scope = ANY (done.scopes)
""")
"""End a reservation without an answer, at `spent_micro` or the cost of the rounds that its turn committed.

A turn that is put back has paid for those, though no answer settled them.
"""
SETTLE_LOST = Named("""
WITH s AS (
  SELECT id, contact_id FROM sessions
   WHERE id = :session_id AND turn_epoch = :epoch AND leased_by = :worker_id AND answered_turn = :turn - 1
     FOR NO KEY UPDATE
), dead AS (
  SELECT r.id, r.may_be_sent, committed_micro(r) AS committed FROM reservations r, s
   WHERE r.session_id = :session_id AND r.turn_no = :turn AND r.job_id IS NULL AND r.state = 'held'
     AND r.id IS DISTINCT FROM :reservation_id::bigint
), r AS (
  UPDATE reservations r SET state = 'settled', ended_at = now(),
         settled_micro = greatest(CASE WHEN dead.may_be_sent THEN r.amount_micro ELSE 0 END, dead.committed)
    FROM dead WHERE r.id = dead.id AND r.state = 'held'
  RETURNING r.amount_micro, r.settled_micro, r.settled_micro > dead.committed AS had_call, r.scopes, r.day
), owed AS (
  SELECT scope, day, sum(amount_micro)::bigint AS held, sum(settled_micro)::bigint AS spent
    FROM r, unnest(scopes) AS scope GROUP BY scope, day
), sp AS (
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - owed.held, spent_micro = d.spent_micro + owed.spent
    FROM owed WHERE d.day = owed.day AND d.scope = owed.scope
)
SELECT contact_id, (SELECT count(*) FILTER (WHERE had_call) + (:had_call AND count(*) = 0)::int FROM r) AS calls FROM s
""")
"""Settle reservations of a turn whose attempt died; select how many calls were lost, and whose they are.

A call that may have been sent counts in full. Its cost is unknown: the ledger gets it without a price
(`RECORD_CALLS`, in the same transaction), and the caps count the whole reservation, so that repeated deaths cannot
pass a cap. An attempt that waited for money, or a later one that had sent nothing, settles for its rounds. Without
caps there is no reservation, and `had_call` reports the last attempt alone.

No row, and nothing changed, if the lease is lost; the epoch of the turn fences it.
"""
