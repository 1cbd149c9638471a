"""Parts that two statements repeat word for word, so that each can be read alone."""

from __future__ import annotations

from shared.adapters.postgres.compaction import jobs_sql
from shared.adapters.postgres.db.pool import Named


def cut(statement: Named, begin: str, end: str) -> str:
    """Return the lines between two marks, with parameters by name."""
    text = statement.text
    assert begin in text
    return text.partition(begin)[2].partition(end)[0]


def test_due_jobs_are_those_that_can_be_claimed() -> None:
    claim = cut(jobs_sql.CLAIM_JOB, "WHERE j.id = :job_id\n   AND ", "   AND NOT EXISTS (SELECT FROM jobs o")
    due = cut(jobs_sql.DUE_JOBS, " jobs j\n WHERE ", " ORDER BY due_at")
    assert claim == due
