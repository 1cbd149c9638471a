"""Migrations after which earlier programs can no longer work beside the new ones, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

CONTRACTS: Mapping[str, str] = {
    "0095": "parties are called contacts; CHANGELOG asks to stop processes of 0.1.0 before an upgrade",
    "0097": "links are called compactions; CHANGELOG asks to stop processes of 0.1.0 before an upgrade",
    "0098": "pauses are called backoff; CHANGELOG asks to stop processes of 0.1.0 before an upgrade",
}


def find_contracts(*, after: str, until: str = "9999") -> str:
    """Return why a program of the schema `after` does not work with the schema `until`; "" if it does."""
    return "; ".join(reason for revision, reason in CONTRACTS.items() if after < revision <= until)
