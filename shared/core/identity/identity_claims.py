"""Claims in a site's signed token about a signed-in person; the signature was checked before."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

MOST_SECONDS_AHEAD = 3600
"""Most seconds from now to a token's expiry."""
LEEWAY_SECONDS = 30
"""Seconds by which the clocks of two machines may differ."""
SUBJECT_CHARS = 200
"""Most characters of the person's id at the site."""
NAME_CHARS = 80
"""Most characters of a person's name; longer ones are cut."""
EMAIL_CHARS = 254
"""Most characters of an e-mail address; longer ones are cut."""
ATTRIBUTES_AT_MOST = 20
"""Most further attributes; a token with more is invalid."""
ATTRIBUTE_CHARS = 40, 200
"""Most characters of an attribute's name, and of its value."""
_OUT_OF_SIGHT = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_LOCALE_CHARS = 35

Refusal = Literal["invalid", "expired"]
"""Reason why a token is refused: it is malformed or not for this site and time, or it has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Signed-in person of a site, as the site's signed token describes them; `subject` is their id at the
    site.

    Missing texts are empty.
    """

    site: str
    subject: str
    name: str = ""
    locale: str = ""
    email: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Further attributes, shown to operators only and never sent to models."""

    @property
    def contact(self) -> dict[str, Any]:
        """Details for the contact's row: `email`, `attributes` and `language`; empty ones are left out."""
        said = {"email": self.email, "attributes": dict(self.attributes), "language": self.locale}
        return {name: value for name, value in said.items() if value}

    @property
    def place(self) -> str:
        """Stored place of the person's address: `PLACE_PREFIX` and a hash of site and subject.

        It is hashed because a site's ids are often e-mail addresses.
        """
        words = f"evertalk.signed-in:{len(self.site)}:{self.site}:{self.subject}"
        return PLACE_PREFIX + hashlib.sha256(words.encode()).hexdigest()


PLACE_PREFIX = "sub:"
"""Prefix of the stored place of a signed-in person."""


def identity_of(claims: Mapping[str, Any], *, site: str, now: float) -> Identity | Refusal:
    """Return the identity in a token's claims, or `invalid` or `expired` if they are refused.

    `site` must be the audience; `now` is Unix time in seconds. `sub`, `exp` and `iat` are required; a present
    claim of a wrong type makes the token invalid.
    """
    expires, issued = claims.get("exp"), claims.get("iat")
    if not (_is_moment(expires) and _is_moment(issued)) or claims.get("aud") != site:
        return "invalid"
    if issued > now + LEEWAY_SECONDS or expires > now + MOST_SECONDS_AHEAD + LEEWAY_SECONDS:
        return "invalid"
    begins = claims.get("nbf", issued)
    if not _is_moment(begins) or begins > now + LEEWAY_SECONDS:
        return "invalid"
    subject, locale = claims.get("sub"), claims.get("locale", "")
    name = claims.get("name", claims.get("given_name", ""))
    email = claims.get("email", "")
    if not _is_subject(subject) or not all(isinstance(one, str) for one in (name, locale, email)):
        return "invalid"
    attributes = _attributes_of(claims.get("attributes", {}))
    if attributes is None:
        return "invalid"
    if expires <= now - LEEWAY_SECONDS:
        return "expired"
    return Identity(
        site=site, subject=subject, name=clean_name(name), locale=_clean_locale(locale),
        email=clean_name(email, EMAIL_CHARS), attributes=attributes,
    )  # fmt: skip


def _attributes_of(claim: object) -> Mapping[str, str] | None:
    """Return the attributes with values as text; None if they are too many or not plain values."""
    if not isinstance(claim, dict) or len(claim) > ATTRIBUTES_AT_MOST:
        return None
    if not all(isinstance(value, str | int | float) for value in claim.values()):
        return None
    most_name, most_value = ATTRIBUTE_CHARS
    return {
        plain: clean_name(str(value), most_value)
        for name, value in claim.items()
        if (plain := clean_name(name, most_name))
    }


def clean_name(name: str, most: int = NAME_CHARS) -> str:
    """Return a name on one line, at most `most` characters, without control and invisible characters.

    Square, curly and angle brackets become round ones or are removed.
    """
    plain = unicodedata.normalize("NFC", name[: 4 * most].encode(errors="ignore").decode())
    visible = "".join(" " if unicodedata.category(char) in _OUT_OF_SIGHT else char for char in plain)
    harmless = visible.translate(str.maketrans("[]<>{}", "()()()"))
    return " ".join(harmless.split())[:most].rstrip()


def _is_moment(value: object) -> TypeGuard[float]:
    """Return whether a value is a Unix time in seconds before the year 10000."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value < 253_402_300_800


def _is_subject(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or not 1 <= len(value) <= SUBJECT_CHARS or not value.strip():
        return False
    return not any(unicodedata.category(char) in ("Cc", "Cs") for char in value)


def _clean_locale(locale: str) -> str:
    plain = locale.isascii() and locale.replace("-", "").replace("_", "").isalnum()
    return locale if plain and len(locale) <= _LOCALE_CHARS else ""
