"""What cannot be read is refused in words, by every route that takes a body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from uuid import uuid4

from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard
from tests.kit.web.table import ROWS, takes_body
from web.dashboard.requests import FORM_BYTES

JSON = {"Content-Type": "application/json", **SAME_ORIGIN, "If-Match": "1"}
BODIES = {
    "half a character": b'{"x": "\\ud800"}',
    "half a character in a name": b'{"\\udfff": 1}',
    "a NUL deep inside": b'{"x": [{"y": ["a\\u0000"]}]}',
    "no number": b'{"x": NaN}',
    "no object": b'["x"]',
    "not JSON": b"x=1",
    "other bytes": b"\xff\xfe",
    "very deep": b'{"x":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
}


async def test_every_route_refuses_what_cannot_be_kept(dashboard: Dashboard) -> None:
    taking = [one for one in ROWS if one.role and takes_body(one) and one.group == "dashboard"]
    assert len(taking) > 12
    before = await dashboard.pool.fetchval("SELECT count(*) FROM audit")
    for one, (what, body) in product(taking, BODIES.items()):
        path = one.path.replace("{operator}", str(uuid4())).replace("{id}", str(uuid4()))
        path = path.replace("{name}", "default").replace("{note}", str(uuid4())).replace("{kind}", "flush")
        path = path.replace("{server}", "none")
        address = dashboard.url + path
        async with dashboard.http.request(one.method, address, data=body, headers=JSON) as response:
            told = await response.json()
        assert response.status in (400, 404, 413, 503), (one.name, what, response.status, told)
        assert response.status != 413 or len(body) > 4096, (one.name, what, told)
        assert response.status != 503 or told["code"] == "not_available", (one.name, what, told)
    assert await dashboard.pool.fetchval("SELECT count(*) FROM audit") == before


async def test_what_is_too_large_is_not_read(dashboard: Dashboard) -> None:
    for path in ("/api/v1/agents/default", "/api/v1/sites/default/settings"):
        told = await dashboard.status("PUT", path, data=b" " * 300_000, headers=JSON)
        assert told == 413


async def test_body_without_a_stated_length_has_the_same_limit(dashboard: Dashboard) -> None:
    async def stream(body: bytes) -> AsyncIterator[bytes]:
        yield body

    form = {"Content-Type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
    parts = {"Content-Type": "multipart/form-data; boundary=x", **SAME_ORIGIN}
    part = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n%b\r\n--x--\r\n'
    for method, path, headers, body in (
        ("PUT", "/api/v1/agents/default", JSON, b" " * 300_000),
        ("PUT", "/api/v1/agents/default", JSON, b" " * 2_000_000),
        ("POST", "/dashboard/login", form, b"x" * (FORM_BYTES + 1)),
        ("POST", "/dashboard/login", parts, part % (b"x" * FORM_BYTES)),
    ):
        told = await dashboard.status(method, path, data=stream(body), headers=headers)
        assert told == 413, (path, headers, len(body))
