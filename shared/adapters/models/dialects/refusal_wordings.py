"""Wordings of servers' refusals: full window, account, busy or loading server, rules on content.

A row has a pattern and the servers that write so. The patterns read text from outside, so each is linear: no
neighbouring repeats share characters, and gaps are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.models.dialects.error_bodies import parse_tokens

_N, _M = r"(?P<tokens>\d[\d,]{0,12})", r"(?P<maximum>\d[\d,]{0,12})"


@dataclass(frozen=True, slots=True)
class Wording:
    """Pattern of a refusal, and the servers that write so."""

    pattern: re.Pattern[str]
    servers: str
    """Names of the servers, for readers of the code; "all" if many write so."""


def _row(pattern: str, servers: str) -> Wording:
    return Wording(re.compile(pattern, re.IGNORECASE | re.DOTALL), servers)


FULL_WINDOWS: Sequence[Wording] = (
    _row(rf"prompt is too long: {_N} tokens? > {_M}", "Anthropic, also through Bedrock, Vertex and gateways"),
    _row(rf"input length and `?max_tokens`? exceed context limit: {_N} \+ [\d,]{{1,13}} > {_M}", "Anthropic"),
    _row(rf"max(?:imum)? input tokens: {_M}, request input token count: {_N}", "Bedrock"),
    _row(rf"request \({_N} tokens\) exceeds the available context size \({_M} tokens\)", "llama.cpp"),
    _row(rf"requested tokens \({_N}\) exceed context window of {_M}", "llama-cpp-python"),
    _row(rf"cannot truncate prompt with n_keep \({_N}\) >= n_ctx \({_M}\)", "LM Studio"),
    _row(rf"reached context length of {_M} tokens", "LM Studio"),
    _row(rf"keep the first {_N} tokens.{{0,80}}context length of only {_M}", "LM Studio"),
    _row(
        rf"input(?: length)? \({_N}(?: tokens)?\) (?:exceeds|is longer than) (?:the )?(?:model'?s? )?(?:maximum |max )?"
        rf"(?:allowed )?(?:context )?length \({_M}(?: tokens)?\)",
        "SGLang, Together, vLLM",
    ),
    _row(rf"maximum context length of {_M} tokens.{{0,40}}requested a total of {_N} tokens", "SGLang"),
    _row(
        rf"maximum context length is {_M} tokens.{{0,60}}"
        rf"(?:resulted in|requested|your request has)(?: about| over)? {_N} (?:input )?tokens",
        "OpenAI, Azure, vLLM, DeepSeek, OpenRouter, text-generation-webui",
    ),
    _row(rf"passed {_N} (?:input )?tokens.{{0,80}}context length is only {_M}", "vLLM"),
    _row(rf"prompt \(length {_N}\) is longer than the maximum model length of {_M}", "vLLM"),
    _row(rf"prompt \(total length {_N}\) is too long to fit into the model \(context length {_M}\)", "vLLM"),
    _row(rf"exceed the configured limit of {_M} tokens.{{0,40}}resulted in {_N} tokens", "Azure"),
    _row(rf"maximum context length (?:is|of) {_M}", "OpenAI and servers like it"),
    _row(rf"prompt token count of {_N} exceeds the limit of {_M}", "GitHub Copilot"),
    _row(rf"request body too large for .{{1,80}} max size: {_M} tokens", "GitHub Models"),
    _row(rf"maximum prompt length is {_M} but the request contains {_N} tokens", "xAI"),
    _row(rf"exceeded model token limit: {_M} \(requested: {_N}\)", "Moonshot"),
    _row(rf"prompt is too long: {_N}, model maximum context length: {_M}", "Fireworks"),
    _row(rf"prompt contains {_N} tokens.{{0,60}}too large for model with {_M} maximum context length", "Mistral"),
    _row(rf"`inputs` must have less than {_M} tokens\. given: {_N}", "Hugging Face TGI"),
    _row(rf"`inputs` tokens \+ `max_new_tokens` must be <= {_M}\. given: {_N}", "Hugging Face TGI, Together"),
    _row(rf"tokens in the prompt cannot exceed {_M} - received {_N}", "Cohere"),
    _row(r"size limit exceeded by (?:[\d,]{1,13}) tokens.{0,80}limit for this model is (?P<maximum>[\d,]{1,13})", "Cohere"),
    _row(rf"input token count \({_N}\) exceeds the maximum number of tokens allowed \({_M}\)", "Google"),
    _row(rf"input token count exceeds the maximum number of tokens allowed \(?{_M}", "Google, by gateways"),
    _row(rf"input token count is {_N} but (?:the )?model only supports up to {_M}", "Vertex"),
    _row(rf"range of input length should be \[\d{{1,6}}, ?{_M}\]", "Qwen (DashScope)"),
    _row(rf"current length is {_N} while limit is {_M}", "Cerebras"),
    _row(rf"requested input length {_N} exceeds maximum input length {_M}", "DeepInfra"),
    _row(rf"input length:? {_N} exceeds (?:the )?max(?:imum)? (?:allowed )?(?:token size|length|input length) {_M}", "NVIDIA NIM, Volcano"),
    _row(rf"prompt length \({_N}\) exceeds maximum input length \({_M}\)", "TensorRT-LLM"),
    _row(rf"(?:prompt|context) length {_N} is greater than (?:the )?max_seq_len {_M}", "TabbyAPI"),
    _row(
        rf"number of input(?: and maximum output)? tokens \(?{_N}\)? (?:cannot exceed|exceeded) .{{0,60}}(?:limit|window) ?"
        rf"(?:limit )?\(?{_M}",
        "watsonx, Cloudflare",
    ),
    _row(rf"input tokens must be no more than {_M}, got {_N}", "Yandex"),
    _row(rf"prompt token count \({_N}\) cannot exceed (?:the )?(?:limit|maximum)? ?\(?{_M}", "Databricks"),
    _row(rf"max(?:imum)? tokens of {_M} exceeded", "Snowflake"),
    _row(rf"tokens \({_N}\) exceeds? (?:the )?max(?:imum)? sequence length {_M}", "TensorRT-LLM, gateways"),
    _row(rf"(?:prompt|input|request) has {_N} tokens.{{0,40}}(?:limit|maximum)(?: of| is)? {_M}", "gateways"),
    _row(rf"max(?:imum)? sequence length exceeded: {_N} > {_M}", "gateways"),
    _row(rf"exceeds the max(?:imum)? number of tokens \({_M}\)", "gateways"),
    _row(rf"tokens? in (?:the |your )?(?:prompt|input|request|messages) \({_N}\) exceeds?.{{0,30}}?{_M}", "gateways"),
    _row(rf"context limit exceeded: {_N} > {_M}", "gateways"),
    _row(rf"max(?:imum)? number of input tokens is {_M}, (?:but )?got {_N}", "gateways"),
    _row(rf"token count exceeds the max(?:imum)?(?: supported| allowed)?: ?{_M}", "gateways"),
    _row(rf"sequence length {_N} is longer than \w{{1,40}} {_M}", "Transformers"),
    _row(r"exceed max message tokens", "Volcano"),
    _row(rf"max(?:imum)? input characters? (?:is|are) {_M}", "Baidu"),
)  # fmt: skip
"""Wordings for a full window that name the tokens of the request or of the window."""

FULL_WINDOW_WORDS = _row(
    r"prompt (?:is )?too (?:long|large)|prompt tokens? too long|prompt length exceeds|prompt exceeds max|"
    r"input (?:is )?too (?:long|large)|too many (?:input )?tokens|has too many tokens|"
    r"context_length_exceeded|exceed_context_size|context_window_exceeded|max_prompt_tokens_exceeded|"
    r"context (?:size|length|window) (?:has been |is |was )?exceeded|context ?window ?exceeded|"
    r"exceed(?:s|ed)? (?:the |this |your |our )?(?:available |model'?s? |max(?:imum)? |allowed )*+context|"
    r"context window exceeds|exceed(?:s|ed)? max context|(?:exceeds|overflows?) the context|request_too_large|"
    r"greater than the context length|reduce the (?:length of the (?:messages|prompt|input)|input token count)|"
    r"exceeds? max_model_len|max(?:imum)? sequence length|exceeds? the max(?:imum)? number of tokens|"
    r"conversation (?:is )?too long|context window is full|(?<!daily )token limit exceeded|"
    r"too many total text bytes|token length exceeds? model limit|exceed max message tokens|tokens_limit_reached|"
    r"more than (?:the )?max(?:imum)? (?:allowed tokens|tokens allowed)|"
    r"request payload size exceeds|must be at least 1, got -\d|"
    # Zhipu, Tencent
    r"prompt ?超长|输入(?:内容)?(?:过长|超长)|上下文(?:长度)?超|超过.{0,10}(?:最大)?(?:上下文|token)",
    "all",
)
"""Wordings for a full window that name no numbers."""

OUTPUT_LIMITS: Sequence[Wording] = (
    _row(rf"max(?:_completion|_output)?_tokens is too large.{{0,80}}supports at most {_M} completion", "OpenAI, Azure"),
    _row(rf"max_tokens: [\d,]{{1,13}} > {_M},? which is the maximum allowed number of output", "Anthropic"),
    _row(rf"max_(?:completion_)?tokens`? must be less than or equal to `?{_M}", "Groq"),
    _row(rf"valid range of max_tokens is \[\d{{1,3}}, ?{_M}\]", "DeepSeek"),
    _row(rf"range of max_tokens should be \[\d{{1,3}}, ?{_M}\]", "Qwen (DashScope)"),
    _row(rf"max_(?:completion_|output_)?tokens.{{0,60}}(?:at most|no more than|maximum (?:of|is)) `?{_M}", "Mistral, Cohere, Fireworks"),
    _row(rf"supported range is from \d{{1,3}} \(inclusive\) to {_M}", "Vertex"),
    _row(rf"max(?:imum)?[ _]output[ _]tokens?.{{0,40}}(?:exceeds|limit).{{0,30}}?{_M}", "watsonx, xAI"),
    _row(rf"maximum tokens you requested exceeds the model limit of {_M}", "Bedrock"),
)  # fmt: skip
"""Wordings for a too large output limit, with the largest allowed one; the window is not full."""

OUTPUT_AND_INPUT = _row(
    rf"max_(?:completion_)?tokens'? is too large.{{0,80}}maximum context length is {_M} tokens.{{0,60}}has {_N} input",
    "vLLM",
)
"""Wording for input and output limit that are too large together, with both numbers."""

SOMETHING_ELSE = _row(
    r"\bimages?\b|\bpdf\b|\bupload|\battachment|\bfile\b|\btools?\.\d|\bpixels\b|\bpages\b|"
    r"rate[ _]limit|per[ -](?:min|minute|hour|day)\b|\bTP[MD]\b|number of output tokens|please wait",
    "all",
)
"""Wordings for another limit than the window; a shorter conversation would not help."""

PACE = _row(
    r"rate[ _-]?limit|per[ _-]?(?:sec|second|min|minute|hour|day)\b|\b[TR]P[SMHD]\b|too many (?:requests|tokens, please wait)|"
    r"throttl|requests? limit|concurren(?:t|cy)|please (?:retry|try again) in|频率|并发",
    "all",
)
"""Wordings for too many requests or tokens in a period."""
OVERLOADED = _row(
    r"overloaded|(?:server|service|system|engine|model) (?:is )?(?:currently )?(?:too )?busy|at capacity|capacity exceeded|"
    r"maximum pending requests|no available (?:server|worker|instance)|high (?:demand|traffic|load)",
    "DeepSeek, Ollama, OpenAI, Groq, Google",
)
"""Wordings for a server that has too much work at this moment."""
LOADING = _row(
    r"loading model|model is (?:currently |still )?loading|currently loading|model is starting|warming up",
    "llama.cpp, Hugging Face",
)
"""Wordings for a server that is still loading the model; a later attempt may succeed."""
FAILED_CALL = _row(
    r"tool_use_failed|failed to call a function|failed to parse tool call|error parsing tool call|"
    r"failed to parse (?:input|the model'?s? output|messages: )|malformed[_ ](?:function|tool)[_ ]call|"
    r"tool call validation failed|(?:could not|unable to|cannot) parse (?:the )?(?:tool|function) call",
    "Groq, Ollama, llama.cpp, Google, vLLM",
)
"""Wordings for a tool call that the server could not parse in the model's output.

