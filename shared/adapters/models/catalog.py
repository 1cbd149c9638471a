"""Catalogue of models: windows, prices and abilities, known without a call to the provider.

`known_models.json` has figures that the providers published, as read in November 2026, without temporary
discounts. Above some length a whole prompt costs more, by the larger of the factors of input and output.
Cache writes of Anthropic are those of the five-minute cache. Unlisted values are None, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from shared.config.agents import ConfigSection, describe_problem
from shared.config.fields.kinds import WebAddress, read_secrets
from shared.config.settings import Settings
from shared.core.values.money import price_on
from shared.ports import ModelCard, Prices

Capability = Literal["cache", "tools", "thinking", "count_tokens", "json", "images"]
"""Ability of a model that changes its requests."""
UNKNOWN_WINDOW = 8_192
"""Context window in tokens that is assumed for a model without a known one."""
UNKNOWN_MAX_OUTPUT = 4_096
"""Maximum output in tokens that is assumed for a model without a known one."""
ALL_CAPABILITIES = frozenset(get_args(Capability))
"""Every `Capability`."""
Wire = Literal["messages", "openai", "responses"]
"""API of a model's server: Anthropic's Messages, Chat Completions, or OpenAI's Responses."""
MODEST_CAPABILITIES: Mapping[Wire, frozenset[str]] = {
    "messages": frozenset({"tools"}),
    "openai": frozenset({"tools", "json"}),
    "responses": frozenset({"tools", "json"}),
}
"""Abilities that any server of an API is assumed to have, until it refuses one."""
CACHE_WRITE_FACTOR = 1.25
"""Price of a cache write as a multiple of input, for models without that price."""
MOST_FALLBACKS = 4
"""Maximum fallback models of one model; each that fails costs time."""

_USUAL_TOKENS = 1.10
"""Token factor of models without a measured one.

Opus 4.7 and later count about 1.3 times the bundled vocabulary.
"""
_SNAPSHOT = re.compile(r"-20\d{6}$")
Wait = Annotated[float, Field(ge=1, le=600, strict=False)]
"""Seconds to wait, 1 to 600; a whole answer may take ten minutes."""
KEY_PLACE = "{key}"
"""Placeholder in a header's value; the key of its entry replaces it."""
_KEPT_HEADERS = frozenset(
    {"host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding"}
)
"""Headers that the program sets for each request; an operator cannot set them."""


def _check_header(name: str) -> str:
    if name.lower() in _KEPT_HEADERS:
        raise ValueError("this header belongs to the request itself")
    return name


