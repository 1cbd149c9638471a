"""Conversations know what the list shows of their person: a page looks nobody up.

Nothing is rewritten here: a session begins with them, and workers tell the old ones, some at a time.
"""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

PEOPLE = (
    """CREATE OR REPLACE FUNCTION session_knows_its_person() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE whose parties;
       BEGIN
         SELECT * INTO whose FROM parties WHERE id = NEW.party_id FOR SHARE;
         IF TG_OP = 'INSERT' THEN
           NEW.person := coalesce(lower(whose.display_name), '');
           NEW.person_name := whose.display_name;
           NEW.person_kind := whose.kind;
           NEW.person_anonymous := whose.anonymous;
           RETURN NEW;
         END IF;
         UPDATE sessions SET person = lower(whose.display_name), person_name = whose.display_name,
                person_kind = whose.kind, person_anonymous = whose.anonymous WHERE id = NEW.id;
         RETURN NULL;
       END $$""",
    """CREATE OR REPLACE FUNCTION sessions_know_a_new_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE sessions SET person = lower(NEW.display_name), person_name = NEW.display_name,
                person_kind = NEW.kind, person_anonymous = NEW.anonymous WHERE party_id = NEW.id;
         RETURN NULL;
       END $$""",
    "DROP TRIGGER sessions_know_a_new_name ON parties",
    """CREATE TRIGGER sessions_know_a_new_name AFTER UPDATE OF display_name, kind, anonymous ON parties
       FOR EACH ROW WHEN ((NEW.display_name, NEW.kind, NEW.anonymous)
                          IS DISTINCT FROM (OLD.display_name, OLD.kind, OLD.anonymous))
       EXECUTE FUNCTION sessions_know_a_new_name()""",
)
NAMES = (
    """CREATE OR REPLACE FUNCTION session_knows_its_person() RETURNS trigger LANGUAGE plpgsql AS $$
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
    """CREATE OR REPLACE FUNCTION sessions_know_a_new_name() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
         UPDATE sessions SET person = lower(NEW.display_name) WHERE party_id = NEW.id;
         RETURN NULL;
       END $$""",
    "DROP TRIGGER sessions_know_a_new_name ON parties",
    """CREATE TRIGGER sessions_know_a_new_name AFTER UPDATE OF display_name ON parties
       FOR EACH ROW WHEN (NEW.display_name <> OLD.display_name)
       EXECUTE FUNCTION sessions_know_a_new_name()""",
)


def upgrade() -> None:
    op.execute(
        """ALTER TABLE sessions ADD COLUMN person_name TEXT, ADD COLUMN person_kind TEXT,
             ADD COLUMN person_anonymous BOOLEAN,
             ADD CONSTRAINT session_shows_whole_person
               CHECK (num_nulls(person_name, person_kind, person_anonymous) IN (0, 3))"""
    )
    op.execute("CREATE INDEX sessions_without_person ON sessions (id) WHERE person_kind IS NULL")
    for statement in PEOPLE:
        op.execute(statement)


def downgrade() -> None:
    for statement in NAMES:
        op.execute(statement)
    op.execute("DROP INDEX sessions_without_person")
    op.execute(
        """ALTER TABLE sessions DROP CONSTRAINT session_shows_whole_person,
             DROP COLUMN person_name, DROP COLUMN person_kind, DROP COLUMN person_anonymous"""
    )
