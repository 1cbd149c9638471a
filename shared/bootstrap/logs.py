"""Sets up the log of a process: one structured event per line, without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog
from pydantic import SecretStr

from shared.config.settings import Settings
from shared.core.values.secrets_filter import redact

_HIDDEN = "(hidden)"
_SECRET_KEYS = frozenset({"authorization", "cookie", "password", "token", "secret", "api_key", "text"})
_NOISY = ("asyncio", "arq", "aiohttp.access", "httpx2", "httpcore2", "anthropic", "openai", "aiogram")


def configure_logs(settings: Settings, *, process: str, secrets: Iterable[SecretStr] = ()) -> None:
    """Set up the log of this process on standard error; call it once at the start.

    `process` is added to every line; `secrets`, and those in the settings, are masked in all lines. The
    format `auto` is text in a terminal and JSON elsewhere.
    """
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    redactor = _Redactor((*_list_secrets(settings), *(secret.get_secret_value() for secret in secrets)))
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redactor,
    ]
    # Tracebacks become text before masking; the usual ones of a terminal show the values of all variables.
    renderers: list[structlog.types.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        redactor,
    ]
    if as_json:
        renderers += [structlog.processors.JSONRenderer()]
    else:
        renderers += [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=renderers))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.bind_contextvars(process=process)


class _Redactor:
    """Processor that masks fields with names of secrets, and the secrets themselves in all texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        for key, value in event.items():
            if key.lower() in _SECRET_KEYS:
                event[key] = _HIDDEN
            elif isinstance(value, str):
                event[key] = self._clean(value)
        return event

    def _clean(self, value: str) -> str:
        for secret in self._secrets:
            if secret in value:
                value = value.replace(secret, _HIDDEN)
        return redact(value)


def _list_secrets(settings: Settings) -> list[str]:
    """Return the secrets in the settings that have at least 8 characters."""
    values = (getattr(settings, field) for field in Settings.model_fields)
    found = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
    return [secret for secret in found if len(secret) >= 8]