Another attempt may succeed.
"""

ACCOUNT = _row(
    r"credit balance|insufficient[_ ](?:quota|credits?|funds|(?:account )?balance)|exceeded your current quota|"
    r"exceeded_current_quota|billing|usage limits?\b|spend(?:ing)? limit|payment|out of credits|arrear|recharge|"
    r"(?:account|organization|project|subscription)\b.{0,60}\b(?:disabled|suspended|deactivated|expired|blocked)|"
    r"api[ _-]?key.{0,30}(?:not valid|invalid|expired|missing|not found|incorrect|revoked)|(?:invalid|incorrect|missing) api[ _-]?key|"
    r"api_key_invalid|unauthori[sz]ed|authentication (?:fails|failed|required)|free (?:quota|tier).{0,40}(?:exhausted|only|expired)|"
    r"location is not supported|unsupported_country|余额不足|欠费|无效的?(?:令牌|key|token)",
    "all",
)
"""Wordings for problems of key, billing and quota."""

QUOTA = _row(r"\bquota\b", "all")
"""Wording for a quota, of the account or of a period."""

UNKNOWN_MODEL = _row(
    r"\bmodel\b.{0,80}(?:does not exist|not exist|not found|is not (?:a )?(?:valid|available|served|found|loaded)|has been decommissioned|"
    r"deprecated|no longer (?:supported|available)|not_found)|model_not_found|model_decommissioned|invalid model\b|unknown model|"
    r"no models? (?:is |are )?loaded|no such model|not a valid model|please load a model|模型不存在",
    "Mistral, Groq, OpenRouter, Qwen, LM Studio, Ollama, Zhipu",
)
"""Wordings for a model that the server does not have or no longer offers."""

CONTENT = _row(
    # Anthropic, Bedrock, Azure and OpenAI, Gemini
    r"content[ _-]?(?:filter|moderation|management policy|polic(?:y|ies))|"
    r"blocked by (?:our |the |your )?(?:content|safety|(?:usage )?policy)|"
    r"(?:usage|acceptable use|safety) (?:polic(?:y|ies)|guidelines?)|safety system|responsible ai|guardrail\w{0,4} interven|"
    r"prohibited_content|blocked (?:due to|for) safety|finish_?reason: safety|"
    # OpenRouter, DeepSeek, Qwen, Moonshot, MiniMax, Zhipu, Baidu
    r"requires moderation|(?:input|prompt) was flagged|flagged (?:as|for|by)|content exists risk|data_inspection_failed|"
    r"inappropriate content|considered high risk|sensitive content|unsafe content|new_sensitive|(?:content|input|output) is not safe|"
    r"不安全|敏感内容|敏感信息|内容安全",
    "all",
)
"""Wordings for a request or answer that breaks the provider's rules on content."""


def says_full_window(text: str) -> tuple[int | None, int | None] | None:
    """Return (tokens of the request, tokens of the window) of a full-window refusal; None for another text.

    A number that the text does not name is None.
    """
    for row in FULL_WINDOWS:
        if found := row.pattern.search(text):
            numbers = found.groupdict()
            return parse_tokens(numbers.get("tokens")), parse_tokens(numbers.get("maximum"))
    return None


def find_output_limit(text: str, *, least: int) -> int | None:
    """Return the largest output limit in tokens that a refusal allows.

    Returns None if it names none or less than `least`.
    """
    if found := OUTPUT_AND_INPUT.pattern.search(text):
        tokens, maximum = parse_tokens(found["tokens"]), parse_tokens(found["maximum"])
        room = 0 if tokens is None or maximum is None else maximum - tokens
        return room if room >= least else None
    for row in OUTPUT_LIMITS:
        if found := row.pattern.search(text):
            limit = parse_tokens(found["maximum"])
            return limit if limit is not None and limit >= least else None
    return None
