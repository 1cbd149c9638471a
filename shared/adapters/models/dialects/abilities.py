"""Abilities that a server lacks, recognised in its refusals, and how the next request differs.

`shared.core.verdicts.abilities` stores for a day what a model lacks; the request builders leave it out. The
table has rows for servers of both APIs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.adapters.models.dialects.refusal_wordings import find_output_limit
from shared.core.verdicts.abilities import Ability, MissingAbility

LEAST_OUTPUT = 256
"""Output tokens below which an allowed maximum means that the window is full."""

INSTEAD: Mapping[Ability, str] = {
    "tools": "past calls are told as text, no tools are offered",
    "images": "descriptions are sent in place of pictures",
    "json": "JSON is asked for in the prompt, without a schema",
    "system": "instructions begin the first message of the person",
    "system_blocks": "instructions are one text",
    "thinking": "thinking is not requested",
    "cache": "no cache marks are set",
    "max_tokens": "the limit of an answer is called max_completion_tokens",
    "output_limit": "answers are limited to what the server allows",
    "null_content": "empty text in place of null",
    "empty_content": "a dot in place of empty text",
    "alternation": "neighbouring messages of one role are joined",
    "user_after_tool": "a short answer stands between a tool's result and the next message",
    "schema_keywords": "schemas are sent without keywords that few servers know",
    "stream_options": "usage is not requested",
    "prompt_cache_options": "no cache marks are set",
    "opaque_state": "a model's own state is not sent back",
}
"""How requests differ without the ability, as shown by `doctor` and the page Overview."""

SETTINGS: Mapping[Ability, str] = {
    "tools": '"tools": false',
    "json": '"json": false',
    "output_limit": '"max_output": {number}',
}
"""Fields of a model's entry by which an operator sets the lack of the ability permanently."""


@dataclass(frozen=True, slots=True)
class _Row:
    ability: Ability
    pattern: re.Pattern[str]
    servers: str


def _row(ability: Ability, pattern: str, servers: str) -> _Row:
    return _Row(ability, re.compile(pattern, re.IGNORECASE | re.DOTALL), servers)


_REFUSED = (
    r"(?:not (?:support|permit|allow|recogni[sz]|accept|implement|enabl|available|valid)|n't support|unsupported|unrecogni[sz]ed|"
    r"unknown|unexpected|extra (?:inputs?|fields?)|additional propert|invalid|no endpoints found|requires? )"
)
"""Alternatives of a pattern for "we do not accept this"."""

