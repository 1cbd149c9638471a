"""What a typed error is to a caller: its status, its code and its advice."""

from __future__ import annotations

from aiohttp import web

from shared.config.settings import BadSettings
from shared.core.identity.operators import StaleOperator, UnknownOperator
from shared.core.values.errors import BadInput, EvertalkError, StorageUnavailable
from web.dashboard.access import AuthedRequest, DashboardRefusal, Handler
from web.dashboard.requests.request_json import read_json


def typed(handler: Handler) -> Handler:
    """The handler, whose typed errors become refusals; what storage cannot do is told at the door."""

    async def handle(visit: AuthedRequest) -> web.StreamResponse:
        try:
            return await handler(visit)
        except StorageUnavailable:
            raise
        except StaleOperator as error:
            details = {"current": error.current, "yours": dict(await read_json(visit))}
            raise DashboardRefusal(409, error.code, error.advice, details=details) from error
        except BadSettings:
            raise DashboardRefusal(
                503, "no_secret_key", "EVERTALK_SECRET_KEY cannot be read: nothing was made."
            ) from None
        except EvertalkError as error:
            raise DashboardRefusal(_status_of(error), error.code, error.advice) from error

    return handle


def _status_of(error: EvertalkError) -> int:
    match error:
        case UnknownOperator():
            return 404
        case BadInput():
            return 400
        case _:
            return 409
