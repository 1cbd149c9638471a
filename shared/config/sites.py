"""Config of a site's row: checked as a whole, every problem named with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from shared.config.agents import ConfigSection, describe_problem, find_unstorable
from shared.core.values.contrast import full_hex, text_on
from shared.core.values.errors import EvertalkError

_LANGUAGE = r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$"
_COLOUR = r"^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"
_FONT = r"^[A-Za-z0-9 ,'\"_-]{1,200}$"
"""Families as in CSS, without signs that could end its value."""
_IN_WORDS = {
    _LANGUAGE: "a language is named as in de or pt-BR",
    _COLOUR: "must be a colour such as #4f46e5",
    _FONT: "must be font families such as Inter, sans-serif",
}

AUDIENCES = ("personal", "public")
"""Values of a site's audience."""
ROW_FIELDS = frozenset({"agent", "audience", "origins"})
"""Fields of a site that are columns of its row, outside of the config."""
_ORIGIN = re.compile(r"(https?://)?(\*\.)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")

ShortText = Annotated[str, Field(min_length=1, max_length=60)]
StarterText = Annotated[str, Field(min_length=1, max_length=80)]
LongText = Annotated[str, Field(min_length=1, max_length=500)]


class SiteTexts(ConfigSection):
    """Texts of a site in one language; a missing one falls back to the site's own, then to the program's."""

    title: ShortText | None = None
    welcome: LongText | None = None
    starters: Annotated[list[StarterText], Field(max_length=6)] | None = None
    offline_text: LongText | None = None
    ai_notice: LongText | None = None
    """Line that replaces the program's own notice that an AI answers."""
    launcher_label: ShortText | None = None


class SiteConfig(SiteTexts):
    """Config of a site, as in `sites.config`; None means that the program's default applies."""

    accent: Annotated[str, Field(pattern=_COLOUR)] | None = None
    font: Annotated[str, Field(pattern=_FONT)] | None = None
    """Font families as in CSS; the page that shows the widget, or the system, has them."""
    position: Literal["left", "right"] | None = None
    privacy_url: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    verified: Literal["off", "optional", "required"] = "off"
    """Whether people may (`optional`) or must (`required`) be identified by the site's signature."""
    webview: bool = False
    """True for apps with an embedded page, which send no origin, or `null`."""
    uploads: bool | None = None
    """True if visitors may send files; None allows it in personal conversations only."""
    imports: bool | None = None
    """True if visitors may import earlier conversations; None allows it to people who are signed in, and in
    personal conversations.
    """
    handover: bool = True
    memory_toasts: bool = False
    ask_name: bool = False
    """True if the empty chat asks visitors who are not signed in for their name."""
    conversations: Literal["one", "many"] = "one"
    """Number of conversations that one person may have."""
    texts: (
        Annotated[dict[Annotated[str, Field(pattern=_LANGUAGE)], SiteTexts], Field(max_length=40)] | None
    ) = None
    """Texts in other languages, by language tag."""


class BadSiteConfig(EvertalkError):
    """A site's row cannot be used as it is; every problem is named at once."""

    sentence = "A site's row cannot be used as it is; every problem is named at once."
    code = "bad_site_config"

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems), advice="\n".join(problems))
        self.problems = tuple(problems)


def read_site_config(config: object) -> SiteConfig:
    """Return a site's config as a validated value.

    Raises BadSiteConfig with all problems, each with its place.
    """
    if not isinstance(config, Mapping):
        raise BadSiteConfig(["must be an object such as {}"])
    problems = [*find_unstorable(config), *_shape_problems(config), *_link_problems(config)]
    if problems:
        raise BadSiteConfig(problems)
    return SiteConfig.model_validate(dict(config))


def check_site(whole: object) -> tuple[str, ...]:
    """Check a site's row and config, in one object as forms edit them; return an empty tuple, since there are
    no remarks.

    Raises BadSiteConfig with all problems.
    """
    if not isinstance(whole, Mapping):
        raise BadSiteConfig(["must be an object such as {}"])
    problems = list(_row_problems(whole))
    config = {key: value for key, value in whole.items() if key not in ROW_FIELDS and value is not None}
    try:
        read_site_config(config)
    except BadSiteConfig as error:
        problems += error.problems
    if problems:
        raise BadSiteConfig(problems)
    return ()


