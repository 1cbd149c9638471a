"""Tool `delegate`: gives a task to a helper that has a separate context window and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from shared.core.context.prompts import helper_task
from shared.core.context.untrusted_text import defuse
from shared.core.session.turns import Caps
from shared.core.values.errors import CapReached, ModelError
from shared.core.values.messages import (
    text_message,
)
from shared.ports import (
    ChatModel,
    TokenCounter,
    ToolContext,
    ToolFailed,
    ToolSpec,
)
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.subagent import (
    RESULT_CHARS,
    Subagent,
    SubagentLedger,
    SubagentLimits,
    shorten_middle,
)
from shared.services.turns.toolbox import Toolbox

log = structlog.get_logger(__name__)

TASK_CHARS = 8_000
"""Most characters of a helper's task."""
CONTEXT_CHARS = 60_000
"""Most characters of the text that comes with a task."""
TOOLS_WITHHELD = frozenset(
    {
        "delegate", "save_memory", "update_memory", "forget_memory", "remind_me", "ask_human", "send_file",
        "make_picture",
    }
)  # fmt: skip
"""Names of tools that a helper does not get, since they reach the person, the person's notes or another
helper. A file of a helper would be stored, and perhaps paid for, but would not reach the person.
"""

DELEGATE = ToolSpec(
    name="delegate",
    description=(
        "Hand a task that reads much to a helper with your tools. It sees only `task` and `context`, and "
        "only its result comes back."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "task": {"type": "string", "maxLength": TASK_CHARS},
            "context": {"type": "string", "maxLength": CONTEXT_CHARS},
        },
        "required": ["task"],
        "additionalProperties": False,
    },
)
"""Description of the tool `delegate` for the model."""

ToolboxFactory = Callable[[Mapping[str, Any]], Toolbox]
"""Function that returns the toolbox for an agent's configuration. It should have no store of attachments,
since a helper passes neither pictures nor files on.
"""


class DelegateTool:
    """Tool `delegate`, which runs a helper with its own window on one task and returns only the helper's
    result.

    After a crash the call is not repeated, since the helper's tools may have had effects.
    """

    spec: ToolSpec = DELEGATE
    idempotent = False

    def __init__(
        self,
        *,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox_of: ToolboxFactory,
        spend: SpendStore,
        ledger: SubagentLedger,
        caps: Caps,
        counter: TokenCounter,
        bounds: SubagentLimits | None = None,
    ) -> None:
        self._model = model
        self._requests = requests
        self._toolbox_of = toolbox_of
        self._spend = spend
        self._ledger = ledger
        self._caps = caps
        self._counter = counter
        self._bounds = bounds or SubagentLimits()

    @property
    def timeout_seconds(self) -> float:
        """Seconds for a call: the helper's limit plus 10, in which the tool reports that the helper ran out
        of time.
        """
        return self._bounds.seconds + 10.0

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        """Run a helper for `task`, with `context` as its only other text, and return its result.

        A result above 60,000 characters is shortened in the middle. The cost of the helper's calls is stored
        for the session. Raises ToolFailed if an argument is empty or too long, or, with the helper's last
        text, if time, money or the model ends it.
        """
        task, handed = _parse_arguments(arguments)
        subagent = await self._build_subagent(helper_task(task, defuse(handed)), context)
        try:
            async with asyncio.timeout(self._bounds.seconds):
                return shorten_middle(await subagent.run(), RESULT_CHARS)
        except TimeoutError:
            raise ToolFailed(
                subagent.describe_partial_result(f"It took longer than {self._bounds.seconds:g} seconds.")
            ) from None
        except CapReached as error:
            raise ToolFailed(
                subagent.describe_partial_result("A spending limit is reached. Do not delegate again.")
            ) from error
        except ModelError as error:
            raise ToolFailed(
                subagent.describe_partial_result(f"Its model could not answer ({error.code}).")
            ) from error
        finally:
            log.info(
                "subagent_finished",
                session_id=context.session_id,
                turn=context.turn,
                **subagent.usage_stats(),
            )

    async def _build_subagent(self, task: str, context: ToolContext) -> Subagent:
        config = context.agent_config
        name = str(config.get("helper_model") or self._requests.resolve_model(config))
        card = await self._model.load_card(name)
        tools = self._toolbox_of(config)
        tools = tools.restrict_to(frozenset(spec.name for spec in tools.specs) - TOOLS_WITHHELD)
        return Subagent(
            model=self._model,
            card=card,
            others=list(self._requests.fallbacks(name)),
            tools=tools,
            specs=tools.specs,
            tracker=SpendTracker(self._spend, session_id=context.session_id, job_id=None, caps=self._caps),
            ledger=self._ledger,
            counter=self._counter,
            bounds=self._bounds,
            most_micro=_limit_spending(
                self._caps, config, anonymous=context.anonymous, share=self._bounds.caps_share
            ),
            context=context,
            messages=[text_message("user", task)],
            ratio=card.token_factor,
        )


def _parse_arguments(arguments: Mapping[str, Any]) -> tuple[str, str]:
    task, handed = str(arguments.get("task") or "").strip(), str(arguments.get("context") or "").strip()
    if not task:
        raise ToolFailed("`task` is empty: say what to do, and all that must be known for it.")
    for name, text, most in (("task", task, TASK_CHARS), ("context", handed, CONTEXT_CHARS)):
        if len(text) > most:
            raise ToolFailed(f"`{name}` has {len(text):,} characters; {most:,} is the most.")
    return task, handed


def _limit_spending(caps: Caps, config: Mapping[str, Any], *, anonymous: bool, share: float) -> int | None:
    own = config.get("caps")
    said = own.values() if isinstance(own, Mapping) else ()
    agents = (
        int(dollars * 1_000_000) for dollars in said if isinstance(dollars, int | float) and dollars >= 0
    )
    known = (caps.total, caps.session, caps.visitor if anonymous else caps.person, *agents)
    tightest = min((cap for cap in known if cap is not None), default=None)
    return None if tightest is None else int(tightest * share)
