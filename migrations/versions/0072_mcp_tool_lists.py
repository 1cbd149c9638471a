"""The tools that each MCP server lists, and which of them the model may be offered."""

from __future__ import annotations

from alembic import op

revision = "0072"
down_revision = "0071"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE mcp_tool_lists (
             -- One row per MCP server and address or program: hashes of its tools by their names.
             server TEXT NOT NULL,
             source TEXT NOT NULL,
             -- As the server listed them last.
             seen JSONB NOT NULL,
             -- As an administrator, or the setting, approved them last.
             approved JSONB NOT NULL,
             -- Whether it ever listed a tool that is not annotated as read-only.
             can_write BOOLEAN NOT NULL,
             -- Whether changed tools wait for an administrator.
             needs_approval BOOLEAN DEFAULT false NOT NULL,
             -- Names of the last change.
             changed JSONB DEFAULT '[]' NOT NULL,
             changed_at TIMESTAMP WITH TIME ZONE,
             PRIMARY KEY (server, source),
             CONSTRAINT mcp_tool_list_is_short
               CHECK (char_length(server) <= 32 AND char_length(source) = 64 AND length(seen::text) <= 200000
                      AND length(approved::text) <= 400000 AND length(changed::text) <= 20000),
             CONSTRAINT mcp_tool_list_has_hashes
               CHECK (jsonb_typeof(seen) = 'object' AND jsonb_typeof(approved) = 'object'
                      AND jsonb_typeof(changed) = 'array'))"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE mcp_tool_lists")
