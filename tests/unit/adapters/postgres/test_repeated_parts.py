"""Parts that two statements repeat word for word, so that each can be read alone."""

from __future__ import annotations

from shared.adapters.postgres.compaction import jobs_sql
from shared.adapters.postgres.dashboard import (
    alert_queries,
    alerts_sql,
    audit_queries,
    cost_queries,
    memory_queries,
    people_queries,
    read_models_sql,
)
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.memory import recall_index, recall_sql
from shared.adapters.postgres.turns import answer_sql, spend_sql, turn_sql


def cut_each(statement: Named, begin: str, end: str) -> list[list[str]]:
    """Return the words between each pair of two marks."""
    return [part.partition(end)[0].split() for part in statement.text.split(begin)[1:]]


def cut(statement: Named | str, begin: str, end: str) -> str:
    """Return the text between two marks, with parameters by name."""
    text = statement.text if isinstance(statement, Named) else statement
    assert begin in text
    return text.partition(begin)[2].partition(end)[0]


def test_due_jobs_are_those_that_can_be_claimed() -> None:
    claim = cut(jobs_sql.CLAIM_JOB, "WHERE j.id = :job_id\n   AND ", "   AND NOT EXISTS (SELECT FROM jobs o")
    due = cut(jobs_sql.DUE_JOBS, " jobs j\n WHERE ", " ORDER BY due_at")
    assert claim == due


def test_first_claim_reserves_and_tells_what_a_later_one_does() -> None:
    reserved, told = "), cost AS (", "AS recallable,"
    assert cut(turn_sql.ACCEPT_AND_CLAIM, reserved, told) == cut(turn_sql.CLAIM, reserved, told)
    columns = "RETURNING sessions.id,", "sessions.compaction_backoff"
    assert cut(turn_sql.ACCEPT_AND_CLAIM, *columns) == cut(turn_sql.CLAIM, *columns)


def test_every_reservation_locks_scopes_as_a_claim_does() -> None:
    locked = "), alone AS (", "), r AS ("
    claimed = cut(turn_sql.CLAIM, *locked)
    assert cut(spend_sql.RESERVE, *locked) == claimed
    assert cut(spend_sql.RAISE_RESERVATION, *locked) == claimed


def test_message_is_stored_alike_by_every_statement() -> None:
    stored = "), e AS (", ":payload::jsonb FROM s\n)"
    accepted = cut(turn_sql.ACCEPT, *stored)
    assert cut(turn_sql.ACCEPT_LATE, *stored) == accepted
    assert cut(turn_sql.ACCEPT_AND_CLAIM, *stored) == accepted


def test_message_is_refused_alike_by_every_statement() -> None:
    refused = "archived_at IS NULL AND", ":dedupe_key)\n"
    accepted = cut(turn_sql.ACCEPT, *refused)
    assert cut(turn_sql.ACCEPT_LATE, *refused) == accepted
    assert cut(turn_sql.ACCEPT_AND_CLAIM, *refused) == accepted


def test_sums_of_a_conversation_grow_alike_with_every_call() -> None:
    grown = "DO UPDATE SET", "excluded.cost_micro)\n"
    recorded = cut(spend_sql.RECORD_CALLS, *grown).split()
    assert cut(answer_sql.ANSWER, *grown).split() == recorded
    added = "SET total_tokens =", "(:sums::bigint[])[6]"
    assert cut(answer_sql.ANSWER, *added).split() == cut(spend_sql.ADD_TOTALS, *added).split()


def test_recall_of_a_period_begins_as_every_recall_does() -> None:
    begin = "WITH RECURSIVE copied", "LIMIT :sessions_at_most\n)"
    assert cut(recall_sql.BETWEEN, *begin) == cut(recall_sql.SEARCH, *begin)


def test_recall_reaches_the_same_passages_in_every_way() -> None:
    reached = "p.turn_no > s.since", "p.seq <= :through_seq)"
    [between], searched = cut_each(recall_sql.BETWEEN, *reached), cut_each(recall_sql.SEARCH, *reached)
    assert searched == [between] * 5
    shown = "EXISTS (SELECT FROM turn_entries te", ":not_recalled)))"
    assert cut_each(recall_sql.BETWEEN, *shown) == cut_each(recall_sql.SEARCH, *shown)


def test_recall_reaches_the_same_notes_in_every_way() -> None:
    matched, selected = cut_each(
        recall_sql.SEARCH, "n.scope = me.scope AND n.forgotten_at", ":through_seq::bigint IS NULL"
    )
    assert matched == selected


def test_index_names_a_person_as_recall_does() -> None:
    name = "CASE WHEN p.kind <> 'person'", "'') END"
    assert cut_each(recall_index._SESSION, *name) == cut_each(recall_sql.SEARCH, *name)


def test_session_has_the_same_facts_in_the_list_and_on_its_page() -> None:
    facts = "  'id', s.public_id,", "'state',"
    listed = cut(read_models_sql.SESSIONS, *facts)
    assert cut(read_models_sql.SESSION, *facts) == listed


def test_messages_are_shown_alike_in_a_session_and_behind_a_summary() -> None:
    page = "\n), page AS (", "FROM bounds b)"
    shown = cut(read_models_sql.MESSAGES, *page)
    assert cut(read_models_sql.ORIGINALS, *page) == shown


def test_person_has_the_same_figures_in_the_list_and_on_their_page() -> None:
    figures = "'id', r.public_id,", "n.forgotten_at IS NULL)"
    listed = cut(people_queries._PEOPLE, *figures).split()
    assert cut(people_queries._PERSON, *figures).split() == listed


def test_note_is_shown_alike_in_the_list_and_alone() -> None:
    shown = "json_build_object('row', n.id,", "'anonymous', r.anonymous))"
    listed = cut(memory_queries._NOTES, *shown).replace("n.state", "note_state(n)").split()
    assert cut(memory_queries._NOTE, *shown).split() == listed


def test_alert_is_shown_alike_on_its_page_and_in_the_overview() -> None:
    shown = "jsonb_build_object('id', a.public_id,", "a.id), '[]'))"
    newest = cut(alert_queries._OPEN, *shown).split()
    assert cut(alert_queries._PAGE, *shown).split() == newest
    past = alert_queries._PAGE.text.partition("'past'")[2]
    assert cut(past, *shown).split() == newest


def test_audit_page_count_and_export_have_the_same_filter() -> None:
    found = "SELECT id, at, actor", "LIMIT :limit"
    counted = cut(audit_queries._COUNTED, *found).split()
    assert cut(audit_queries._ROWS, *found).split() == counted
    assert cut(audit_queries._PAGE, *found).split() == counted


def test_costs_are_summed_alike_by_group_and_in_total() -> None:
    sums = "count(*) AS calls,", "AS cache_hit_pct"
    total = cost_queries.COSTS.partition("'total'")[2]
    assert cut(cost_queries.COSTS, *sums).split() == cut(total, *sums).split()


def test_doctor_and_alerts_count_the_same_summaries_without_a_model() -> None:
    counted = "SELECT kind, audit, created_at", '"commit"}]\''
    assert cut(alerts_sql.SWEEP, *counted).split() == cut(alerts_sql.FALLEN_BACK, *counted).split()
