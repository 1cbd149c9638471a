"""Reads identity tokens of sites: short-lived JWTs, signed with a secret that the site shares with
Evertalk.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from shared.core.identity.identity_claims import Identity, identity_of
from shared.core.values.errors import BadInput

MOST_CHARS = 4_096
"""Maximum characters of a token."""
_HEADERS = frozenset({"alg", "typ", "kid"})


class BadIdentity(BadInput):
    """Identity token that is malformed, wrongly signed, or not accepted by the site."""

    sentence = "The page could not prove who you are."
    code = "identity_invalid"
    advice = "Please sign in on this page again, then open the chat."


class IdentityExpired(BadIdentity):
    """Identity token of the site that is correctly signed but too old."""

    sentence = "The proof of who you are is too old."
    code = "identity_expired"

    def __init__(self, reason: str, *, place: str = "") -> None:
        super().__init__(reason)
        self.place = place
        """Address of the person that the expired token names; empty if unknown."""


class IdentityRequired(BadIdentity):
    """Site admits only people who are signed in, and the visitor has no identity token."""

    sentence = "This chat is for people who are signed in."
    code = "identity_required"
    advice = "Please sign in on this page, then open the chat."


class StillAnswering(BadInput):
    """Sign-in that must wait while an answer in the anonymous conversation is being written."""

    sentence = "An answer is still being written."
    code = "busy"
    advice = "Please wait until the answer is finished, then try again."
    retry_after_seconds = 3.0


def read_identity(token: str, *, site: str, secrets: Iterable[bytes], now: float | None = None) -> Identity:
    """Return the identity in a token that a site signed with one of `secrets`.

    `now` is in seconds since 1970, None for the current time. Raises IdentityExpired for an old token, else
    BadIdentity, which does not say what is wrong.
    """
    if len(token) > MOST_CHARS or not token.isascii():
        raise BadIdentity("too large")
    claims = _verify(token, secrets)
    found = identity_of(claims, site=site, now=time.time() if now is None else now)
    if found == "expired":
        raise IdentityExpired("expired", place=Identity(site=site, subject=claims["sub"]).place)
    if isinstance(found, str):
        raise BadIdentity("claims")
    return found


def _verify(token: str, secrets: Iterable[bytes]) -> dict[str, Any]:
    """Return the claims of a token with a valid signature. Raises BadIdentity.

    PyJWT is imported here, so that only installations with signed-in visitors load it.
    """
    import jwt

    for secret in secrets:
        try:
            whole = jwt.decode_complete(
                token,
                secret,
                algorithms=["HS256"],
                # `identity_of` does all other checks, strict about types; PyJWT accepts "1e9" as a time.
                options={
                    "verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False,
                    "verify_iss": False, "verify_sub": False, "verify_jti": False,
                },
            )  # fmt: skip
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError, RecursionError):
            continue
        if set(whole["header"]) <= _HEADERS and isinstance(whole["payload"], dict):
            claims: dict[str, Any] = whole["payload"]
            return claims
    raise BadIdentity("signature")
