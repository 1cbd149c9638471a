"""Faults of TLS certificates, found in the exceptions of any client library."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

CertificateFaultKind = Literal["expired", "early", "host", "authority", "revoked", "client", "other"]
"""Kind of a fault; `early` is not valid yet, `client` concerns the certificate of this program."""

_MOST_CAUSES = 20
"""Maximum number of exceptions examined in one chain of causes; libraries wrap an error four or five times.
"""
_KINDS: Mapping[int, CertificateFaultKind] = {
    9: "early", 10: "expired", 62: "host", 63: "host", 64: "host", 23: "revoked",
    2: "authority", 18: "authority", 19: "authority", 20: "authority", 21: "authority", 27: "authority",
}  # fmt: skip
"""Fault for each verification code of OpenSSL (X509_V_ERR_…)."""
_CLIENT_REASONS = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""Parts of OpenSSL reasons that mean: the server refused the client's certificate."""
_WORDINGS: Mapping[CertificateFaultKind, tuple[str, str]] = {
    "expired": (
        "its certificate has expired",
        "Renew the certificate on that server, restart the server, and check the clock here.",
    ),
    "early": (
        "its certificate is not valid yet",
        "Check the clock of this machine; if it is right, the server has the wrong certificate.",
    ),
    "host": (
        "its certificate is for another host name",
        "Use a host name that the certificate contains, or give the server a certificate for this name.",
    ),
    "authority": (
        "its certificate is signed by an authority that is not trusted here",
        "Add the authority to those that this system trusts, or use a certificate of a public authority.",
    ),
    "revoked": ("its certificate was revoked", "Give that server a new certificate."),
    "client": (
        "it refuses the certificate of this client, or misses one",
        "Look at the client certificate that is set here: its authority, and whether it has expired.",
    ),
    "other": ("its certificate was refused", "Check the certificate of that server."),
}
"""Reason and advice for each kind of fault."""


@dataclass(frozen=True, slots=True)
class CertificateFault:
    """Certificate fault of a server.

    `reason` continues a sentence whose subject is the server: "its certificate has expired".
    """

    kind: CertificateFaultKind
    reason: str
    advice: str


def find_certificate_fault(error: BaseException | None) -> CertificateFault | None:
    """Return the certificate fault in an exception or its causes; None if no certificate is at fault."""
    for one in _walk_causes(error):
        # An exception of aiohttp is of this class too, but lacks its fields; the wrapped one has them.
        code, reason = getattr(one, "verify_code", None), getattr(one, "reason", None) or ""
        if isinstance(one, ssl.SSLCertVerificationError) and code is not None:
            kind = _KINDS.get(code, "other")
            wording, advice = _WORDINGS[kind]
            return CertificateFault(kind, f"{wording} ({one.verify_message.rstrip('.')})", advice)
        if isinstance(one, ssl.SSLError) and any(part in reason for part in _CLIENT_REASONS):
            return CertificateFault("client", *_WORDINGS["client"])
    return None


def describe_failure(error: BaseException) -> str:
    """Return the reason of a certificate's fault, else only the class name of the exception.

    The exception's own text may contain addresses, so it is never returned.
    """
    fault = find_certificate_fault(error)
    return fault.reason if fault is not None else type(error).__name__


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and all that it wraps: causes, contexts, arguments and members of groups."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MOST_CAUSES:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else one.args
        wrapped = [each for each in inner if isinstance(each, BaseException)]
        waiting += [one.__cause__, *wrapped, getattr(one, "certificate_error", None), one.__context__]