def _row_problems(whole: Mapping[str, Any]) -> list[str]:
    problems = []
    if not isinstance(whole.get("agent"), str):
        problems.append("agent: must be the name of an agent")
    if whole.get("audience") not in AUDIENCES:
        problems.append("audience: must be personal or public")
    origins = whole.get("origins")
    if not isinstance(origins, list) or len(origins) > 100:
        return [*problems, "origins: must be a list of at most 100"]
    wrong = [one for one in origins if not isinstance(one, str) or not _ORIGIN.fullmatch(one)]
    return problems + [
        f"origins: {_strip_unprintable(str(one))} is no origin such as https://shop.example.org"
        for one in wrong
    ]


def _strip_unprintable(text: str) -> str:
    """Return at most 60 characters of typed text in quotation marks, without unprintable ones."""
    return f"“{''.join(char for char in text if char.isprintable()).strip()[:60]}”"


def select_texts(config: SiteConfig, language: str) -> dict[str, Any]:
    """Return a site's texts for a language tag, by field; missing ones fall back from `de-AT` to `de`, then
    to the site's own.
    """
    tags = {tag.lower(): texts for tag, texts in (config.texts or {}).items()}
    wanted = language.replace("_", "-").lower()
    found = config.model_dump(include=set(SiteTexts.model_fields), exclude_none=True)
    for tag in dict.fromkeys((wanted.partition("-")[0], wanted)):
        if tag in tags:
            found |= tags[tag].model_dump(exclude_none=True)
    return found


def build_public_config(config: SiteConfig, language: str) -> dict[str, Any]:
    """Return the settings of a site that a page may read before it connects, with the texts for
    `language`.
    """
    shown: dict[str, Any] = {"starters": [], **select_texts(config, language)}
    if config.accent and (accent := full_hex(config.accent)):
        shown |= {"accent": accent, "on_accent": text_on(accent)}
    for name in ("position", "privacy_url", "font"):
        if value := getattr(config, name):
            shown[name] = value
    if config.ask_name:
        shown["ask_name"] = True
    if config.conversations == "many":
        shown["conversations"] = "many"
    return shown


def _shape_problems(config: Mapping[str, Any]) -> Iterator[str]:
    texts = config.get("texts")
    languages = texts if isinstance(texts, Mapping) else {}
    sections: dict[tuple[str, ...], type[BaseModel]] = {(): SiteConfig}
    sections |= {("texts", str(tag)): SiteTexts for tag in languages}
    try:
        SiteConfig.model_validate(dict(config))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield describe_problem(detail, sections, _IN_WORDS)


def _link_problems(config: Mapping[str, Any]) -> Iterator[str]:
    link = config.get("privacy_url")
    if not isinstance(link, str) or not link:
        return
    try:
        parts = urlsplit(link)
        usable = parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable or not link.isprintable() or " " in link or "\\" in link:
        yield "privacy_url: must be an address that begins with https://"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """Site with its agent, origins, config and the version of that, for operators.

    `visitors` is the number of its visitors.
    """

    name: str
    agent: str
    audience: str
    origins: tuple[str, ...]
    config: Mapping[str, Any]
    version: int
    visitors: int = 0


def build_site_form(site: SiteView) -> dict[str, Any]:
    """Return the site's row and config in one object, as forms edit it."""
    return {
        "agent": site.agent, "audience": site.audience, "origins": list(site.origins), **site.config,
    }  # fmt: skip


def parse_site_form(name: str, whole: Mapping[str, Any], *, version: int) -> SiteView:
    """Return the site that a form describes, once `check_site` has accepted the form."""
    config = {key: value for key, value in whole.items() if key not in ROW_FIELDS and value is not None}
    return SiteView(
        name=name, agent=whole["agent"], audience=whole["audience"], origins=tuple(whole["origins"]),
        config=config, version=version,
    )  # fmt: skip


def build_secret_context(site: str, secret_id: str) -> str:
    """Return the text that a site's secret is sealed with; opening the secret needs the same text."""
    return f"site-secret:{site}:{secret_id}"
