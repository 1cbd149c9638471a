"""Macros: several actions on a conversation under one name."""

from __future__ import annotations

from alembic import op

revision = "0089"
down_revision = "0088"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE macros (
             -- Actions of operators that one press runs: labels, an assignee, a reply, and resolving.
             name TEXT NOT NULL PRIMARY KEY,
             -- Added to those of the conversation.
             labels TEXT[] DEFAULT '{}'::text[] NOT NULL,
             -- Login name of an operator; `*` is the one who runs the macro, empty changes nothing.
             assignee TEXT DEFAULT '' NOT NULL,
             -- The page fills in `{{name}}` and the like; empty sends nothing.
             reply TEXT DEFAULT '' NOT NULL,
             resolve BOOLEAN DEFAULT false NOT NULL,
             version BIGINT DEFAULT 1 NOT NULL,
             changed_by TEXT NOT NULL,
             changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             CONSTRAINT macro_name CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,39}$'),
             CONSTRAINT macro_labels_are_few CHECK (cardinality(labels) <= 10),
             CONSTRAINT macro_assignee_is_short CHECK (char_length(assignee) <= 200),
             CONSTRAINT macro_reply_is_short CHECK (char_length(reply) <= 4000),
             CONSTRAINT macro_does_something
               CHECK (labels <> '{}' OR assignee <> '' OR reply <> '' OR resolve),
             CONSTRAINT macro_resolves_or_assigns CHECK (NOT resolve OR assignee IN ('', '*')))"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE macros")
