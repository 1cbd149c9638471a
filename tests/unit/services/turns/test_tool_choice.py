"""Sixty wishes of people: which tool its words point to, and whether the call that is right is taken."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shared.adapters.files.web_pages import FETCH_URL
from shared.bootstrap.from_settings import BUILT_IN_TOOLS
from shared.core.context.agents import LOOK_AT_PICTURE, without_limits
from shared.core.context.memory_tools import FORGET_MEMORY, SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY
from shared.core.context.recall_query import RECALL
from shared.core.values.messages import ToolSpec
from shared.services.tools.calculator import CALCULATE
from shared.services.tools.current_time import CURRENT_TIME
from shared.services.tools.handover import ASK_HUMAN
from shared.services.tools.reminders import REMIND_ME
from shared.services.tools.send_file import SEND_FILE
from shared.services.turns.delegate_tool import DELEGATE
from shared.services.turns.toolbox import ArgumentChecker
from tests.kit.fakes.messages_api.schema_values import filled
from tests.kit.fakes.messages_api.validate_tools import check_tools

WHOLE = (
    SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY, RECALL, CURRENT_TIME, CALCULATE, FETCH_URL,
    REMIND_ME, SEND_FILE, ASK_HUMAN, DELEGATE, LOOK_AT_PICTURE,
)  # fmt: skip
"""With the limits that calls are checked against."""
CHOSEN_BEFORE = 51
"""Of the sixty, by descriptions of twice the length."""

CASES: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("Remember that my sister Ines is allergic to walnuts.", "save_memory",
     {"text": "The person's sister Ines is allergic to walnuts.", "kind": "relation"}),
    ("Note for the future: I never fly, I take trains.", "save_memory",
     {"text": "The person never flies and takes trains.", "kind": "preference", "importance": 7}),
    ("Please keep in mind that our plans changed: we move on 3 May 2031.", "save_memory",
     {"text": "They move on 3 May 2031.", "kind": "plan", "event_date": "2031-05-03"}),
    ("My name is Tove, and I work as a bell founder.", "save_memory",
     {"text": "The person is called Tove and is a bell founder.", "kind": "profile", "subject": "Tove"}),
    ("We agreed it, so save this: rent is paid on the second of each month.", "save_memory",
     {"text": "Rent is paid on the second of each month.", "kind": "decision", "durability": "durable"}),
    ("Remember one thing about me: answer me without emojis.", "save_memory",
     {"text": "Answer the person without emojis.", "kind": "instruction"}),
    ("Which notes do you have about me?", "search_memory", {"query": ""}),
    ("Search your memory for notes about my allergies.", "search_memory", {"query": "allergies"}),
    ("List the newest notes with their dates.", "search_memory", {"query": ""}),
    ("What is in your notes about my person and my boat?", "search_memory", {"query": "boat"}),
    ("That note has changed: the dentist is called Okafor now.", "update_memory",
     {"id": "n0123abcd", "text": "The person's dentist is called Okafor."}),
    ("Replace the note about my address, I moved to Turku.", "update_memory",
     {"id": "n89abcdef", "text": "The person lives in Turku."}),
    ("Update your note: the wedding has changed to June 2032.", "update_memory",
     {"id": "n0123abcd", "text": "The wedding is in June 2032.", "event_date": "2032-06"}),
    ("The note on my shoe size is outdated; change and replace it by 43.", "update_memory",
     {"id": "n00000001", "text": "The person's shoe size is 43."}),
    ("Forget the note about my old job.", "forget_memory", {"id": "n0123abcd"}),
    ("That note is wrong, remove it.", "forget_memory", {"id": "n89abcdef"}),
    ("The note about the diet is unwanted, forget it.", "forget_memory", {"id": "n00000001"}),
    ("Forget that I like marzipan; it is wrong.", "forget_memory", {"id": "n0123abcd"}),
    ("What did I say in my earlier messages about the ferry?", "recall", {"query": "ferry"}),
    ("Look up which hotel we named earlier in this conversation.", "recall", {"query": "hotel"}),
    ("What did we talk about before 2031-04-01 in earlier messages?", "recall", {"before": "2031-04-01"}),
    ("Look up the earlier messages between message 12 and message 40.", "recall", {"seq_range": [12, 40]}),
    ("Read on in that long text: the part was cut off.", "recall",
     {"artifact": "art_0123456789ab", "offset": 9000}),
    ("In the long text that you see only in part, where does it say 'warranty'?", "recall",
     {"artifact": "art_0123456789ab", "query": "warranty"}),
    ("Do your files say anything about returns? Look it up.", "recall", {"query": "returns"}),
    ("What time is it in Nairobi?", "current_time", {"timezone": "Africa/Nairobi"}),
    ("Tell me the exact time, to the second.", "current_time", {}),
    ("Which time zone is Lima in, and what time is it there?", "current_time", {"timezone": "America/Lima"}),
    ("How late is it now in another time zone, say in Perth?", "current_time",
     {"timezone": "Australia/Perth"}),
    ("Calculate 1234.5 * 77.", "calculate", {"expression": "1234.5 * 77"}),
    ("How much is 15% of 2,349?", "calculate", {"expression": "15% * 2349"}),
    ("Calculate exactly what 48 / 7 + 3 ** 5 is.", "calculate", {"expression": "48 / 7 + 3 ** 5"}),
    ("What is the sqrt of 5,041?", "calculate", {"expression": "sqrt(5041)"}),
    ("Please round 12.3456 * 8 to two digits.", "calculate", {"expression": "round(12.3456 * 8, 2)"}),
    ("Do not do it in your head: 17 * 23 * 29.", "calculate", {"expression": "17 * 23 * 29"}),
    ("Read this web page for me: https://example.org/news", "fetch_url",
     {"url": "https://example.org/news"}),
    ("What does the page at this address say: https://example.org/a?", "fetch_url",
     {"url": "https://example.org/a"}),
    ("Open the PDF at https://example.org/report.pdf and read it.", "fetch_url",
     {"url": "https://example.org/report.pdf"}),
    ("Fetch https://example.org/prices, it is public.", "fetch_url", {"url": "https://example.org/prices"}),
    ("Have a look at the web page with this url: https://example.org/map", "fetch_url",
     {"url": "https://example.org/map"}),
    ("Remind me in 2 hours to take out the bread.", "remind_me",
     {"when": "in 2 hours", "text": "Take the bread out."}),
    ("Remind me every Monday at 9 of the weekly report.", "remind_me",
     {"repeat": "every Monday at 9", "text": "The weekly report."}),
    ("Set a reminder for my tablets, daily at eight.", "remind_me",
     {"when": "2031-05-03T08:00", "repeat": "daily", "text": "Take the tablets."}),
    ("On weekdays at 7, remind me to stretch.", "remind_me",
     {"when": "2031-05-05T07:00", "repeat": "weekdays", "text": "Stretch."}),
    ("Could you remind me later to call my aunt?", "remind_me",
     {"when": "in 3 hours", "text": "Call your aunt."}),
    ("I need a reminder once, on 4 June 2031 at noon: passport.", "remind_me",
     {"when": "2031-06-04T12:00", "text": "Passport."}),
    ("Send me that table as a .csv file.", "send_file", {"name": "table.csv", "content": "a,b\n1,2\n"}),
    ("Draw a bar chart of these numbers.", "send_file",
     {"name": "sales.png", "chart": {"kind": "bar", "labels": ["A", "B"], "series": [{"values": [1, 2]}]}}),
    ("I would like the plan as a file (.md).", "send_file", {"name": "plan.md", "content": "# Plan"}),
    ("Make a line chart with the title Rain and one series.", "send_file",
     {"name": "rain.png",
      "chart": {"kind": "line", "title": "Rain", "unit": "mm", "labels": ["May", "June"],
                "series": [{"name": "2030", "values": [3, None]}]}}),
    ("Send the person's letter as a text file, please.", "send_file",
     {"name": "letter.txt", "content": "Dear Ada"}),
    ("I want to talk to a human on your team.", "ask_human", {"reason": "They want a human."}),
    ("Can a human take over? You may not decide about refunds.", "ask_human",
     {"reason": "A refund is to be decided."}),
    ("Ask a human what the person needs; you cannot do this.", "ask_human", {"reason": "Needs a signature."}),
    ("Give this task to a helper: compare the nine manuals.", "delegate", {"task": "Compare the manuals."}),
    ("Let a helper with your tools read all of it and give back the result.", "delegate",
     {"task": "Read all of it.", "context": "Chapter one: …"}),
    ("Delegate the task, with this context, to your helper.", "delegate",
     {"task": "Sum it up.", "context": "Costs: 3, 4, 5"}),
    ("Show me the older picture of the red bicycle again.", "look_at_picture", {"picture": 12}),
    ("Look at picture 7 again: what is written on the sign?", "look_at_picture", {"picture": 7}),
    ("In the older picture, which colour is the door? You only told a description.", "look_at_picture",
     {"picture": 3}),
)  # fmt: skip


def words_of(text: str) -> set[str]:
    found = re.findall(r"[a-z]+|\*\*|[*/%]", text.casefold())
    return {re.sub(r"(?<=[a-z]{3})(?:ing|ed|es|s|e)$", "", word) for word in found}


def told_by(tool: ToolSpec) -> set[str]:
    """Every word by which a model may know the tool: names and descriptions, its fields' too."""

    def texts(schema: Mapping[str, Any]) -> list[str]:
        fields = schema.get("properties") or {}
        inner = [text for name, field in fields.items() for text in (name, *texts(field))]
        return [str(schema.get("description", "")), *inner]

    return words_of(" ".join([tool.name.replace("_", " "), tool.description, *texts(tool.input_schema)]))


