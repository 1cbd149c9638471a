"""Login by an identity provider: confirmed identities, secrets of an attempt, and roles by group."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shared.core.identity.operators import ROLES, Role
from shared.core.tools.web_address import is_this_machine
from shared.core.values.errors import EvertalkError

MOST_GROUPS = 1_000
"""Most groups of a person that are looked at."""


class ProviderRefused(EvertalkError):
    """Answer of the identity provider that does not prove who the person is."""

    sentence = "The identity provider's answer proves nothing."
    code = "provider_refused"
    advice = "Logging in did not work. Please start again."


class ProviderAway(EvertalkError):
    """Identity provider that cannot be reached, or does not answer."""

    sentence = "The identity provider cannot be asked."
    code = "provider_away"
    advice = "Your identity provider does not answer just now. Try again in a minute."


class NoEntry(EvertalkError):
    """Account of the identity provider that is in no group with access to the dashboard."""

    sentence = "Known to the provider, and in no group that may come in."
    code = "no_entry"
    advice = "Your account is in no group that may use this dashboard. Ask its admin."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """Person whom the identity provider has confirmed, with the role in the dashboard that their groups
    give.
    """

    issuer: str
    subject: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Login in progress; all its values are derived from `secret`, which the browser's cookie holds."""

    secret: str

    @property
    def state(self) -> str:
        """Value of `state` in the login request, which the answer must repeat."""
        return self._part("state")

    @property
    def nonce(self) -> str:
        """Value of `nonce` in the login request, which the signed token must repeat."""
        return self._part("nonce")

    @property
    def verifier(self) -> str:
        """Code verifier of PKCE (RFC 7636), 43 characters, sent when the code is exchanged."""
        return self._part("verifier")

    @property
    def challenge(self) -> str:
        """PKCE challenge in the login request: SHA-256 of `verifier` in base64url without padding."""
        return _encode(hashlib.sha256(self.verifier.encode()).digest())

    def _part(self, what: str) -> str:
        return _encode(hashlib.sha256(f"evertalk.oidc.{what}\n{self.secret}".encode()).digest())


def parse_groups(text: str) -> tuple[tuple[str, Role], ...]:
    """Return pairs of group and role from a text such as `ops=operator,admins=admin`.

    Raises ValueError if a part is not a group and a role.
    """
    found: dict[str, Role] = {}
    for part in text.split(","):
        group, _, wanted = (word.strip() for word in part.rpartition("="))
        role = next((role for role in ROLES if role == wanted), None)
        if not group or role is None:
            raise ValueError(f"{part.strip()!r} is not a group and a role such as ops=operator")
        found[group] = role
    return tuple(found.items())


def role_of(claims: Mapping[str, Any], groups: tuple[tuple[str, Role], ...]) -> Role | None:
    """Return the highest role that `groups` gives to the groups in the claim `groups`, a text or a list.

    None if none of them may log in.
    """
    said = claims.get("groups")
    names = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    mine = {name for name in names[:MOST_GROUPS] if isinstance(name, str)}
    roles = [role for group, role in groups if group in mine]
    return max(roles, key=ROLES.index, default=None)


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the first non-empty claim of `preferred_username`, `email` and `name`; empty if there is
    none.
    """
    for claim in ("preferred_username", "email", "name"):
        if isinstance(said := claims.get(claim), str) and said.strip():
            return said
    return ""


def is_safe_address(url: object) -> bool:
    """Return whether a value is an address of https, or of http on this machine, to which secrets may be
    sent.

    False for addresses with a user name or a fragment, and for other types than text.
    """
    if not isinstance(url, str) or len(url) > 2_000 or not url.isascii():
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.username is not None or parts.fragment or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(parts.hostname))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
