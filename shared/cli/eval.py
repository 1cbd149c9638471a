"""`evertalk eval`: facts that this deployment keeps over compactions and their cost, with its own models.
Each preset and talk has a separate conversation with a copy of the agent under that preset. Its name
depends on the input, so that the same command continues a broken run.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from pathlib import Path
from typing import Any

from shared.adapters.postgres.db.migrate import migrate_or_explain
from shared.adapters.postgres.people.api_sessions import EXTERNAL
from shared.bootstrap.app import App, open_app
from shared.bootstrap.build_memory import build_past_importer
from shared.bootstrap.from_settings import build_agent_defaults
from shared.bootstrap.stored_settings import open_stored_settings
from shared.cli.command import beat
from shared.cli.servers import open_servers
from shared.config.agents import BadAgentConfig, resolve_effective_config
from shared.config.bots import DEFAULT_AGENT
from shared.config.settings import Settings
from shared.config.stored import load_with_stored
from shared.core.context.overrides import BadContextConfig, agent_policy
from shared.core.identity.operators import COMMAND_LINE
from shared.core.ops.abstention import (
    AbstentionRow,
    JudgedAnswer,
    Verdict,
    judge_by_rules,
    render_abstention,
    with_abstention,
)
from shared.core.ops.evaluation import (
    EvalAnswer,
    EvalEstimate,
    EvalFigures,
    EvalQuestion,
    EvalRow,
    EvalTalk,
    estimate_talk,
    is_literal_match,
    total_figures,
)
from shared.core.ops.evaluation_report import draw_picture, render_table
from shared.core.ops.recorded_talks import BadTalk, read_talks
from shared.core.presets.catalog import PRESETS
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.errors import BadInput, ModelError
from shared.ports import ModelCard
from shared.samples import load_year, load_year_questions
from shared.services.admin.evaluation import (
    AnswerJudge,
    Evaluation,
    EvaluationPlace,
    EvaluationStopped,
    SpendingGuard,
    import_talk,
)

PLACE = "evaluation:"
"""Beginning of the external ids of evaluated conversations, by which earlier runs are found."""
SITE = "default"
"""Site to which the conversations of evaluations belong."""
RECORDED_QUESTIONS = 20
"""Questions about each recorded conversation, unless `--questions` sets another number."""
COMPACTIONS = 3
"""Compactions of each conversation, unless `--compactions` sets another number."""
ROOMY = "spec008"
"""Preset under which system prompt and tools are counted, since they fit its window."""
RULES = "rules"
"""Name of the judge that compares words and calls no model."""
VECTORS_SECONDS = 600.0
"""Seconds to wait for the vectors of an imported conversation; after them its questions are asked without the
rest.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTerminal:
    """Output of an evaluation: results to `say`, progress to `tell`; `ask` is None without a terminal."""

    say: Callable[[str], None]
    tell: Callable[[str], None]
    ask: Callable[[str], str] | None


