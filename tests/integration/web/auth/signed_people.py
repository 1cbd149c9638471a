"""A site whose people are signed in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jwt
from pydantic import SecretStr

from shared.adapters.encryption import Encryption
from shared.adapters.postgres.people.sites import PostgresSites
from shared.config.sites import build_secret_context
from tests.kit.web.fixtures import Server, Starter

KEY = "k" * 40
SECRET = b"s" * 48


def claims(**changes: Any) -> dict[str, Any]:
    moment = int(time.time())
    usual = {"sub": "42", "aud": "default", "iat": moment, "exp": moment + 600}
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def signed(secret: bytes = SECRET, **changes: Any) -> str:
    return jwt.encode(claims(**changes), secret, algorithm="HS256")


async def with_people(
    starter: Starter, verified: str = "optional", settings: Mapping[str, Any] | None = None, **config: Any
) -> Server:
    server = await starter.start(secret_key=SecretStr(KEY), **settings or {})
    await server.services.pool.execute(
        "UPDATE sites SET config = $1 WHERE name = 'default'", {"verified": verified, **config}
    )
    sealed = Encryption(KEY.encode()).seal(SECRET, about=build_secret_context("default", "one"))
    assert await PostgresSites(server.services.pool).add_secret("default", "one", sealed, by="test")
    server.process.visitors.forget_sites()
    return server
