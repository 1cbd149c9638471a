"""What the dashboard orders by stands beside `sessions`: no index of theirs hears of each step of a turn.

From here on each conversation is listed with its first row, and whatever changes one says so.
"""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

CONTEXT = """coalesce((CASE WHEN context_limit > 0
    THEN context_tokens * 100.0 / context_limit END)::float8, -1)"""
READ = "input_tokens + cache_read_tokens + cache_write_tokens"
COST = "coalesce(CASE WHEN cost_unknown_calls > 0 AND cost_micro = 0 THEN NULL ELSE cost_micro END, -1)"
CACHE = f"coalesce((CASE WHEN {READ} > 0 THEN cache_read_tokens * 100.0 / ({READ}) END)::float8, -1)"
TABLES = (
    """CREATE TABLE session_list (
         id BIGINT NOT NULL, public_id UUID NOT NULL, party_id BIGINT NOT NULL, agent_id BIGINT NOT NULL,
         next_turn BIGINT NOT NULL, context_tokens BIGINT NOT NULL, context_limit BIGINT NOT NULL,
         last_active_at TIMESTAMP WITH TIME ZONE NOT NULL, troubled_at TIMESTAMP WITH TIME ZONE,
         input_tokens BIGINT DEFAULT 0 NOT NULL, output_tokens BIGINT DEFAULT 0 NOT NULL,
         cache_read_tokens BIGINT DEFAULT 0 NOT NULL, cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
         cost_micro BIGINT DEFAULT 0 NOT NULL, cost_unknown_calls BIGINT DEFAULT 0 NOT NULL,
         last_channel TEXT NOT NULL, person TEXT NOT NULL,
         PRIMARY KEY (id),
         CONSTRAINT listed_session FOREIGN KEY(id) REFERENCES sessions (id) ON DELETE CASCADE,
         CONSTRAINT listed_session_counts CHECK (context_limit >= 0 AND next_turn > 0)
       ) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)""",
    """CREATE TABLE session_list_changes (
         session_id BIGINT NOT NULL CONSTRAINT list_change_of CHECK (session_id > 0)
       ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)""",
)
CHANGES = (
    """CREATE FUNCTION session_is_listed() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         INSERT INTO session_list (id, public_id, party_id, agent_id, next_turn, context_tokens,
                                   context_limit, last_active_at, troubled_at, last_channel, person)
         VALUES (NEW.id, NEW.public_id, NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens,
                 NEW.context_limit, NEW.last_active_at, NEW.troubled_at, NEW.last_channel, NEW.person);
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_is_listed AFTER INSERT ON sessions
       FOR EACH ROW EXECUTE FUNCTION session_is_listed()""",
    """CREATE FUNCTION session_is_listed_by_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE session_list SET person = NEW.person WHERE id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_is_listed_by_name AFTER UPDATE OF person ON sessions
       FOR EACH ROW WHEN (NEW.person <> OLD.person) EXECUTE FUNCTION session_is_listed_by_name()""",
    """CREATE FUNCTION list_hears_of_session() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         INSERT INTO session_list_changes VALUES (NEW.id);
         PERFORM set_config('evertalk.listed', NEW.id::text, true);
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER list_hears_of_session
       AFTER UPDATE OF party_id, agent_id, next_turn, context_tokens, context_limit, last_active_at,
                       troubled_at, last_channel, leased_by ON sessions
       FOR EACH ROW WHEN (
         OLD.leased_by IS NOT NULL AND NEW.leased_by IS NULL
         OR (OLD.leased_by IS NOT NULL OR NEW.leased_by IS NULL)
            AND (OLD.party_id, OLD.agent_id, OLD.next_turn, OLD.context_tokens, OLD.context_limit,
                 OLD.last_active_at, OLD.troubled_at, OLD.last_channel)
             IS DISTINCT FROM
                (NEW.party_id, NEW.agent_id, NEW.next_turn, NEW.context_tokens, NEW.context_limit,
                 NEW.last_active_at, NEW.troubled_at, NEW.last_channel))
       EXECUTE FUNCTION list_hears_of_session()""",
    """CREATE FUNCTION list_hears_of_totals() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         IF current_setting('evertalk.listed', true) IS DISTINCT FROM NEW.session_id::text THEN
           INSERT INTO session_list_changes VALUES (NEW.session_id);
         END IF;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER list_hears_of_totals AFTER INSERT OR UPDATE ON session_totals
       FOR EACH ROW EXECUTE FUNCTION list_hears_of_totals()""",
)
SO_FAR = """
    INSERT INTO session_list (id, public_id, party_id, agent_id, next_turn, context_tokens, context_limit,
                              last_active_at, troubled_at, last_channel, person, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens, cost_micro, cost_unknown_calls)
    SELECT s.id, s.public_id, s.party_id, s.agent_id, s.next_turn, s.context_tokens, s.context_limit,
           s.last_active_at, s.troubled_at, s.last_channel, s.person,
           coalesce(t.input_tokens, 0), coalesce(t.output_tokens, 0), coalesce(t.cache_read_tokens, 0),
           coalesce(t.cache_write_tokens, 0), coalesce(t.cost_micro, 0), coalesce(t.cost_unknown_calls, 0)
      FROM sessions s LEFT JOIN session_totals t ON t.session_id = s.id ORDER BY s.id
"""
INDEXES = {
    "list_by_activity": "(last_active_at, id) INCLUDE (agent_id, person)",
    "list_by_turns": "(next_turn, id)",
    "list_by_context": f"({CONTEXT}, id)",
    "list_by_input": f"(({READ}), id)",
    "list_by_output": "(output_tokens, id)",
    "list_by_cost": f"({COST}, id)",
    "list_by_cache": f"({CACHE}, id)",
    "list_troubled": "(last_active_at, id) WHERE troubled_at IS NOT NULL",
    "list_filling": f"(last_active_at, id) WHERE {CONTEXT} >= 70",
    "list_nearly_full": f"(last_active_at, id) WHERE {CONTEXT} >= 90",
}
SUPERSEDED = {
    "sessions_unanswered": "sessions (id) WHERE answered_turn < next_turn - 1",
    "sessions_by_activity": "sessions (last_active_at, id) INCLUDE (agent_id, person)",
    "sessions_by_turns": "sessions (next_turn, id)",
    "sessions_by_context": f"sessions ({CONTEXT}, id)",
    "sessions_troubled": "sessions (last_active_at, id) WHERE troubled_at IS NOT NULL",
    "sessions_filling": f"sessions (last_active_at, id) WHERE {CONTEXT} >= 70",
    "sessions_nearly_full": f"sessions (last_active_at, id) WHERE {CONTEXT} >= 90",
    "totals_by_input": f"session_totals (({READ}), session_id)",
    "totals_by_output": "session_totals (output_tokens, session_id)",
    "totals_by_cost": f"session_totals ({COST}, session_id)",
    "totals_by_cache": f"session_totals ({CACHE}, session_id)",
}
BY_TIME = {"turns_by_time": "turns", "steps_by_time": "turn_steps", "usage_by_time": "usage"}
TIMES = {"turns": "opened_at", "turn_steps": "at", "usage": "at"}
HOT = ("sessions", "session_totals", "session_spend", "turns", "jobs")


