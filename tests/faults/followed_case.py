"""A case with a standby of its database."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from tests.faults.conftest import TEMPLATE
from tests.faults.standby import Standby, followed
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.forks import Hatchery
from tests.kit.fakes.tcp_proxy import TcpProxy
from tests.kit.temp_folders import short_folder


class Followed(Case):
    """A case whose database is behind one address, whichever server answers there."""

    line: TcpProxy
    standby: Standby

    @property
    def database_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.line.port}/{self.database}?sslmode=disable"

    async def fail_over(self) -> None:
        self.line.refuses = True
        await self.standby.take_over()
        self.line.cut()
        self.line.upstream, self.line.refuses = self.standby.socket, False


@asynccontextmanager
async def followed_case(hatchery: Hatchery) -> AsyncIterator[Followed]:
    folder = short_folder("evp-")
    servers = EmbeddedServers(folder / "servers")
    await servers.start()
    try:
        plant = Plant(servers=servers, folder=folder, hatchery=hatchery)
        await plant.admin(f'create database "{TEMPLATE}"')
        await migrate(plant.database_url(TEMPLATE))
        made = await plant.case(TEMPLATE)
        sockets = Path(parse_qs(urlsplit(made.database_url).query)["host"][0])
        async with TcpProxy(upstream=sockets / ".s.PGSQL.5432") as line, followed(plant) as standby:
            case = Followed(plant=plant, database=made.database, redis_url=made.redis_url, port=made.port)
            case.line, case.standby = line, standby
            yield case
    finally:
        await servers.stop()
        shutil.rmtree(folder, ignore_errors=True)
