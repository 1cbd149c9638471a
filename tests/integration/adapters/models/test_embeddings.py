"""A server of embeddings says what texts mean, against a strict one in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.adapters.meaning.everyday import SENTENCES
from shared.adapters.models.embeddings import MOST_TEXTS, HttpEncoder
from shared.core.memory.vectors import nearness
from shared.core.values.errors import EncoderEnded, ModelUnavailable
from shared.core.verdicts.breaker import FEWEST_CALLS
from shared.services.turns.retrieval import encode_question
from tests.integration.adapters.models.ranked_items import PATIENCE
from tests.kit.fakes.embeddings.harness import RunningEmbeddings
from tests.kit.fakes.embeddings.server import DIMENSIONS, HANGS, MODEL, REFUSED
from tests.kit.fakes.scripted_api import KEY

QUESTION = "Wo ist mein Fahrrad?"
PASSAGES = ("My bicycle is in the cellar.", "The piano has the number PX-4471.", "It rains.")


@pytest.fixture
async def embeddings() -> AsyncIterator[RunningEmbeddings]:
    async with RunningEmbeddings() as running:
        yield running


def new_encoder(server: RunningEmbeddings, **chosen: Any) -> HttpEncoder:
    patient = {"seconds": PATIENCE, "passages_seconds": PATIENCE}
    return HttpEncoder(**{"url": server.url, "key": KEY, "model": MODEL, **patient, **chosen})


@pytest.fixture
async def encoder(embeddings: RunningEmbeddings) -> AsyncIterator[HttpEncoder]:
    """It knows the middle of the model, as after its first request."""
    made = new_encoder(embeddings)
    await made.encode(())
    await embeddings.requests()
    yield made
    await made.close()


def body(*vectors: Any) -> dict[str, Any]:
    """Build an answer with these vectors, as JSON of Python, which knows NaN."""
    rows = [{"index": at, "embedding": of} for at, of in enumerate(vectors)]
    return {"body": json.dumps({"model": MODEL, "data": rows})}


async def test_question_in_another_language_is_nearest_to_its_passage(encoder: HttpEncoder) -> None:
    passages = await encoder.encode(PASSAGES)
    question = await encoder.encode((QUESTION,), question=True)
    near = [nearness(question.vectors[0], vector) for vector in passages.vectors]
    assert max(near) == near[0] > 0.1
    assert passages.encoder == question.encoder
    assert passages.encoder.startswith(f"{MODEL}/{DIMENSIONS}/")
    assert {len(vector) for vector in passages.vectors} == {DIMENSIONS}


async def test_processes_name_a_model_alike(embeddings: RunningEmbeddings, encoder: HttpEncoder) -> None:
    other = new_encoder(embeddings)
    assert await other.encode(PASSAGES) == await encoder.encode(PASSAGES)
    await other.close()


async def test_requests_hold_few_texts_without_secrets(
    embeddings: RunningEmbeddings, encoder: HttpEncoder
) -> None:
    key = "sk-ant-api03-" + "Ab3" * 20
    texts = [f"Line {number} has {key}." for number in range(MOST_TEXTS + 3)]
    encoded = await encoder.encode([*texts, "  "])
    assert len(encoded.vectors) == len(texts) + 1
    asked = await embeddings.requests()
    assert [len(one["input"]) for one in asked] == [MOST_TEXTS, 4]
    assert key not in str(asked)


async def test_rows_in_another_order_belong_to_their_texts(
    embeddings: RunningEmbeddings, encoder: HttpEncoder
) -> None:
    known = await encoder.encode(PASSAGES)
    await embeddings.next({"backwards": True})
    assert await encoder.encode(PASSAGES) == known


GOOD = [1.0] * DIMENSIONS


@pytest.mark.parametrize(
    "action",
    [
        {"status": 500},
        {"status": 302},
        {"without_last": True},
        {"cut": True},
        {"body": "no JSON"},
        {"body": "[]"},
        {"body": '{"data": [{"index": true, "embedding": [1]}]}'},
        {"body": "[" * 100_000},
        body(GOOD, GOOD, GOOD, GOOD),
        body(GOOD, GOOD, [*GOOD[1:], float("nan")]),
        body(GOOD, GOOD, [*GOOD[1:], float("inf")]),
        body(GOOD, GOOD, [0.0] * DIMENSIONS),
        body(GOOD, GOOD, []),
        body(GOOD, GOOD, GOOD[1:]),
        body(GOOD[:63], GOOD[:63], GOOD[:63]),
        body(GOOD, GOOD, [*GOOD[1:], None]),
        body(GOOD, GOOD, "AACAPwAAAAA="),
        body(GOOD, GOOD, [*GOOD[1:], 10**400]),
        body(GOOD, GOOD, [1.0] * 5_000),
    ],
)
async def test_answer_without_a_vector_for_each_text_is_refused(
    action: dict[str, Any], embeddings: RunningEmbeddings, encoder: HttpEncoder
) -> None:
    known = await encoder.encode(PASSAGES)
    await embeddings.next(action)
    with pytest.raises(ModelUnavailable):
        await encoder.encode(PASSAGES, question=True)
    assert await encoder.encode(PASSAGES) == known


@pytest.mark.parametrize(
    "change", [{"dimensions": 96}, {"name": "text-embedding-3-large"}, {"salt": "retrained"}]
)
async def test_changed_model_gets_another_name(
    change: dict[str, Any], embeddings: RunningEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = new_encoder(embeddings)
    former = (await encoder.encode(PASSAGES)).encoder
    await embeddings.change_model(**change)
    if "salt" in change:
        # Neither the name nor the length tells: the next look at the middle does.
        monkeypatch.setattr("shared.adapters.models.embeddings.MIDDLE_SECONDS", 0.0)
    else:
        with pytest.raises(ModelUnavailable, match="another model"):
            await encoder.encode(PASSAGES)
    changed = await encoder.encode(PASSAGES)
    assert changed.encoder != former
    assert {len(vector) for vector in changed.vectors} == {change.get("dimensions", DIMENSIONS)}
    await encoder.close()


async def test_question_keeps_the_former_middle_while_it_is_asked_for_again(
    embeddings: RunningEmbeddings, encoder: HttpEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.adapters.models.embeddings.MIDDLE_SECONDS", 0.0)
    encoded = await encoder.encode((QUESTION,), question=True)
    assert len(encoded.vectors) == 1


@pytest.mark.parametrize("word", [REFUSED, HANGS])
async def test_text_the_server_refuses_leaves_it_in_use(word: str, embeddings: RunningEmbeddings) -> None:
    encoder = new_encoder(embeddings, passages_seconds=2.0 if word == HANGS else PATIENCE)
    await encoder.encode(())
    for _ in range(FEWEST_CALLS + 1):
        with pytest.raises(EncoderEnded):
            await encoder.encode((f"This is a {word}.",))
        if word == HANGS:
            break
    assert len((await encoder.encode(PASSAGES)).vectors) == len(PASSAGES)
    await encoder.close()


async def test_slow_server_costs_a_question_its_timeout_and_is_reported_once(
    embeddings: RunningEmbeddings,
) -> None:
    encoder = new_encoder(embeddings, seconds=0.3)
    await encoder.encode(())
    with capture_logs() as logs:
        for _ in range(3):
            await embeddings.next({"latency": 60})
            async with asyncio.timeout(PATIENCE):
                assert await encode_question(encoder, QUESTION) == ("", b"")
        await embeddings.next()
        assert (await encoder.encode(PASSAGES)).vectors
    await encoder.close()
    events = [(one["event"], one["endpoint"]) for one in logs]
    assert events == [("embeddings_fail", "/embeddings"), ("embeddings_work_again", "/embeddings")]


async def test_first_question_does_not_wait_for_the_middle(embeddings: RunningEmbeddings) -> None:
    encoder = new_encoder(embeddings, seconds=0.05)
    await embeddings.next({"latency": 0.5})
    with pytest.raises(ModelUnavailable):
        await encoder.encode((QUESTION,), question=True)
    assert (await encoder.encode(PASSAGES)).vectors
    asked = [text for one in await embeddings.requests() for text in one["input"]]
    assert asked == [*SENTENCES, *PASSAGES]
    await encoder.close()


async def test_closing_does_not_wait_for_the_middle(embeddings: RunningEmbeddings) -> None:
    encoder = new_encoder(embeddings, seconds=0.05)
    await embeddings.next({"latency": 60})
    with pytest.raises(ModelUnavailable):
        await encoder.encode((QUESTION,), question=True)
    async with asyncio.timeout(PATIENCE):
        await encoder.close()


async def test_server_that_keeps_failing_is_left_alone(
    embeddings: RunningEmbeddings, encoder: HttpEncoder
) -> None:
    await embeddings.next(*({"status": 503} for _ in range(40)))
    for _ in range(2 * FEWEST_CALLS):
        with pytest.raises(ModelUnavailable):
            await encoder.encode(PASSAGES, question=True)
    assert len(await embeddings.requests()) <= FEWEST_CALLS + 1
    await embeddings.next()
    # Questions that fail do not hold up the passages.
    assert (await encoder.encode(PASSAGES)).vectors


@pytest.mark.parametrize("chosen", [{"url": "http://127.0.0.1:9", "key": ""}, {"key": "another"}])
async def test_unreachable_server_and_refused_key_have_no_vectors(
    chosen: dict[str, str], embeddings: RunningEmbeddings
) -> None:
    encoder = new_encoder(embeddings, **chosen)
    with pytest.raises(ModelUnavailable):
        await encoder.encode(PASSAGES)
    assert await encode_question(encoder, QUESTION) == ("", b"")
    assert await embeddings.requests() == []
    await encoder.close()