_NAME, _NAME_IN_WORDS = r"^[A-Za-z0-9-]{1,60}$", "a header's name has 1 to 60 letters, digits and hyphens"
_VALUE, _VALUE_IN_WORDS = r"^[ -~]{0,500}$", "a header's value has at most 500 printable ASCII characters"
HeaderName = Annotated[str, Field(pattern=_NAME), AfterValidator(_check_header)]
HeaderValue = Annotated[str, Field(pattern=_VALUE)]
MOST_HEADERS = 10
"""Maximum headers of an entry."""
ThoughtTag = Annotated[str, Field(min_length=2, max_length=40)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelsFileBroken(ValueError):
    """Raised for models that cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """Model that an operator has configured; None means the value of the table or of the provider."""

    name: str
    """Name of the model in Evertalk."""
    model: str = ""
    """Name of the model at its provider; empty means the same name."""
    wire: Wire = "messages"
    """API of its server: Anthropic's Messages, Chat Completions, or OpenAI's Responses."""
    base_url: str | None = None
    key_env: str | None = None
    """Environment variable that holds its key, or the address whose key is in EVERTALK_MODEL_KEYS.

    A base URL of another provider never gets the usual key.
    """
    prices: Prices | None = None
    later_prices: tuple[Prices, ...] = ()
    """Prices that apply from a later day on, by their `starts`; the stored cost of earlier calls stays."""
    window: int | None = None
    max_output: int | None = None
    capabilities: frozenset[str] | None = None
    able: Mapping[str, bool] = field(default_factory=dict)
    """Abilities that differ from the usual ones of the API: True adds one, False removes one."""
    token_factor: float | None = None
    first_token_seconds: float | None = None
    """Seconds to wait for the first event of an answer; None means the value of `Patience`."""
    silence_seconds: float | None = None
    """Seconds to wait between two events of an answer; None means the value of `Patience`."""
    thought_tags: Mapping[str, str] = field(default_factory=dict)
    """Further tags between which this model writes thoughts: closing tag by opening tag."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of each request besides the usual ones; an empty value removes a usual one."""
    fallbacks: tuple[str, ...] = ()
    """Names of the models that answer while this one cannot, in the order in which they are tried."""

    @property
    def wire_name(self) -> str:
        """Name of the model in requests to its server."""
        return self.model or self.name


def _as_list(raw: object) -> object:
    """Return a single price or a single name as a list of one; return any other value unchanged."""
    return [raw] if isinstance(raw, dict | str) else raw


def _read_hosts() -> dict[str, dict[str, ModelCard]]:
    raw = json.loads(Path(__file__).with_name("known_models.json").read_text(encoding="utf-8"))
    return {
        host: {name: _find_row(name, row, raw["dated"]) for name, row in rows.items()}
        for host, rows in raw["hosts"].items()
    }


def _find_row(name: str, row: Mapping[str, Any], dated: str) -> ModelCard:
    input_, output, cache_read, cache_write = row["dollars"]
    prices = Prices(
        input=input_, output=output, cache_read=cache_read, cache_write=cache_write, dated=dated,
        above=row.get("above"), above_factor=row.get("above_factor", 1.0),
    )  # fmt: skip
    return ModelCard(
        name=name, window=row["window"], max_output=row["max_output"], window_known=True, prices=prices,
        capabilities=frozenset(row["can"].split()), token_factor=row.get("token_factor", _USUAL_TOKENS),
    )  # fmt: skip


MAKER, OPENAI_HOST = "api.anthropic.com", "api.openai.com"
HOSTS: Mapping[str, Mapping[str, ModelCard]] = _read_hosts()
"""Cards of the models that each provider's own API serves, by host name and model name."""
TABLE = HOSTS[MAKER]
"""Cards of the models that Anthropic's API serves, by name."""


@lru_cache(maxsize=256)
def find_known_card(name: str, host: str = MAKER) -> ModelCard | None:
    """Return the table's card of a model at a host, under the name `name`; None if the model is unknown.

    A name with a date at its end counts as the model without it.
    """
    rows = HOSTS.get(host, {})
    row = rows.get(name) or rows.get(_SNAPSHOT.sub("", name))
    return None if row is None else replace(row, name=name)


def build_card(
    entry: ModelEntry,
    *,
    window: int | None = None,
    max_output: int | None = None,
    foreign: bool = False,
    host: str = "",
    today: date | None = None,
) -> ModelCard:
    """Return the card of a model: the operator's values, else the provider's, else the table's.

    A `foreign` server may serve anything under a known name: the table's prices and abilities do not apply to
    it, unless its `host` is in the table.
    """
    foreign = foreign and host not in HOSTS
    row = find_known_card(entry.wire_name, MAKER if host not in HOSTS else host)
    told = entry.window or window or (row.window if row else None)
    given = (entry.prices, *entry.later_prices) if entry.prices else ()
    prices = price_on(today or datetime.now(UTC).date(), given)
    prices = prices or (row.prices if row and not foreign else None)
    can = row.capabilities if row and not foreign else MODEST_CAPABILITIES[entry.wire]
    can = can if entry.capabilities is None else entry.capabilities
    longest = entry.max_output or max_output or (row.max_output if row else UNKNOWN_MAX_OUTPUT)
    return ModelCard(
        name=entry.name,
        window=told or UNKNOWN_WINDOW,
        max_output=longest,
        window_known=told is not None,
        prices=prices,
        capabilities=frozenset(one for one in ALL_CAPABILITIES if entry.able.get(one, one in can)),
        token_factor=entry.token_factor or (row.token_factor if row else _USUAL_TOKENS),
    )


def list_entries(settings: Settings) -> tuple[ModelEntry, ...]:
    """Return the operator's models: those of the models file, then others of EVERTALK_MODELS.

    Raises ModelsFileBroken.
    """
    in_file = read_entries(settings.models_file) if settings.models_file else ()
    named = {entry.name for entry in in_file}
    return (*in_file, *(entry for entry in list_stored_entries(settings) if entry.name not in named))


def list_stored_entries(settings: Settings) -> tuple[ModelEntry, ...]:
    """Return the entries of EVERTALK_MODELS with the keys of their servers. Raises ModelsFileBroken.

    `key_env` is refused there: operators write this setting in the dashboard, and no environment variable may
    be sent to a server of their choice.
    """
    entries = parse_entries(settings.models, "EVERTALK_MODELS") if settings.models else ()
    keys = read_secrets(settings.model_keys)
    for entry in entries:
        if entry.key_env:
            raise ModelsFileBroken(
                f"EVERTALK_MODELS: {entry.name!r} cannot have key_env; EVERTALK_MODEL_KEYS holds its key"
            )
    return tuple(
        replace(entry, key_env=entry.base_url) if entry.base_url in keys else entry for entry in entries
    )


def read_entries(path: Path) -> tuple[ModelEntry, ...]:
    """Return the entries of a models file. Raises ModelsFileBroken."""
    try:
        return parse_entries(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeError) as error:
        raise ModelsFileBroken(f"{path}: {error}") from error


def parse_entries(text: str, source: str) -> tuple[ModelEntry, ...]:
    """Parse a JSON list of objects with the fields of `ModelForm`.

    Raises ModelsFileBroken with `source`, the name of the file or setting, and the first problem.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ModelsFileBroken(f"{source}: {error}") from error
    if isinstance(raw, dict) and set(raw) == {"models"}:
        raw = raw["models"]
    if not isinstance(raw, list):
        raise ModelsFileBroken(f"{source}: expected a list of models")
    entries = tuple(_entry(item, f"{source}: model {number}") for number, item in enumerate(raw, start=1))
    names = [entry.name for entry in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            raise ModelsFileBroken(f"{source}: {entry.name!r} is named twice")
        if entry.name in entry.fallbacks:
            raise ModelsFileBroken(f"{source}: {entry.name!r} cannot be its own fallback")
    return entries


class PriceForm(ConfigSection):
    """Prices in the models file, in dollars per million tokens.

    Without prices for the cache, a read costs as much as input and a write 1.25 times as much; costs are
    rather too high than too low.
    """

    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None
    dated: str = ""
    starts: date | None = Field(default=None, alias="from", strict=False)
    above: Amount | None = None
    above_factor: Amount | None = None

    def to_prices(self) -> Prices:
        """Return the prices in dollars per million tokens.

        A missing price of the cache is computed from that of input.
        """
        starts = self.starts.isoformat() if self.starts else ""
        return Prices(
            input=self.input, output=self.output, dated=self.dated or starts, starts=starts,
            cache_read=self.input if self.cache_read is None else self.cache_read,
            cache_write=self.input * CACHE_WRITE_FACTOR if self.cache_write is None else self.cache_write,
            above=None if self.above is None else int(self.above),
            above_factor=1.0 if self.above_factor is None else self.above_factor,
        )  # fmt: skip


class ModelForm(ConfigSection):
    """Model in the models file; a null value counts as a missing one."""

    name: Annotated[str, Field(min_length=1)]
    model: str | None = None
    wire: Wire = "messages"
    base_url: WebAddress | None = None
    key_env: str | None = None
    prices: Annotated[list[PriceForm], BeforeValidator(_as_list)] | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    max_output: Annotated[int, Field(ge=1)] | None = None
    capabilities: Annotated[frozenset[Capability], Field(strict=False)] | None = None
    tools: bool | None = None
    writes_json: bool | None = Field(default=None, alias="json")
    token_factor: Amount | None = None
    first_token_seconds: Wait | None = None
    silence_seconds: Wait | None = None
    thoughts: Annotated[list[ThoughtTag], Field(min_length=2, max_length=2)] | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=MOST_HEADERS)] | None = None
    fallback: Annotated[list[str], BeforeValidator(_as_list), Field(max_length=MOST_FALLBACKS)] | None = None


def _entry(raw: Any, at: str) -> ModelEntry:
    at = f"{at} ({raw['name']})" if isinstance(raw, dict) and raw.get("name") else at
    try:
        form = ModelForm.model_validate(raw)
    except ValidationError as error:
        problem = describe_problem(error.errors(include_url=False)[0], _FORMS, _PATTERNS)
        raise ModelsFileBroken(f"{at}: {problem.removeprefix(': ')}") from error
    prices = None if form.prices is None else [price.to_prices() for price in form.prices]
    able = {"tools": form.tools, "json": form.writes_json}
    days = [price.starts for price in prices or ()]
    if prices == [] or days != sorted(set(days)):
        raise ModelsFileBroken(f"{at}: prices must stand in the order of their days (`from`)")
    return ModelEntry(
        name=form.name, model=form.model or "", wire=form.wire,
        base_url=form.base_url, key_env=form.key_env or None, window=form.window,
        prices=prices[0] if prices else None, later_prices=tuple(prices or ())[1:],
        max_output=form.max_output, capabilities=form.capabilities,
        able={one: can for one, can in able.items() if can is not None},
        first_token_seconds=form.first_token_seconds, silence_seconds=form.silence_seconds,
        thought_tags={} if form.thoughts is None else {form.thoughts[0]: form.thoughts[1]},
        headers=form.headers or {}, token_factor=form.token_factor,
        fallbacks=tuple(filter(None, form.fallback or ())),
    )  # fmt: skip


_PATTERNS = {_NAME: _NAME_IN_WORDS, _VALUE: _VALUE_IN_WORDS}
_FORMS: dict[tuple[str, ...], type[BaseModel]] = {(): ModelForm, ("prices", "0"): PriceForm}
