"""What must be kept letter by letter, and what only looks like it."""

from __future__ import annotations

from shared.core.values.identifiers import identifiers_of


def test_titles_labels_and_code_are_no_names() -> None:
    """An assistant's long answers are full of capitals that nobody asks for later."""
    text = (
        "### Error Handling\nUse Sentry for errors; their handling is in `app.py`.\n"
        "- **Key Improvements**: Retry on failures. We Retry twice, and do retry.\n"
        "**Next Steps**\n1. Ask Anna Meier about Status Codes; the status and its codes matter.\n"
        "```js\n// Example Usage\nconst Widget = make(Thing);\n```\nThen call Bruno."
    )
    assert identifiers_of(text) == ("Sentry", "app.py", "Anna Meier", "Bruno")


def test_addresses_in_code_are_kept_without_its_marks() -> None:
    text = "```py\nget('https://example.com/a?b=1')\n```\nSee `http://localhost:5000/error`."
    assert identifiers_of(text) == ("https://example.com/a?b=1", "http://localhost:5000/error")
