"""Conversations know the name that they are searched by: usual ones are found in the index by activity."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

NAMES = (
    """CREATE FUNCTION session_knows_its_person() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE name text := coalesce(
         (SELECT lower(display_name) FROM parties WHERE id = NEW.party_id FOR SHARE), '');
       BEGIN
         IF TG_OP = 'INSERT' THEN
           NEW.person := name;
           RETURN NEW;
         END IF;
         UPDATE sessions SET person = name WHERE id = NEW.id AND person <> name;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER session_begins_with_its_person BEFORE INSERT ON sessions
       FOR EACH ROW EXECUTE FUNCTION session_knows_its_person()""",
    """CREATE TRIGGER session_changes_its_person AFTER UPDATE OF party_id ON sessions
       FOR EACH ROW WHEN (NEW.party_id <> OLD.party_id)
       EXECUTE FUNCTION session_knows_its_person()""",
    """CREATE FUNCTION sessions_know_a_new_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE sessions SET person = lower(NEW.display_name) WHERE party_id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE TRIGGER sessions_know_a_new_name AFTER UPDATE OF display_name ON parties
       FOR EACH ROW WHEN (NEW.display_name <> OLD.display_name)
       EXECUTE FUNCTION sessions_know_a_new_name()""",
)
SO_FAR = """
    UPDATE sessions s SET person = lower(p.display_name) FROM parties p
     WHERE p.id = s.party_id AND p.display_name <> ''
"""


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN person TEXT DEFAULT '' NOT NULL")
    # Before the names are read: nobody changes one from here on without telling its sessions.
    for statement in NAMES:
        op.execute(statement)
    op.execute("DROP INDEX sessions_by_activity")
    op.execute(SO_FAR)
    op.execute(
        "CREATE INDEX sessions_by_activity ON sessions (last_active_at, id) INCLUDE (agent_id, person)"
    )


def downgrade() -> None:
    op.execute("DROP INDEX sessions_by_activity")
    op.execute("DROP TRIGGER sessions_know_a_new_name ON parties")
    op.execute("DROP FUNCTION sessions_know_a_new_name()")
    op.execute("DROP TRIGGER session_changes_its_person ON sessions")
    op.execute("DROP TRIGGER session_begins_with_its_person ON sessions")
    op.execute("DROP FUNCTION session_knows_its_person()")
    op.execute("ALTER TABLE sessions DROP COLUMN person")
    op.execute("CREATE INDEX sessions_by_activity ON sessions (last_active_at, id)")
