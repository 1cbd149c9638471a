"""Models that answer background jobs in the wrong form: without JSON, or with a tool call as text."""

from __future__ import annotations

from typing import Literal, get_args

from shared.core.verdicts.evidence import Clock, EvidenceLog

AnswerForm = Literal["json", "tools"]
"""Forms of an answer that a request can demand: JSON, or calls of tools."""
UNABLE_TIMES = 2
"""Wrong answers in a row after which a session asks the model in another form."""
UNABLE_SECONDS = 86_400.0
"""Seconds after which a form that a model failed to produce is tried again."""
_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)


class UnableModels:
    """Forms of answers that models could not write, by model and session, in the memory of this process for a
    day.

    Faults apply to other sessions once three have met them.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._log = EvidenceLog(clock=clock, kept_seconds=UNABLE_SECONDS)

    def lacks(self, model: str, form: AnswerForm, *, session: int) -> bool:
        """Return whether a session should not demand this form from the model.

        True after two wrong answers in a row in this session, or one in each of three sessions.
        """
        kind = f"{form} {model}"
        own = self._log.find_own(kind, session=session)
        return (own is not None and own.times >= UNABLE_TIMES) or self._log.find_proven(kind) is not None

    def list_missing_forms(self, model: str, *, session: int) -> frozenset[AnswerForm]:
        """Return the forms in which a session should not ask the model."""
        return frozenset(form for form in _FORMS if self.lacks(model, form, session=session))

    def learn(self, model: str, form: AnswerForm, *, able: bool, session: int) -> None:
        """Record whether an answer had the requested form.

        `able` True deletes all faults of the model in this form, also those of other sessions.
        """
        if able:
            self._log.forget(f"{form} {model}")
        else:
            self._log.record(f"{form} {model}", session=session)

    def learn_json(self, model: str, answer: str, *, session: int) -> None:
        """Record whether an answer to a request for JSON contains a brace; a blank answer is ignored."""
        if answer.strip():
            self.learn(model, "json", able="{" in answer, session=session)
