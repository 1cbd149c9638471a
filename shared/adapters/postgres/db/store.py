"""What every store begins with: the pool, by which its methods are one transaction and tell what fails."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class PoolStore:
    """Its methods are `store_method`s, which raise StorageUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