def upgrade() -> None:
    for statement in (*TABLES, *CHANGES, SO_FAR):
        op.execute(statement)
    for name, on in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON session_list {on}")
    for name in SUPERSEDED:
        op.execute(f"DROP INDEX {name}")
    for table in HOT:
        op.execute(
            f"""ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02,
                                         autovacuum_analyze_scale_factor = 0.05)"""
        )
    for name, table in BY_TIME.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(
            f"""CREATE INDEX {name} ON {table} USING brin ({TIMES[table]})
                  WITH (pages_per_range = 16, autosummarize = on)"""
        )


def downgrade() -> None:
    for name, table in BY_TIME.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(f"CREATE INDEX {name} ON {table} USING brin ({TIMES[table]})")
    for table in HOT:
        op.execute(
            f"ALTER TABLE {table} RESET (autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor)"
        )
    for name, on in SUPERSEDED.items():
        op.execute(f"CREATE INDEX {name} ON {on}")
    for trigger, table in (
        ("list_hears_of_totals", "session_totals"), ("list_hears_of_session", "sessions"),
        ("session_is_listed_by_name", "sessions"), ("session_is_listed", "sessions"),
    ):  # fmt: skip
        op.execute(f"DROP TRIGGER {trigger} ON {table}")
        op.execute(f"DROP FUNCTION {trigger}()")
    op.execute("DROP TABLE session_list_changes")
    op.execute("DROP TABLE session_list")