_ROWS: Sequence[_Row] = (
    _row("max_tokens", r"max_tokens.{0,120}max_completion_tokens.{0,20}instead|use .{0,3}max_completion_tokens", "OpenAI"),
    _row(
        "images",
        r"(?:image|vision|multi-?modal|picture)s?(?:_url)?.{0,60}(?:not supported|unsupported|isn't supported|is only supported by)|"
        r"(?:not|n't) support.{0,30}(?:image|vision|multi-?modal|picture)|no endpoints found that support image|"
        r"unknown variant `?image_url|at most 0 image|missing data required for image|image_url.{0,40}expected.{0,20}text",
        "OpenAI, DeepSeek, vLLM, llama.cpp, Ollama, OpenRouter, Mistral",
    ),
    _row(
        "schema_keywords",
        r"(?:additionalProperties|\$schema|\$defs|\$ref|anyOf|oneOf|default|format|pattern|minimum|maximum|minLength|maxLength|const|title|examples)"
        r"\W.{0,60}at .{0,3}(?:request\.)?tools|"
        r"tools?\b.{0,120}(?:unknown|unsupported|unrecogni[sz]ed|not supported) (?:name|key|keyword|field|schema).{0,40}"
        r"(?:additionalProperties|\$schema|\$defs|\$ref|anyOf|oneOf|default|format|pattern|minimum|maximum|minLength|maxLength|const|title|examples)|"
        r"unknown name .{0,3}(?:additionalProperties|\$schema|\$defs|\$ref|default|const|examples|exclusiveM)|"
        r"invalid schema for function .{0,120}is not (?:permitted|supported|allowed)",
        "Google, Vertex, SambaNova, OpenAI",
    ),
    _row(
        "json",
        r"(?:response_format|json_schema|json_object|json mode|structured[ _]outputs?|output_config|output_format|text\.format|guided|grammar)"
        r".{0,160}" + _REFUSED + r"|" + _REFUSED + r".{0,80}(?:response_format|json_schema|json mode|structured[ _]outputs?|output_config|output_format)|"
        r"additionalproperties.{0,40}(?:required|must be) (?:to be )?(?:supplied|false)|no endpoints found that support .{0,40}structured",
        "OpenAI, Anthropic, Groq, Mistral, vLLM, SGLang, DeepSeek, OpenRouter",
    ),
    _row(
        "user_after_tool",
        r"unexpected role.{0,6}user.{0,6} after role.{0,6}tool|tool.{0,40}must be followed by.{0,20}assistant",
        "Mistral",
    ),
    _row(
        "alternation",
        r"roles? must alternate|should alternate|must alternate|alternating (?:user|roles)|consecutive (?:user|assistant|messages)|"
        r"(?:first|last) message must (?:be|have|come).{0,30}user|multiple .{0,20}(?:user|assistant) messages in a row",
        "Gemma, Mistral and Llama templates, Perplexity",
    ),
    _row(
        "tools",
        r"(?:not|n't) support(?:ed)?(?: for| with| the)? (?:the use of )?(?:tools?\b|tool[ _](?:use|call)|function)|"
        r"\b(?:tools?|tool_choice|functions?|function[ _]call(?:ing)?|tool[ _](?:use|calls?|calling))\b['\"`]? "
        r"(?:param(?:eter)?s? |fields? )?(?:is |are )?(?:currently )?"
        r"(?:not (?:yet )?(?:support|permit|allow|enabl|available|implement)|unsupported)|"
        r"no endpoints found that support tool|tool choice requires --enable-auto-tool-choice|tools? param requires --jinja|"
        r"extra (?:inputs|fields)[^.]{0,60}\btools['\"`]?\Z|body\.tools: extra|"
        r"(?:unrecogni[sz]ed|unknown|unexpected|unsupported)[^.\[]{0,60}['\"` :]tools?['\"`]?(?:\s|\.|\Z)",
        "Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek, Perplexity, Groq",
    ),
    _row(
        "system",
        r"(?:system|developer) (?:role|instructions?|messages?|prompts?).{0,40}(?:not supported|unsupported|not enabled|not allowed|not accepted)|"
        r"(?:not|n't) (?:support|accept|allow).{0,40}(?:system|developer)\b['\"`]? ?(?:role|instruction|message|prompt|with this)?|"
        r"\brole\b.{0,60}does not support 'system'|(?:invalid|unknown|unexpected|unsupported) role.{0,10}system|"
        r"unexpected role.{0,6}system",
        "vLLM with Gemma, Google with Gemma, OpenAI o1-mini, Mistral templates",
    ),
    _row("system_blocks", r"\bsystem\b.{0,30}(?:should be a valid string|must be a string|expected (?:a )?string)", "proxies of Messages"),
    _row(
        "empty_content",
        r"content.{0,60}(?:non-?empty|cannot be empty|must not be empty|is empty|at least 1 character|min_length)|empty (?:content|message)",
        "Moonshot, Qwen, Anthropic, Bedrock",
    ),
    _row(
        "null_content",
        r"content.{0,80}(?:\bnull\b|\bnone\b|is required|required property|field required|valid string|must be (?:a )?string|missing)|"
        r"(?:invalid type: null|expected (?:a )?string).{0,60}|missing field `?content",
        "LM Studio, vLLM, Groq, SambaNova, text-generation-webui",
    ),
    _row(
        "thinking",
        r"\bthinking\b['\"`]? (?:blocks? |content )?(?:is |are )?(?:not (?:support|allow|permit)|unsupported)|"
        r"(?:not|n't) support (?:extended )?thinking|thinking: extra inputs",
        "proxies of Messages",
    ),
    _row(
        "opaque_state",
        r"encrypted (?:reasoning|content) (?:is |are )?(?:not (?:support|enabl|available|allow)|could not|unsupported)|"
        r"['\"`](?:body\.)?include['\"`](?:\Z|.{0,60}(?:not supported|not permitted|unsupported|unknown|unexpected|extra))|"
        r"(?:unknown|unexpected|unrecogni[sz]ed|unsupported|extra)[^.]{0,60}['\"`]include['\"`]",
        "OpenAI for models that do not reason, other servers of Responses",
    ),
    _row("cache", r"cache_control.{0,80}" + _REFUSED + r"|" + _REFUSED + r".{0,80}cache_control", "proxies of Messages"),
)  # fmt: skip

_FIELDS: Mapping[str, Ability] = {
    "stream_options": "stream_options",
    "prompt_cache_options": "prompt_cache_options",
    "extra_content": "opaque_state",
    "reasoning_details": "opaque_state",
    "reasoning_content": "opaque_state",
    "encrypted_content": "opaque_state",
    "redacted_thinking": "opaque_state",
}
"""Optional fields of requests; a refusal that names one is about the ability."""


def find_missing_ability(text: str) -> MissingAbility | None:
    """Return the ability that a refusal is about; None if the table has no row for it."""
    limit = find_output_limit(text, least=LEAST_OUTPUT)
    if limit is not None:
        return MissingAbility(ability="output_limit", number=limit)
    for field, ability in _FIELDS.items():
        if field in text:
            return MissingAbility(ability=ability)
    found = next((row for row in _ROWS if row.pattern.search(text)), None)
    return None if found is None else MissingAbility(ability=found.ability)
