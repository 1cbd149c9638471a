"""Compares JSON answers of the REST interface with their schemas in the OpenAPI description.

An undeclared field is as wrong as a missing one, because clients are generated from the description.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from jsonschema import Draft202012Validator, ValidationError

from web.dashboard import access
from web.rest import calls
from web.rest.openapi import document
from web.rest.operation import JSON, Operation
from web.routes import OPERATIONS


class AnswerShapes:
    """Comparison of answers with their schemas, in which objects may have only declared fields."""

    def __init__(self) -> None:
        self.described = _close(document(OPERATIONS))

    @functools.cache  # noqa: B019 - one object lives as long as the process
    def _validator(self, path: str, method: str, status: int) -> Draft202012Validator | None:
        described = self.described["paths"].get(path, {}).get(method, {}).get("responses", {})
        schema = described.get(str(status), {}).get("content", {}).get(JSON, {}).get("schema")
        if schema is None:
            return None
        return Draft202012Validator({**schema, "components": self.described["components"]})

    def list_differences(self, operation: Operation, status: int, answer: Any) -> list[str]:
        """Return the differences, each with its place; empty for operations without a JSON answer."""
        validator = self._validator(operation.path, operation.method.lower(), status)
        if validator is None:
            return []
        wrong = [one for error in validator.iter_errors(answer) for one in _leaves(error)]
        return [f"{operation.name} {status} {_place(one)}: {one.message[-200:]}" for one in wrong]


@functools.cache
def load_answer_shapes() -> AnswerShapes:
    return AnswerShapes()


@contextmanager
def checked_answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect each difference between an answer of this process and its schema, as a list of texts."""
    found: list[str] = []

    def check(operation: Operation, response: web.StreamResponse | None) -> None:
        plain = isinstance(response, web.Response) and response.content_type == JSON
        if plain and response is not None and response.status < 300 and operation.group:
            answer = json.loads(response.text or "null")  # type: ignore[attr-defined]
            found.extend(load_answer_shapes().list_differences(operation, response.status, answer))

    monkeypatch.setattr(access, "_dispatch", _watch(access._dispatch, check))
    monkeypatch.setattr(calls, "_run_operation", _watch(calls._run_operation, check))
    yield found


def _watch(
    run: Callable[..., Awaitable[web.StreamResponse | None]],
    check: Callable[[Operation, web.StreamResponse | None], None],
) -> Callable[..., Awaitable[web.StreamResponse | None]]:
    async def run_and_check(operation: Operation, *given: Any) -> web.StreamResponse | None:
        response = await run(operation, *given)
        check(operation, response)
        return response

    return run_and_check


def list_open_objects(described: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the places of objects without declared fields in 2xx answers, by operation.

    A schema that describes in words what such an object contains counts as declared.
    """
    schemas = described["components"]["schemas"]
    found: dict[str, list[str]] = {}
    for one in (one for methods in described["paths"].values() for one in methods.values()):
        for status, answer in one["responses"].items():
            schema = answer.get("content", {}).get(JSON, {}).get("schema")
            if status.startswith("2") and schema is not None:
                places = [*_open(schema, schemas, ())]
                if places:
                    found.setdefault(one["operationId"], []).extend(places)
    return found


def _open(schema: Any, schemas: Mapping[str, Any], inside: tuple[str, ...]) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in inside:
            yield from _open(schemas[name], schemas, (*inside, name))
        return
    others = schema.get("additionalProperties")
    bare = not (
        schema.get("properties") or "description" in schema or (isinstance(others, Mapping) and others)
    )
    if schema.get("type") == "object" and bare:
        yield "/".join(inside)
    for child in (
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", ()),
        *schema.get("prefixItems", ()),
    ):
        yield from (
            _open(child, schemas, inside) if not ("description" in schema and "anyOf" in schema) else ()
        )
    for child in (schema.get("items"), others):
        if isinstance(child, Mapping):
            yield from _open(child, schemas, inside)


def _close(schema: Any) -> Any:
    """Return a schema that forbids undeclared fields, except where the original explicitly allows them."""
    if isinstance(schema, list):
        return [_close(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _close(value) for name, value in schema.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """Yield the errors of a value against the alternative of a schema that it fits best.

    Without this, the only error would be that the value fits no alternative.
    """
    if not error.context:
        yield error
        return
    by_choice: dict[Any, list[ValidationError]] = {}
    for one in error.context:
        by_choice.setdefault(one.schema_path[0], []).append(one)
    for one in min(by_choice.values(), key=lambda errors: (len(errors), -_depth(errors))):
        yield from _leaves(one)


def _depth(errors: list[ValidationError]) -> int:
    return max(len(one.absolute_path) for one in errors)


def _place(error: ValidationError) -> str:
    return ".".join("[]" if isinstance(one, int) else str(one) for one in error.absolute_path) or "whole"