def read_eval_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk eval",
        description="Plant facts in a separate conversation, compact it and ask for them: "
        "shows how much each preset remembers and what it costs.",
    )
    parser.add_argument(
        "--preset",
        metavar="NAMES",
        type=_presets,
        default=(),
        help="presets, separated by commas; default: the configured one",
    )
    parser.add_argument(
        "--agent", metavar="NAME", default=DEFAULT_AGENT, help="agent whose configuration is used"
    )
    parser.add_argument(
        "--compactions", metavar="N", type=_natural, default=COMPACTIONS, help="minimum number of compactions"
    )
    parser.add_argument("--window", metavar="TOKENS", type=_natural, help="use a smaller context window")
    parser.add_argument(
        "--data",
        metavar="FILE",
        type=Path,
        help="recorded conversations as JSON of LoCoMo, LongMemEval or BEAM",
    )
    parser.add_argument(
        "--unanswerable",
        metavar="N",
        type=_natural,
        help="import the recorded conversations, and ask N questions about each that it does not answer",
    )
    parser.add_argument(
        "--talks", metavar="N", type=_natural, default=1, help="use the first N conversations of the file"
    )
    parser.add_argument(
        "--messages", metavar="N", type=_natural, help="use the first N messages of each conversation"
    )
    parser.add_argument(
        "--questions", metavar="N", type=_natural, help="ask at most N questions about each conversation"
    )
    parser.add_argument(
        "--judge",
        metavar="MODEL",
        help=f"model that judges the answers; with --unanswerable {RULES!r} judges by words, and the "
        "answering model unless set",
    )
    parser.add_argument("--cap", metavar="DOLLARS", type=_dollars, help="stop before the run costs more")
    parser.add_argument(
        "--run", metavar="NAME", default="", help="name of the run; keeps it apart from earlier runs"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the estimated price and exit")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation before spending money"
    )
    parser.add_argument("--keep", action="store_true", help="keep the conversations of the run")
    parser.add_argument(
        "--forget", action="store_true", help="erase the conversations of earlier runs and exit"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, with every answer")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="write a chart as SVG")
    wish = parser.parse_args(arguments)
    if wish.unanswerable and (wish.data is None or wish.messages or wish.picture):
        parser.error("--unanswerable needs --data, and goes neither with --messages nor with --picture")
    return wish


def _presets(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, text.replace(",", " ").split())))
    for name in names:
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, 1)
            meant = f"did you mean {near[0]}?" if near else f"choose of {', '.join(sorted(PRESETS))}"
            raise argparse.ArgumentTypeError(f"there is no preset {name}; {meant}")
    return names


