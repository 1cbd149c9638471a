"""Usage that is judged: what no vocabulary makes of a text is not believed, and what one may make is."""

from __future__ import annotations

import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.usage_check import (
    LARGE_SHARE,
    USUAL_SHARE,
    find_other_share,
    has_low_input,
    has_low_output,
    input_of,
    is_plain,
    raise_input,
)
from shared.core.values.messages import Message, ToolUse
from shared.ports import ModelRequest, SystemPart, Usage
from tests.kit.model_makers import SAVE, asking

COUNT = VocabularyCounter().count_tokens
ENGLISH = "The keeper of the lighthouse notes the weather at nine, and again in the evening. " * 60
CODE = "def find(rows, key):\n    return next((row for row in rows if row.key == key), None)\n\n" * 60
RUSSIAN = "Смотритель маяка записывает погоду в девять часов и ещё раз вечером. " * 60
CHINESE = "灯塔看守人在九点记录天气，晚上再记录一次。商店九点开门，星期天十点开门。" * 60
ARABIC = "يسجل حارس المنارة حالة الطقس في الساعة التاسعة ومرة أخرى في المساء. " * 60
THAI = "ผู้ดูแลประภาคารบันทึกสภาพอากาศตอนเก้าโมงเช้า " * 60
HINDI = "प्रकाशस्तंभ का रखवाला नौ बजे मौसम लिखता है और शाम को फिर से लिखता है। " * 60
TEXTS = {"English": ENGLISH, "code": CODE, "Russian": RUSSIAN, "Hindi": HINDI}
OTHERS = {"Russian": RUSSIAN, "Chinese": CHINESE, "Arabic": ARABIC, "Hindi": HINDI, "Thai": THAI}


def is_low(text: str, tokens: int, *, factor: float = 1.1, share: float = LARGE_SHARE) -> bool:
    request = asking(text)
    usage = Usage(input_tokens=tokens)
    return has_low_input(usage, request, count=COUNT, factor=factor, has_tools=True, share=share)


@pytest.mark.parametrize("share", [0.75, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("name", ["English", "code"])
def test_count_of_another_vocabulary_is_believed(name: str, share: float) -> None:
    assert not is_low(TEXTS[name], round(share * COUNT(TEXTS[name])))


@pytest.mark.parametrize("share", [0.4, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("name", ["Russian", "Hindi"])
def test_half_of_our_count_is_believed_of_a_large_vocabulary(name: str, share: float) -> None:
    assert not is_low(TEXTS[name], round(share * COUNT(TEXTS[name])))


@pytest.mark.parametrize(
    ("name", "share"),
    [("English", 0.5), ("English", 0.1), ("code", 0.5), ("code", 0.1), ("Russian", 0.1), ("Hindi", 0.1)],
)
def test_count_that_no_vocabulary_makes_is_low(name: str, share: float) -> None:
    assert is_low(TEXTS[name], round(share * COUNT(TEXTS[name])))


@pytest.mark.parametrize("name", OTHERS)
def test_half_of_our_count_is_low_for_other_scripts(name: str) -> None:
    text, ours = OTHERS[name], COUNT(OTHERS[name])
    assert is_low(text, round(0.5 * ours), share=USUAL_SHARE)
    assert is_low(text, round(0.1 * ours), share=USUAL_SHARE)
    for share in (0.75, 0.9, 1.0, 1.5):
        assert not is_low(text, round(share * ours), share=USUAL_SHARE)


@pytest.mark.parametrize("name", ["google/gemma-3-27b-it", "Qwen3-32B", "gpt-5.1", "o3-mini", "DeepSeek-V3"])
def test_large_vocabularies_are_recognised_by_name(name: str) -> None:
    assert find_other_share(name, is_known=False) == LARGE_SHARE


def test_unknown_name_has_a_usual_vocabulary() -> None:
    assert find_other_share("odd", is_known=False) == USUAL_SHARE
    assert find_other_share("odd", is_known=True) == LARGE_SHARE


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.1, 1.43])
def test_half_of_a_known_vocabulary_is_low_for_english(factor: float) -> None:
    tokens = factor * COUNT(ENGLISH)
    assert not is_low(ENGLISH, round(tokens), factor=factor)
    assert is_low(ENGLISH, round(tokens / 2), factor=factor)


def test_tools_that_were_not_sent_are_not_counted() -> None:
    request = asking("Hello", tools=(SAVE,) * 50)
    usage = Usage(input_tokens=20)
    for has_tools in (True, False):
        low = has_low_input(usage, request, count=COUNT, factor=1.1, has_tools=has_tools, share=LARGE_SHARE)
        assert low is has_tools


def test_few_tokens_are_no_evidence() -> None:
    for share in (LARGE_SHARE, USUAL_SHARE):
        low = has_low_output(Usage(output_tokens=1), "Good morning!", count=COUNT, factor=1.1, share=share)
        assert not low
    assert not is_low("Hello", 1)


def test_hidden_thoughts_may_make_an_output_large() -> None:
    assert not has_low_output(Usage(output_tokens=9_000), "Nine.", count=COUNT, factor=1.1, share=USUAL_SHARE)


def test_counting_is_left_out_where_bytes_say_enough() -> None:
    def count(text: str) -> int:
        raise AssertionError("counted without a doubt")

    usage = Usage(input_tokens=len(ENGLISH) // 4)
    assert not has_low_input(
        usage, asking(ENGLISH), count=count, factor=1.1, has_tools=True, share=LARGE_SHARE
    )


def test_raised_input_keeps_the_shares_of_the_cache() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=300, cache_write_tokens=100, output_tokens=7)
    raised = raise_input(usage, 1_000)
    assert raised == Usage(input_tokens=200, cache_read_tokens=600, cache_write_tokens=200, output_tokens=7)
    assert input_of(raised) == 1_000
    assert raise_input(usage, 400) is usage
    assert raise_input(Usage(output_tokens=7), 50) == Usage(input_tokens=50, output_tokens=7)


def test_plain_request_is_nearly_all_ascii() -> None:
    def request(text: str) -> ModelRequest:
        call = Message(role="assistant", blocks=(ToolUse(id="c1", name="save_memory", input={}),))
        return asking(text, call, system=(SystemPart(text="Be brief."),))

    assert is_plain(request(ENGLISH))
    assert not is_plain(request(RUSSIAN))
