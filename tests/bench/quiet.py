"""Keeps log lines out of what a bench prints."""

from __future__ import annotations

import logging
import sys

import structlog


def keep_quiet() -> None:
    """Warnings go to standard error, everything below nowhere: standard output is for the figures."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
