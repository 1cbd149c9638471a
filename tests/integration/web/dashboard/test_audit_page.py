"""The audit page shows what SQL shows, page by page; a forgery is named; no cell is a formula."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from shared.adapters.postgres.people.operator_auth import Operators
from tests.kit.audit_tampering import forge
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import Dashboard
from web.rest.files import safe_cell


@pytest.fixture
async def audit_log(dashboard: Dashboard) -> Dashboard:
    """Forty entries of two operators on four days."""
    operators = Operators(dashboard.pool)
    for n in range(40):
        await operators.record(
            actor="grace" if n % 2 else "ada", action=f"read.{'messages' if n % 4 else 'session'}",
            about=f"s{n % 5}", detail={"n": n},
        )  # fmt: skip
    await operators.record(actor="=cmd()", action="readiness", about="@sum(1)", detail={"x": 'a,"b"\n'})
    await operators.close()
    return dashboard


async def sql(at: Dashboard, where: str = "true", *arguments: Any) -> list[int]:
    return [
        row["id"]
        for row in await at.pool.fetch(f"SELECT id FROM audit WHERE {where} ORDER BY id DESC", *arguments)
    ]


def ids(page: Any) -> list[int]:
    return [entry["id"] for entry in page["entries"]]


async def test_pages_by_cursor_are_the_whole_log_once(audit_log: Dashboard) -> None:
    seen: list[int] = []
    before: int | None = None
    while True:
        page = await audit_log.get(f"/audit?limit=7{f'&before={before}' if before else ''}")
        seen += ids(page)
        before = page["before"]
        if before is None:
            break
    assert seen == await sql(audit_log)
    assert page["actors"] == sorted(page["actors"])
    distinct = await audit_log.pool.fetch("SELECT DISTINCT actor FROM audit")
    assert set(page["actors"]) == {row["actor"] for row in distinct}


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("operator=ada", "actor = 'ada'"),
        ("action=read", "action LIKE 'read.%'"),
        ("action=read.session", "action = 'read.session'"),
        ("about=s3", "object = 's3'"),
        ("operator=grace&action=read.messages&about=s1", "actor = 'grace' AND object = 's1'"),
        ("operator=nobody-here", "false"),
        ("action=%25", "false"),
    ],
)
async def test_a_filter_shows_what_sql_shows(audit_log: Dashboard, query: str, where: str) -> None:
    assert ids(await audit_log.get(f"/audit?limit=200&{query}")) == await sql(audit_log, where)


async def test_times_are_from_and_before(audit_log: Dashboard) -> None:
    await forge(audit_log.pool, "UPDATE audit SET at = at - interval '3 days' WHERE id % 2 = 0")
    day = await audit_log.pool.fetchval("SELECT to_char(now() - interval '1 day', 'YYYY-MM-DD')")
    assert ids(await audit_log.get(f"/audit?limit=200&from={day}")) == await sql(audit_log, "id % 2 = 1")
    assert ids(await audit_log.get(f"/audit?limit=200&to={day}")) == await sql(audit_log, "id % 2 = 0")


@pytest.mark.parametrize(
    "query",
    [
        "before=x",
        "before=-1",
        "before=0",
        "before=99999999999999999999",
        "limit=201",
        "from=yesterday",
        "operator=%00",
    ],
)
async def test_what_cannot_be_asked_is_refused(audit_log: Dashboard, query: str) -> None:
    for path in ("/api/v1/audit", "/api/v1/audit/csv"):
        assert await audit_log.status("GET", f"{path}?{query}") == 400


@pytest.mark.control("S14")
async def test_audit_chain_is_reported_whole_or_where_it_breaks(audit_log: Dashboard) -> None:
    found = await audit_log.get("/audit/chain")
    newest, *_ = await sql(audit_log)
    assert (found["state"], found["entries"]) == ("intact", len(await sql(audit_log)))
    assert (found["through"]["id"], found["broken_at"]) == (newest, None)
    forged = (await sql(audit_log))[10]
    await forge(audit_log.pool, "UPDATE audit SET detail = '{}' WHERE id = $1", forged)
    found = await audit_log.get("/audit/chain")
    assert (found["state"], found["broken_at"]["id"]) == ("broken", forged)
    assert found["through"]["id"] == (await sql(audit_log))[11]
    await forge(audit_log.pool, "DELETE FROM audit")
    assert (await audit_log.get("/audit/chain"))["state"] == "empty"


@pytest.mark.control("S49")
async def test_the_file_holds_the_filtered_log_and_no_formula(audit_log: Dashboard) -> None:
    async with audit_log.http.get(f"{audit_log.url}/api/v1/audit/csv?action=readiness") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/csv"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="evertalk-audit.csv"'
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        rows = list(csv.reader(io.StringIO(await answer.text("utf-8-sig"), newline="")))
    assert rows[0] == ["id", "at", "operator", "action", "about", "detail"]
    assert [row[2:] for row in rows[1:]] == [["'=cmd()", "readiness", "'@sum(1)", '{"x": "a,\\"b\\"\\n"}']]
    assert await audit_log.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'audit.exported'") == 1


async def test_a_long_file_comes_in_pieces_and_whole(audit_log: Dashboard) -> None:
    await audit_log.pool.execute(
        """INSERT INTO audit (actor, action, prev_hash, hash)
           SELECT 'bulk', 'bulk', '', sha256(n::text::bytea) FROM generate_series(1, 2500) n"""
    )
    async with audit_log.http.get(f"{audit_log.url}/api/v1/audit/csv?operator=bulk") as answer:
        rows = list(csv.reader(io.StringIO(await answer.text("utf-8-sig"), newline="")))
    assert [int(row[0]) for row in rows[1:]] == await sql(audit_log, "actor = 'bulk'")


@pytest.mark.control("S49")
@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "  =1", "\uff1d1"])
def test_a_cell_that_would_be_computed_is_marked(cell: str) -> None:
    assert safe_cell(cell) == f"'{cell}"


def test_other_cells_stay_as_they_are() -> None:
    assert [safe_cell(cell) for cell in ("a=1", "", -1, 2.5, None, "a\x00b")] == [
        "a=1",
        "",
        -1,
        2.5,
        "",
        "ab",
    ]


async def test_an_entry_names_whom_it_is_about_as_every_other_page_does(dashboard: Dashboard) -> None:
    async with dashboard.pool.acquire() as connection:
        named = await seed.a_session(connection, person="Maria")
        visitor = await seed.a_session(connection, person="")
    person = await dashboard.pool.fetchval("SELECT public_id FROM contacts WHERE id = $1", visitor.contact_id)
    await dashboard.get(f"/sessions/{named.public_id}")
    await dashboard.pool.execute("UPDATE contacts SET anonymous = true WHERE id = $1", visitor.contact_id)
    assert await dashboard.status("GET", f"/api/v1/people/{person}/export") == 200
    about = {entry["about"]: entry["person"] for entry in (await dashboard.get("/audit"))["entries"]}
    assert about[str(named.public_id)]["name"] == "Maria"
    shown = await dashboard.get(f"/people/{person}")
    (exported,) = [whom for object_, whom in about.items() if str(person) in object_]
    assert exported == {name: shown[name] for name in ("id", "name", "kind", "anonymous")}
    assert (exported["name"], exported["anonymous"]) == (None, True)
