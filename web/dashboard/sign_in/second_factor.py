"""Second factor of a login: set up and removed on the page Account, requested after password or link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Annotated

from pydantic import Field

from shared.adapters.encryption import CannotUnseal
from shared.adapters.postgres.people.operator_auth import TooManyTries
from shared.adapters.postgres.people.second_factors import NoSuchFactor, SecondFactors
from shared.config.settings import BadSettings, Settings
from web.dashboard.access import AuthedRequest, can_keep_login
from web.dashboard.requests import read_form
from web.dashboard.sign_in.login import LoginHandlers
from web.rest.kinds import DONE, Cut, Success, describe
from web.rest.operation import OperationRouter, Reply
from web.security import HttpRefusal

LARGEST_VERSION = 15
"""Largest version of a QR code: 77 modules a side, the most that a phone can read from a screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QrPicture:
    size: int
    """Modules a side, without the quiet border of four."""
    path: str
    """The `d` of an SVG path: dark stretches, row by row."""


def qr_picture(text: str) -> QrPicture | None:
    """Return a QR code of the text; None if the text is too long to be read from a screen."""
    import segno

    try:
        code = segno.make_qr(text, error="l")
    except segno.DataOverflowError:
        return None
    if int(code.version) > LARGEST_VERSION:
        return None
    return QrPicture(size=len(code.matrix), path=_path(code.matrix))


def _path(rows: Sequence[Sequence[int]]) -> str:
    return "".join(
        f"M{x} {y}h{length}v1h-{length}z" for y, row in enumerate(rows) for x, length in _dark(row)
    )


def _dark(row: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each dark stretch of a row, in modules."""
    at = 0
    for dark, stretch in groupby(row):
        length = sum(1 for _ in stretch)
        if dark:
            yield at, length
        at += length


router = OperationRouter()
BODY_BYTES = 1024
"""Maximum bytes of a body."""
MOST_CHARS = 100
"""Maximum characters of a code that are used."""
Code = Annotated[
    str, Cut(MOST_CHARS, "six-digit code of the authenticator app"), Field(json_schema_extra={"minLength": 1})
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFactor:
    on: bool
    since: datetime | None
    codes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFactorKey:
    key: Annotated[str, Field(description="secret key to type into the authenticator app")]
    address: Annotated[str, Field(description="`otpauth:` link for an app on this device")]
    picture: Annotated[QrPicture | None, describe("QR code of the key: `size` in modules, `path` of an SVG")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCodes:
    codes: list[Annotated[str, Field(description="single-use recovery code; returned only once")]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondFactorHandlers:
    """Handlers of the second factor: set-up, removal, and the second step of a login."""

    settings: Settings
    login: LoginHandlers
    second_factors: SecondFactors

    @router.page("POST /dashboard/login/code", anyone=True)
    async def log_in(self, authed: AuthedRequest) -> Reply:
        """Finish a login with a code of the second factor.

        A wrong code shows the form again until the first step expires.
        """
        request = authed.request
        if not can_keep_login(request, self.settings):
            return self.login.login_form(authed, "plain", status=403)
        form = await read_form(request)
        token, following = form.get("step", ""), form.get("next", "")
        browser = request.headers.get("User-Agent", "")
        try:
            outcome = await self.second_factors.log_in(
                token=token,
                code=form.get("code", "")[:MOST_CHARS],
                source=authed.address,
                browser=browser,
            )
        except NoSuchFactor:
            return self.login.login_form(authed, "late", following=following, status=401)
        except (CannotUnseal, BadSettings):
            return self.login.login_form(authed, "sealed", following=following, status=503)
        if isinstance(outcome, TooManyTries):
            return self.login.wait_longer(authed, outcome.retry_after_seconds)
        if outcome is None:
            return self.login.login_form(authed, "code", step=token, following=following, status=401)
        return await self.login.set_login_cookie(authed, outcome, following=following)

    @router.on("GET /me/second-factor", role="viewer")
    async def see_second_factor(self, authed: AuthedRequest) -> SecondFactor:
        """Get the state of your second factor."""
        found = await self.second_factors.load_state(authed.operator.operator_id)
        since, left = (None, 0) if found is None else found
        return SecondFactor(on=found is not None, since=since, codes_left=left)

    @router.on("POST /me/second-factor", role="viewer", refusals=(409, 503))
    async def begin_second_factor(self, authed: AuthedRequest) -> SecondFactorKey:
        """Create a key for an authenticator app.

        The key is returned only once.
        """
        begun = await self.second_factors.begin(authed.operator.operator_id)
        picture = qr_picture(begun.address)  # none of a very long name; the key can be typed
        return SecondFactorKey(key=begun.key, address=begun.address, picture=picture)

    @router.on(
        "POST /me/second-factor/confirm",
        role="viewer",
        body="FactorCode",
        most_bytes=BODY_BYTES,
        refusals=(409, 429, 503),
    )
    async def confirm_second_factor(self, authed: AuthedRequest, *, code: Code) -> RecoveryCodes:
        """Confirm the second factor with a first code.

        Every later login needs a code. Other logins end.
        """
        codes = await self.second_factors.confirm(
            authed.operator.operator_id, code, source=authed.address, keep=authed.token
        )
        if isinstance(codes, TooManyTries):
            raise _too_many(codes)
        return RecoveryCodes(codes=list(codes))

    @router.on(
        "POST /me/second-factor/remove", role="viewer", body="FactorCode", most_bytes=BODY_BYTES,
        refusals=(409, 429, 503),
    )  # fmt: skip
    async def remove_second_factor(self, authed: AuthedRequest, *, code: Code) -> Success:
        """Remove the second factor.

        Needs a code of the app or a recovery code.
        """
        source = authed.address
        waits = await self.second_factors.remove(authed.operator.operator_id, code, source=source)
        if waits is not None:
            raise _too_many(waits)
        return DONE


def _too_many(waits: TooManyTries) -> HttpRefusal:
    headers = {"Retry-After": str(waits.retry_after_seconds)}
    return HttpRefusal(429, "too_many_tries", "Too many tries. Please wait a while.", headers=headers)
