"""What no sentence of a summary may be: unsaid, secret, an order to a model, a refusal, a template."""

from __future__ import annotations

import re
from functools import lru_cache

from shared.core.compaction.grounding import Ground, script_of
from shared.core.compaction.summary_prompts import is_own_sentence, own_sentences
from shared.core.compaction.transcript_lines import source_words
from shared.core.context.prompts import OUR_TAGS
from shared.core.context.untrusted_text import defused
from shared.core.session.summary_rules import says_nothing
from shared.core.values.language import language_of
from shared.core.values.secrets_filter import holds_secret

SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_REFUSAL = re.compile(
    r"\W*(?:I(?:'m| am) (?:sorry|unable|not able)|sorry\b|I (?:cannot|can['’]t|won['’]t|must decline)"
    r" (?:help|assist|do|comply|summari[sz]e|provide|create|write)"
    r"|as an AI|there is no conversation|no conversation (?:was )?(?:provided|given)"
    r"|ich kann (?:dabei|das|diese|dieses) nicht|es tut mir leid|je suis désolé|lo siento)\b",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"what (?:this|the(?: whole)?) conversation is about (?:and (?:where|how) it stands|in at most)"
    r"|^\W*one sentence\W*$"
    r"|^the new text of item f3\b"
    r"|\[(?:insert|your|add) [^\]]*\]|lorem ipsum",
    re.IGNORECASE,
)
_INJECTION = re.compile(
    rf"</?\s*(?:{'|'.join(OUR_TAGS)}|system|human|assistant|user|tool_(?:use|result)|function_calls?)\b"
    r"|<\|[a-z_]+\|>|\[/?INST\]|<</?SYS>>"
    r"|^\s*(?:system|human|assistant)\s*[:：]"
    r"|\[\s*system\b|\[\s*message (?:of|from) the (?:program|system)\b"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|all|earlier)\b.{0,30}"
    r"\b(?:instructions?|rules?|prompts?)\b"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:instructions|rules|prompt)\b.{0,12}\b(?:above|before)\b"
    r"|\b(?:reveal|print|repeat|output)\b.{0,20}\bsystem prompt\b"
    r"|\bnew (?:system )?instructions?\s*:"
    r"|\byou (?:are|must act as) now (?:in )?(?:DAN|developer mode|unrestricted|jailbroken)\b"
    r"|\byou are no longer (?:bound|restricted|an? (?:assistant|AI))\b"
    r"|\b(?:the )?assistant (?:must|shall|has to) (?:always |now )?(?:obey|send|reveal|forward|transfer)\b"
    r"|\b(?:ignorier|vergiss|missacht)\w*\b.{0,30}\b(?:anweisung|regel|vorgabe)\w*"
    r"|\b(?:ignore[zr]?|oublie[zr]?)\b.{0,30}\b(?:instructions|consignes|règles)\b"
    r"|\b(?:ignor[ae]|olvid[ae])\b.{0,30}\b(?:instrucciones|reglas)\b"
    r"|\b(?:ignora|dimentica)\b.{0,30}\b(?:istruzioni|regole)\b"
    r"|\b(?:ignore|esqueça)\b.{0,30}\b(?:instruções|regras)\b"
    r"|(?:игнорируй|забудь|не обращай внимания на).{0,30}(?:инструкци|указани|правил)"
    r"|(?:忽略|无视|忘记).{0,12}(?:指令|指示|规则|提示)|(?:以前|上記|これまで).{0,8}(?:指示|命令).{0,6}無視",
    re.IGNORECASE | re.MULTILINE,
)
_CLEAR_LANGUAGE = 12
"""So many small words of one language and hardly any of another show what a conversation is held in."""


def text_fault(text: str, ground: Ground) -> str | None:
    if holds_secret(text):
        return "holds a secret"
    if holds_injection(text):
        return "holds marks or orders for a model"
    if is_template(text):
        return "repeats what it was asked"
    missing = ground.missing(text)
    return f"{missing[0]!r} was never said" if missing else None


def holds_injection(text: str) -> bool:
    """Orders to a model, and what `core/fencing.py` would not let pass as it stands."""
    return _INJECTION.search(text) is not None or defused(text) != text


def is_refusal(text: str) -> bool:
    return _REFUSAL.match(text.strip()) is not None


def is_empty(text: str) -> bool:
    return says_nothing(text)


def is_template(text: str) -> bool:
    return _TEMPLATE.search(text) is not None or is_own_sentence(text, _own())


def may_be_quoted(text: str) -> bool:
    return not holds_secret(text) and not holds_injection(text)


def language_fault(summary: str, source_text: str) -> str | None:
    """Where both are clear: first the letters, then the small words."""
    source_script, summary_script = script_of(source_text), script_of(summary)
    if source_script and summary_script and source_script != summary_script:
        return f"the summary is written in {summary_script} letters, the conversation in {source_script}"
    said = language_of(source_words(source_text), least=_CLEAR_LANGUAGE)
    told = language_of(summary)
    if said and told and said != told:
        return f"the summary is written in {told}, the conversation in {said}"
    return None


@lru_cache(maxsize=1)
def _own() -> frozenset[str]:
    return own_sentences()