def _natural(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _dollars(text: str) -> Decimal:
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(0)
    if not 0 < amount <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of dollars such as 2.50")
    return amount


def load_talks(wish: argparse.Namespace) -> tuple[EvalTalk, ...]:
    """Return the conversations to play: the built-in one, or those of the file `--data`.

    Raises BadTalk if the file cannot be used, OSError.
    """
    if wish.data is None:
        return (_year(wish.messages).limit(messages=None, questions=wish.questions),)
    try:
        data = json.loads(wish.data.read_text("utf-8"))
    except ValueError as error:
        raise BadTalk(f"{wish.data} is no JSON ({error})") from error
    if wish.unanswerable:
        recorded = read_talks(data, unanswerable=True)
        number = wish.unanswerable
        chosen = with_abstention(recorded, unanswerable=number, answerable=wish.questions or number)
        return chosen[: wish.talks]
    most = wish.questions or RECORDED_QUESTIONS
    return tuple(
        talk.limit(messages=wish.messages, questions=most) for talk in read_talks(data)[: wish.talks]
    )


def _year(most: int | None) -> EvalTalk:
    """Return the built-in conversation: its first `most` messages (None: all), and their questions."""
    said = tuple(one.person for one in load_year())[:most]
    asked = (EvalQuestion(question=question, answers=answers) for question, answers in load_year_questions())
    told = "\n".join(said)
    known = tuple(one for one in asked if is_literal_match(told, one.answers))
    return EvalTalk(name="year", messages=said, questions=known)


async def eval_with_servers(wish: argparse.Namespace, *, settings: Settings, terminal: EvalTerminal) -> int:
    """Start the embedded servers if none run, migrate, and run the evaluation with the stored settings.

    Returns the exit code of `run_eval`.
    """
    async with open_servers(settings) as (database_url, redis_url):
        await migrate_or_explain(settings.direct_url(database_url))
        async with open_stored_settings(database_url, settings) as store:
            found = await store.load()
        whole = load_with_stored(found.values, database_url=database_url, redis_url=redis_url)
        return await run_eval(wish, settings=whole, terminal=terminal)


async def run_eval(wish: argparse.Namespace, *, settings: Settings, terminal: EvalTerminal) -> int:
    """Run the evaluation and return its exit code: 0 finished, 1 stopped early or not confirmed, 2 refused.

    With `--forget` it only erases the conversations of earlier runs. Reasons are printed. Raises BadInput,
    BadTalk and OSError.
    """
    talks = load_talks(wish)
    if wish.picture is not None and not wish.picture.absolute().parent.is_dir():
        raise BadInput(
            f"{wish.picture} cannot be written",
            advice=f"There is no folder {wish.picture.absolute().parent}.",
        )
    # Caps on people are not about us: --cap and the deployment's total hold.
    ours = {
        "cap_visitor_per_day_usd": settings.cap_total_per_day_usd, "cap_person_per_day_usd": None,
        "cap_visitors_per_hour_percent": 100,
    }  # fmt: skip
    app = await open_app(settings.model_copy(update=ours), role="web")
    beating = asyncio.create_task(beat(app))
    try:
        run = (AbstentionRun if wish.unanswerable else EvalRun)(app, wish, talks, terminal)
        return await (run.forget_all() if wish.forget else run.go())
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        await app.close()


@dataclass(slots=True)
class EvalRun:
    """Run of an evaluation: plays each talk under each preset, prints the rows, and erases the
    conversations.
    """

    app: App
    wish: argparse.Namespace
    talks: tuple[EvalTalk, ...]
    terminal: EvalTerminal
    rows: list[EvalRow | AbstentionRow] = field(default_factory=list)
    agents: dict[int, str] = field(default_factory=dict)
    """Names of agents, by id of the session that this run has opened."""

    async def go(self) -> int:
        """Print the price, ask for consent and play all; return the exit code: 0, 1 if stopped or refused, 2
        if impossible.
        """
        row = await self.app.stores.agents.find(self.wish.agent)
        if row is None:
            self.terminal.tell(f"There is no agent {self.wish.agent}; ./evertalk agent list shows all.")
            return 2
        configs = {preset: self._config(row.config, preset) for preset in self._presets}
        card = await self.app.models.load_card(row.config.get("model") or self.app.models.chat)
        estimate = self._estimate(configs, card)
        self._print_price(estimate, card)
        if self.wish.dry_run:
            return 0
        if (refusal := self._refusal(card)) is not None:
            self.terminal.tell(refusal)
            return 2
        if not self._ask_consent(card):
            return 1
        return await self._play_all(configs, card)

    @property
    def _presets(self) -> tuple[str, ...]:
        return self.wish.preset or (self.app.settings.preset,)

    def _config(self, config: Mapping[str, Any], preset: str) -> dict[str, Any]:
        """Return the agent's config under `preset`, without spending caps, and with `--window` if given."""
        context = dict(config.get("context") or {})
        if self.wish.window:
            context["context_window"] = self.wish.window
        made = {**config, "preset": preset, "context": context or None, "caps": None}
        return {name: value for name, value in made.items() if value is not None}

    def _estimate(self, configs: Mapping[str, Mapping[str, Any]], card: ModelCard) -> EvalEstimate:
        """Estimate the calls and costs of all conversations under all presets. Raises BadInput."""
        estimates = []
        for preset, config in configs.items():
            try:
                budget = self._budget(config, card)
            except (BadAgentConfig, BadContextConfig, ContradictoryPolicy) as error:
                reason = f"{self.wish.agent} cannot be measured under {preset}"
                raise BadInput(reason, advice=error.advice) from error
            estimates += [
                estimate_talk(
                    talk, budget, card.prices, compactions=self.wish.compactions,
                    count=lambda words: card.token_factor * self.app.counter.count_tokens(words),
                )
                for talk in self.talks
            ]  # fmt: skip
        return sum(estimates[1:], estimates[0])

    def _budget(self, config: Mapping[str, Any], card: ModelCard) -> ContextBudget:
        """Return the budget of `config`, with system prompt and tools counted as under the preset `ROOMY`."""
        defaults = build_agent_defaults(self.app.settings)
        roomy = resolve_effective_config({**config, "preset": ROOMY, "context": None}, defaults)
        policy = agent_policy(
            defaults.policy, config, context_window=defaults.context_window, given=defaults.operator_policy
        )
        return budget_for(policy, card.window, card.max_output, roomy.budget.fixed)

    def _print_price(self, estimate: EvalEstimate, card: ModelCard) -> None:
        said = sum(len(talk.messages) for talk in self.talks)
        asked = sum(len(talk.questions) for talk in self.talks)
        what = f"{said} messages and {asked} questions under {', '.join(self._presets)}, by {card.name}"
        if card.offline:
            told = "the built-in demo answers: it costs nothing, and says nothing about a real model"
        elif estimate.likely is None or estimate.most is None:
            told = "its price is unknown, so dollars cannot be told; a models file can name it"
        else:
            likely, most = estimate.likely / 1e6, estimate.most / 1e6
            told = f"about ${likely:.2f}, or ${most:.2f} if the provider keeps no prefix"
        judge = f", and {asked * len(self._presets)} of {self.wish.judge}" if self.wish.judge else ""
        self.terminal.tell(f"{what}: about {estimate.calls} calls{judge}; {told}.")

    def _refusal(self, card: ModelCard) -> str | None:
        if card.offline:
            return None
        if card.prices is None:
            unknown = "--cap cannot hold, for the price of the model is unknown. Name it in a models file."
            return unknown if self.wish.cap else None
        return None if self.wish.cap else "Say how much it may cost: --cap DOLLARS, such as --cap 2"

    def _ask_consent(self, card: ModelCard) -> bool:
        if self.wish.yes or card.offline:
            return True
        if self.terminal.ask is None:
            self.terminal.tell("Nobody is there to be asked: give --yes to spend the money.")
            return False
        return self.terminal.ask("Go on? [y/N] ").strip().casefold() in ("y", "yes")

    async def _play_all(self, configs: Mapping[str, Mapping[str, Any]], card: ModelCard) -> int:
        guard = SpendingGuard(int(self.wish.cap * 1_000_000) if self.wish.cap else None, card.prices)
        try:
            for preset, config in configs.items():
                self.rows.append(await self._play(preset, config, guard))
        except EvaluationStopped as error:
            self._show(complete=False)
            self.terminal.tell(f"{error}\n{error.advice}")
            return 1
        self._show(complete=True)
        if self.wish.keep:
            self.terminal.tell("The conversations are kept; ./evertalk eval --forget erases them.")
        else:
            for session_id, agent in self.agents.items():
                await self._forget(session_id, agent)
        return 0

    async def _play(
        self, preset: str, config: Mapping[str, Any], guard: SpendingGuard
    ) -> EvalRow | AbstentionRow:
        answers: list[EvalAnswer] = []
        figures: list[EvalFigures] = []
        for talk in self.talks:
            place = await self._open(preset, config, talk, left_micro=guard.left_micro)
            evaluation = self._evaluation(guard, f"{preset}, {talk.name}")
            found = await evaluation.play(place, talk, compactions=self.wish.compactions)
            answers += await self._judge_answers(place, found, guard)
            figures.append(await self.app.stores.evaluations.load_figures(place.session_id))
        return EvalRow(preset=preset, answers=tuple(answers), figures=total_figures(figures))

    def _evaluation(self, guard: SpendingGuard, name: str) -> Evaluation:
        def progress(done: int, whole: int) -> None:
            if done % 10 == 0 or done == whole:
                self.terminal.tell(f"{name}: {done} of {whole}")

        return Evaluation(
            store=self.app.stores.evaluations, jobs=self.app.stores.jobs, sessions=self.app.sessions,
            run_job=self.app.job_runner.run, count=self.app.counter.count_tokens, guard=guard,
            progress=progress,
        )  # fmt: skip

    async def _judge_answers(
        self, place: EvaluationPlace, answers: Sequence[EvalAnswer], guard: SpendingGuard
    ) -> list[EvalAnswer]:
        if not self.wish.judge:
            return list(answers)
        judge = self._judge(self.wish.judge)
        found = []
        for answer in answers:
            await self._check_cap(place, guard)
            found.append(replace(answer, judged=await judge.is_right(place, answer)))
        return found

    def _judge(self, model: str) -> AnswerJudge:
        return AnswerJudge(
            model, models=self.app.models, counter=self.app.counter, ledger=self.app.stores.turns,
            caps=self.app.caps,
        )  # fmt: skip

    async def _check_cap(self, place: EvaluationPlace, guard: SpendingGuard) -> None:
        """Raise EvaluationStopped if the judge's next call might exceed the cap."""
        figures = await self.app.stores.evaluations.load_figures(place.session_id)
        guard.spent[place.session_id] = figures.micro
        guard.check(1_000)

    async def _open(
        self, preset: str, config: Mapping[str, Any], talk: EvalTalk, *, left_micro: int | None
    ) -> EvaluationPlace:
        """Find or create the conversation of `talk` under `preset`; an erased one is replaced.

        `left_micro` becomes its spending cap, in millionths of a dollar; None sets no cap. Raises BadInput.
        """
        digest = self._digest(config, talk)
        if left_micro is not None:
            config = {**config, "caps": {"session_usd": left_micro / 1e6}}
        agent = f"eval-{preset}-{digest[:8]}"
        agents = self.app.stores.agents
        if not await agents.create(agent, config, by=COMMAND_LINE):
            row = await agents.find(agent)
            if row is not None and row.config != config:
                await agents.change(agent, config, seen=row.version, by=COMMAND_LINE)
        opened = await self._reach(digest, agent)
        if await self.app.stores.evaluations.is_erased(opened.session_id):
            await self.app.stores.evaluations.leave_place(opened.session_id, agent=DEFAULT_AGENT)
            opened = await self._reach(digest, agent)
        self.agents[opened.session_id] = agent
        return opened

    async def _reach(self, digest: str, agent: str) -> EvaluationPlace:
        found = await self.app.stores.api_sessions.open(
            PLACE + digest, site=SITE, agent=agent, name=f"Evaluation {agent.removeprefix('eval-')}"
        )
        if found is None or found.address_id is None:
            raise BadInput(
                "No conversation can begin",
                advice=f"There is no site {SITE}, which the conversations would belong to.",
            )
        return EvaluationPlace(
            session_id=found.session_id, address_id=found.address_id, contact_id=found.contact_id
        )

    def _digest(self, config: Mapping[str, Any], talk: EvalTalk) -> str:
        """Return a digest of everything that changes the conversation; the spending cap does not."""
        asked = [one.question for one in talk.questions]
        told = [self.app.models.chat, config, talk.name, talk.messages, asked]
        told += [self.wish.compactions, self.wish.run]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]

    def _show(self, *, complete: bool) -> None:
        if self.wish.json:
            told = {"complete": complete, "rows": [row.as_json() for row in self.rows]}
            self.terminal.say(json.dumps(told, ensure_ascii=False))
        elif self.rows:
            kept = [row for row in self.rows if isinstance(row, EvalRow)]
            judged = [row for row in self.rows if isinstance(row, AbstentionRow)]
            self.terminal.say(render_table(kept) if kept else render_abstention(judged))
        if self.wish.picture is not None and self.rows:
            title = f"Facts kept over {self.wish.compactions} compactions, {self.app.models.chat}"
            kept = [row for row in self.rows if isinstance(row, EvalRow)]
            self.wish.picture.write_text(draw_picture(kept, title=title), "utf-8")

    async def forget_all(self) -> int:
        """Erase the conversations and agents of all earlier runs; return exit code 0."""
        places = await self.app.stores.evaluations.list_places(EXTERNAL + PLACE)
        for session_id, agent in places:
            await self._forget(session_id, agent)
        self.terminal.tell(f"Conversations erased: {len(places)}.")
        return 0

    async def _forget(self, session_id: int, agent: str) -> None:
        await self.app.erasure.erase_everything(session_id, COMMAND_LINE)
        await self.app.stores.evaluations.leave_place(session_id, agent=DEFAULT_AGENT)
        await self.app.stores.agents.delete(agent, by=COMMAND_LINE)