def chosen(wish: str, tools: Sequence[ToolSpec]) -> str:
    """The tool that shares the rarest words with the wish."""
    told = {tool.name: told_by(tool) for tool in tools}
    known = Counter(word for words in told.values() for word in words)
    asked = words_of(wish)

    def score(name: str) -> float:
        return sum(math.log(len(tools) / known[word]) for word in asked & told[name])

    return max(sorted(told), key=score)


def test_sixty_wishes_find_their_tool_as_often_as_with_longer_words() -> None:
    assert len(CASES) == 60
    right = sum(chosen(wish, BUILT_IN_TOOLS) == name for wish, name, _ in CASES)
    assert right >= CHOSEN_BEFORE


@pytest.mark.parametrize(("name", "arguments"), [(name, given) for _, name, given in CASES])
def test_the_call_that_is_right_fits_the_whole_schema(name: str, arguments: Mapping[str, Any]) -> None:
    (tool,) = (tool for tool in WHOLE if tool.name == name)
    assert ArgumentChecker(tool).find_fault(arguments) is None


@pytest.mark.parametrize("tool", WHOLE, ids=lambda tool: tool.name)
def test_arguments_that_fit_the_shown_schema_are_taken_or_explained(tool: ToolSpec) -> None:
    shown = without_limits(tool)
    check_tools({"tools": [{"name": shown.name, "description": shown.description,
                            "input_schema": dict(shown.input_schema)}]})  # fmt: skip
    made = filled(dict(shown.input_schema), "n0123abcd")
    fault = ArgumentChecker(tool).find_fault(made)
    assert fault is None or "`" in fault
    wrong = ArgumentChecker(tool).find_fault({"nonsense": 1})
    assert wrong is not None
    assert "nonsense" in wrong


def test_the_schema_that_a_model_reads_asks_for_the_same_fields() -> None:
    for whole, shown in zip(WHOLE, map(without_limits, WHOLE), strict=True):
        assert list(shown.input_schema["properties"]) == list(whole.input_schema["properties"])
        assert shown.input_schema.get("required") == whole.input_schema.get("required")
