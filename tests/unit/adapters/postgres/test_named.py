"""Parameters by name: each is numbered once, and what only looks like one is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from shared.adapters.postgres.db.pool import Named


def test_a_name_has_one_number_wherever_it_stands() -> None:
    statement = Named("SELECT :b::text, :a FROM x WHERE b = :b AND c = ANY (:a::bigint[])")
    assert statement(a=[1], b="two") == (
        "SELECT $1::text, $2 FROM x WHERE b = $1 AND c = ANY ($2::bigint[])", "two", [1],
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '{}'::jsonb, 'web:%', 'it''s :not'",
        "SELECT to_char(now(), 'HH24:MI')",
        "SELECT a[1:2] -- not :this",
        "SELECT a[1:n] FROM x -- 'not :this",
        "SELECT /* it's not :this */ 1",
        r"SELECT E'it\'s not :this', E'\\'",
        'SELECT ":this" FROM x',
        "CREATE FUNCTION f() RETURNS int AS $f$ SELECT ':x' || :y $f$",
        "SELECT f(most := 1, least => 2)",
        "SELECT payload ? 'a', payload ?| array['b'], x @> '{\"a\": 1}' FROM x",
    ],
)
def test_casts_quoted_words_slices_and_comments_have_no_parameters(text: str) -> None:
    assert Named(text)() == (text,)


def test_a_slice_ends_at_a_name() -> None:
    assert Named("SELECT cids[1 : :most]")(most=8) == ("SELECT cids[1 : $1]", 8)


@pytest.mark.parametrize("given", [{}, {"a": 1, "b": 2}, {"b": 1}])
def test_a_missing_or_an_unknown_name_is_an_error(given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="wanted: \\['a'\\]"):
        Named("SELECT :a")(**given)


def test_a_parameter_follows_any_operator() -> None:
    statement = Named("SELECT :a::jsonb ? :b, f(x := :c), x[:d], x ->> :b, :a::text[], -:d FROM x WHERE y=:c")
    assert (
        statement.sql
        == "SELECT $1::jsonb ? $2, f(x := $3), x[$4], x ->> $2, $1::text[], -$4 FROM x WHERE y=$3"
    )
    assert statement(d=4, c=3, b=2, a=1)[1:] == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "text", ["SELECT $1", "SELECT :a, $2", "SELECT 'open", 'SELECT "open', "SELECT e'\\'"]
)
def test_a_number_or_an_open_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=" at: "):
        Named(text)


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (21, "21"),
        (-1, "(-1)"),
        (0.5, "0.5"),
        (True, "true"),
        ("it's", "'it''s'"),
        (("a", "b"), "ARRAY['a', 'b']::text[]"),
    ],
)
def test_constant_is_a_literal_of_the_statement(value: Any, literal: str) -> None:
    statement = Named("SELECT :most, :site WHERE x = :most", most=value)

    assert statement(site="s") == (f"SELECT {literal}, $1 WHERE x = {literal}", "s")


def test_constant_without_a_place_is_refused() -> None:
    with pytest.raises(TypeError, match="most"):
        Named("SELECT 1", most=2)