class NoAnsweringModel(BadInput):
    """The deployment has only the built-in demo, which cannot answer from what it recalls."""

    sentence = "No model can answer from what it recalls."
    code = "no_answering_model"


@dataclass(slots=True)
class AbstentionRun(EvalRun):
    """Run over recorded talk that is imported, with questions of which some have no answer there."""

    def _estimate(self, configs: Mapping[str, Mapping[str, Any]], card: ModelCard) -> EvalEstimate:
        """Estimate two calls for each question: the answer, and the one that uses `recall` before it."""
        asked = tuple(replace(talk, messages=(), questions=_mixed(talk)) for talk in self.talks)
        once = EvalRun(self.app, self.wish, asked, self.terminal)._estimate(configs, card)
        return once + once

    def _print_price(self, estimate: EvalEstimate, card: ModelCard) -> None:
        asked = sum(len(_mixed(talk)) for talk in self.talks)
        told = "its price is unknown, so dollars cannot be told; a models file can name it"
        if estimate.likely is not None and estimate.most is not None:
            told = f"about ${estimate.likely / 1e6:.2f}, or ${estimate.most / 1e6:.2f} without a cache"
        judge = self.wish.judge or card.name
        judged = "" if judge == RULES else f", and {asked * len(self._presets)} of {judge} as judge"
        self.terminal.tell(
            f"{asked} questions about {len(self.talks)} imported conversations under "
            f"{', '.join(self._presets)}, by {card.name}: at most about {estimate.calls} calls{judged}; "
            f"{told}."
        )

    def _refusal(self, card: ModelCard) -> str | None:
        """Return what EvalRun returns. Raises NoAnsweringModel for the built-in demo."""
        if card.offline:
            raise NoAnsweringModel(
                "The built-in demo cannot answer from what it recalls",
                advice="Set ANTHROPIC_API_KEY, or name a local model in a models file.",
            )
        return EvalRun._refusal(self, card)

    async def _play(self, preset: str, config: Mapping[str, Any], guard: SpendingGuard) -> AbstentionRow:
        judge = self.wish.judge or config.get("model") or self.app.models.chat
        answers: list[JudgedAnswer] = []
        figures: list[EvalFigures] = []
        importer = build_past_importer(self.app, self.app.erasure)
        for talk in self.talks:
            place = await self._open(preset, config, talk, left_micro=guard.left_micro)
            await self._make_searchable(await import_talk(importer, place, talk))
            evaluation = self._evaluation(guard, f"{preset}, {talk.name}")
            for asked, answer, used_recall in await evaluation.ask_about_import(place, _mixed(talk)):
                verdict = await self._verdict(judge, place, asked, answer, guard)
                answers.append(
                    JudgedAnswer(question=asked, answer=answer, verdict=verdict, used_recall=used_recall)
                )
            figures.append(await self.app.stores.evaluations.load_figures(place.session_id))
        return AbstentionRow(
            data=self.wish.data.stem, preset=preset, answers=tuple(answers), figures=total_figures(figures)
        )

    async def _verdict(
        self, judge: str, place: EvaluationPlace, asked: EvalQuestion, answer: str, guard: SpendingGuard
    ) -> Verdict:
        if judge == RULES or not answer:
            return judge_by_rules(asked, answer)
        await self._check_cap(place, guard)
        return await self._judge(judge).judge(place, asked, answer)

    async def _make_searchable(self, session_id: int) -> None:
        """Index an imported conversation, and wait at most `VECTORS_SECONDS` for its vectors."""
        await self.app.recall_indexer.index_session(session_id)
        until = time.monotonic() + VECTORS_SECONDS
        vectors = self.app.stores.passage_vectors
        while time.monotonic() < until and await self._has_encoder() and await vectors.is_listed(session_id):
            assert self.app.passage_encoder is not None
            await self.app.passage_encoder.sweep()

    async def _has_encoder(self) -> bool:
        try:
            return self.app.encoder is not None and bool((await self.app.encoder.encode(())).encoder)
        except ModelError:
            return False

    def _digest(self, config: Mapping[str, Any], talk: EvalTalk) -> str:
        """Return a digest of everything that changes the conversation, the imported lines included."""
        asked = [one.question for one in _mixed(talk)]
        told = [self.app.models.chat, config, talk.name, [line.text for line in talk.lines], asked]
        return hashlib.sha256(json.dumps([*told, self.wish.run], sort_keys=True).encode()).hexdigest()[:32]


def _mixed(talk: EvalTalk) -> tuple[EvalQuestion, ...]:
    """Return unanswerable and answerable questions in turn."""
    pairs = zip_longest(talk.unanswerable, talk.questions)
    return tuple(asked for pair in pairs for asked in pair if asked is not None)
