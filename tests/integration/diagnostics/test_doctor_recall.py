"""What the doctor says about who orders what recall finds: nothing, unless one of two is not used."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.settings import load_settings
from shared.diagnostics.local_checks import check_recall_order

RERANK, EMBEDDINGS = {"rerank_url": "http://127.0.0.1:8012"}, {"embeddings_url": "http://127.0.0.1:8013"}


@pytest.mark.parametrize(
    ("chosen", "levels"), [({}, []), (RERANK, []), (EMBEDDINGS, []), (RERANK | EMBEDDINGS, ["warn"])]
)
async def test_of_two_servers_the_one_that_is_not_used_is_named(
    chosen: dict[str, Any], levels: list[str]
) -> None:
    found = await check_recall_order(load_settings(**chosen))
    assert [finding.level for finding in found] == levels
    assert all("EVERTALK_EMBEDDINGS_URL is not used" in finding.what for finding in found)
