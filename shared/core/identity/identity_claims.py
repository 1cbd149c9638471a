"""Claims of a site about a signed-in person, whose signature has been checked."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

MOST_SECONDS_AHEAD = 3600
LEEWAY_SECONDS = 30
"""How far the clocks of two machines may be apart."""
SUBJECT_CHARS = 200
NAME_CHARS = 80
EMAIL_CHARS = 254
ATTRIBUTES_AT_MOST = 20
ATTRIBUTE_CHARS = 40, 200
"""Characters of an attribute's name, and of its value."""
_OUT_OF_SIGHT = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_LOCALE_CHARS = 35

Refusal = Literal["invalid", "expired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of a person on a site."""

    site: str
    subject: str
    name: str = ""
    locale: str = ""
    email: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Further attributes for operators; no model reads them."""

    @property
    def contact(self) -> dict[str, Any]:
        said = {"email": self.email, "attributes": dict(self.attributes), "language": self.locale}
        return {name: value for name, value in said.items() if value}

    @property
    def place(self) -> str:
        """The chat of this person's address: a site's own ids, often e-mail addresses, are not stored."""
        words = f"evertalk.signed-in:{len(self.site)}:{self.site}:{self.subject}"
        return PLACE_PREFIX + hashlib.sha256(words.encode()).hexdigest()


PLACE_PREFIX = "sub:"


def identity_of(claims: Mapping[str, Any], *, site: str, now: float) -> Identity | Refusal:
    """Strict about types: a claim that is there and not as it should be spoils the whole."""
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
    """Few and short, numbers and switches as words; None for anything else."""
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
    """One line that shows as it is: no control, direction or invisible marks, no half characters."""
    plain = unicodedata.normalize("NFC", name[: 4 * most].encode(errors="ignore").decode())
    visible = "".join(" " if unicodedata.category(char) in _OUT_OF_SIGHT else char for char in plain)
    harmless = visible.translate(str.maketrans("[]<>{}", "()()()"))
    return " ".join(harmless.split())[:most].rstrip()


def _is_moment(value: object) -> TypeGuard[float]:
    """Seconds since 1970, before the year 10000."""
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
