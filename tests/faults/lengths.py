"""How long an outage lasts: a few seconds in every run, its whole length with `--at-length`."""

from __future__ import annotations

import os

AT_LENGTH = "FAULTS_AT_LENGTH"


def lasting(short: float, long: float) -> float:
    return long if os.environ.get(AT_LENGTH) else short
