"""A store of knowledge in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.core.memory.knowledge import Passage
from shared.core.values.errors import StorageUnavailable


@dataclass
class Kept:
    """A store of knowledge in memory that records its writes.

    The next `away` loads fail with StorageUnavailable.
    """

    rows: dict[tuple[int, str], tuple[bytes, tuple[Passage, ...]]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    away: int = 0

    async def load_hashes(self, agent_id: int) -> Mapping[str, bytes]:
        if self.away:
            self.away -= 1
            raise StorageUnavailable("away")
        return {path: sha256 for (agent, path), (sha256, _) in self.rows.items() if agent == agent_id}

    async def replace(self, agent_id: int, path: str, *, sha256: bytes, passages: Sequence[Passage]) -> None:
        self.rows[agent_id, path] = sha256, tuple(passages)
        self.written.append(path)

    async def remove(self, agent_id: int, paths: Sequence[str]) -> None:
        for path in paths:
            del self.rows[agent_id, path]

    def texts(self, agent_id: int = 1) -> dict[str, list[str]]:
        return {
            path: [one.text for one in passages]
            for (agent, path), (_, passages) in self.rows.items()
            if agent == agent_id
        }
