"""Tool `calculate`: exact decimal arithmetic with some functions, all with limits."""

from __future__ import annotations

import ast
import decimal
import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from shared.ports import ToolContext, ToolFailed, ToolSpec

EXPRESSION_CHARS = 500
"""Most characters of an expression."""
DIGITS = 60
"""Digits of the working precision; a result that needs more is rounded and marked with ≈."""
SHOWN_DIGITS = 15
"""Digits shown of a rounded result."""
MOST_EXPONENT = 10_000
"""Largest exponent of a power, and of ten in a result."""
_PERCENT = re.compile(r"(?<=[\d.)])\s*%(?!\s*[\w(.])")
_OF = re.compile(r"(?<=[\d.)])\s*%\s+of\b", re.IGNORECASE)

CALCULATE = ToolSpec(
    name="calculate",
    description=(
        "Calculate exactly, not in your head: + - * / // % **, sqrt, log, sin, round and the like; "
        "15% is 0.15."
    ),
    input_schema={
        "type": "object",
        "properties": {"expression": {"type": "string", "minLength": 1, "maxLength": EXPRESSION_CHARS}},
        "required": ["expression"],
        "additionalProperties": False,
    },
)
"""Description of the tool `calculate` for the model."""


class CalculatorTool:
    """Tool `calculate`, which returns the expression with its result as text."""

    spec = CALCULATE
    idempotent = True
    timeout_seconds = 5.0
    output_chars = 1_000

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        return calculate(str(arguments["expression"]))


def calculate(expression: str) -> str:
    """Return an expression with its exact result, such as `2*3 = 6`, or a rounded one, such as `1/3 ≈
    0.333333333333333`.

    Raises ToolFailed with the reason for the model, for anything but numbers, operators and known functions.
    """
    from simpleeval import InvalidExpression

    source = _as_python(expression)
    with decimal.localcontext(_exact_context()) as precise:
        try:
            result = _evaluator(source).eval(source)
            rounded = precise.flags[decimal.Inexact]
            return f"{expression.strip()} {_result_text(_decimal(result), rounded=rounded)}"
        except ToolFailed:
            raise
        except ZeroDivisionError as error:
            raise ToolFailed("That divides by zero.") from error
        except (decimal.Overflow, OverflowError) as error:
            raise ToolFailed(f"The result is too large: more than {MOST_EXPONENT:,} digits.") from error
        except (decimal.DecimalException, ValueError) as error:
            raise ToolFailed("That has no real number as its result.") from error
        except (SyntaxError, InvalidExpression, RecursionError, MemoryError) as error:
            raise ToolFailed(_explain_error(error)) from error
        except (TypeError, AttributeError, KeyError) as error:
            raise ToolFailed(f"That cannot be calculated: {str(error)[:120]}") from error


def _as_python(expression: str) -> str:
    plain = " ".join(expression.split()).replace("×", "*").replace("÷", "/").replace("^", "**")
    return _PERCENT.sub("*0.01", _OF.sub("*0.01*", plain))


def _exact_context() -> decimal.Context:
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    return decimal.Context(prec=DIGITS, Emax=MOST_EXPONENT, Emin=-MOST_EXPONENT, traps=traps)


def _evaluator(source: str) -> Any:
    """Return an evaluator for numbers, operators and our functions only, without names, texts, lists or
    attributes.
    """
    from simpleeval import SimpleEval

    evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=_NAMES)
    kept = (ast.Expression, ast.Expr, ast.UnaryOp, ast.BinOp, ast.Call, ast.Name)
    evaluator.nodes = {kind: evaluator.nodes[kind] for kind in kept if kind in evaluator.nodes}
    evaluator.nodes[ast.Constant] = lambda node: _constant(node, source)
    return evaluator


def _constant(node: ast.Constant, source: str) -> Decimal:
    """Return a number exactly as written, so that 0.1 is a tenth.

    Raises ToolFailed for anything but a number.
    """
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise ToolFailed(f"{str(node.value)[:40]!r} is not a number.")
    if isinstance(node.value, int):
        return Decimal(node.value)
    return Decimal(ast.get_source_segment(source, node) or repr(node.value))


def _decimal(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    raise ToolFailed("That is not an expression with a number as its result.")


def _result_text(value: Decimal, *, rounded: bool) -> str:
    if not value.is_finite():
        raise ToolFailed("That has no real number as its result.")
    if not rounded:
        return f"= {_format_number(value)}"
    with decimal.localcontext(_exact_context()) as shown:
        shown.prec = SHOWN_DIGITS
        near = +value
    # Show fewer digits, which hides rounding noise such as that of sqrt(2)**2.
    return f"≈ {_format_number(near)}"


def _format_number(value: Decimal) -> str:
    if value == 0:
        return "0"
    trimmed = value.normalize() if value != value.to_integral_value() else value
    if abs(trimmed.adjusted()) > DIGITS:
        return f"{trimmed.normalize():E}"
    return f"{trimmed.to_integral_value():f}" if trimmed == trimmed.to_integral_value() else f"{trimmed:f}"


def _explain_error(error: Exception) -> str:
    told = str(error).partition("(<")[0].strip()[:120]
    return f"The expression was not understood ({told}). Write it with numbers, + - * / % ** and parentheses."


def _power(base: Any, exponent: Any) -> Decimal:
    if abs(exponent) > MOST_EXPONENT:
        raise ToolFailed(f"Powers go up to {MOST_EXPONENT:,}.")
    return _decimal(base) ** _decimal(exponent)


def _modulo(a: Any, b: Any) -> Decimal:
    """Return the remainder with the sign of the divisor, as in Python."""
    rest = _decimal(a) % _decimal(b)
    return rest + b if rest and (rest < 0) != (b < 0) else rest


def _floor_divide(a: Any, b: Any) -> Decimal:
    return (_decimal(a) - _modulo(a, b)) / _decimal(b)


def _by_float(function: Callable[..., float]) -> Callable[..., Decimal]:
    """Return a decimal function that computes by float; its result is marked as rounded, noise near zero is
    0.
    """

    def run(*given: Any) -> Decimal:
        result = function(*(float(value) for value in given))
        decimal.getcontext().flags[decimal.Inexact] = True
        return Decimal(0) if abs(result) < 1e-15 else Decimal(repr(result))

    return run


def _log(value: Any, base: Any = None) -> Decimal:
    logarithm = _decimal(value).ln()
    return logarithm if base is None else logarithm / _decimal(base).ln()


def _log2(value: Any) -> Decimal:
    """Return the logarithm to base 2, exactly for powers of two."""
    whole = _decimal(value)
    if whole > 0 and whole == whole.to_integral_value() and whole < Decimal(2) ** 190:
        number = int(whole)
        if number & (number - 1) == 0:
            return Decimal(number.bit_length() - 1)
    return _log(value, 2)


def _round(value: Any, places: Any = 0) -> Decimal:
    """Return the value rounded to `places` decimals, half away from zero."""
    if abs(places) > DIGITS:
        raise ToolFailed(f"round takes at most {DIGITS} places.")
    step = Decimal(1).scaleb(-int(places))
    with decimal.localcontext():  # a requested rounding does not mark the result as inexact
        return _decimal(value).quantize(step, rounding=decimal.ROUND_HALF_UP)


def _require_whole(value: Any, most: int) -> int:
    number = _decimal(value)
    if number != number.to_integral_value() or not 0 <= number <= most:
        raise ToolFailed(f"That takes whole numbers from 0 to {most:,}.")
    return int(number)


def _factorial(value: Any) -> Decimal:
    return Decimal(math.factorial(_require_whole(value, 1_000))) + 0


def _gcd(*values: Any) -> Decimal:
    return Decimal(math.gcd(*(_require_whole(value, 10**DIGITS) for value in values)))


def _cbrt(value: Any) -> Decimal:
    root = round(math.copysign(abs(float(value)) ** (1 / 3), float(value)))
    if Decimal(root) ** 3 == value:
        return Decimal(root)
    return _by_float(lambda x: math.copysign(abs(x) ** (1 / 3), x))(value)


_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sqrt": lambda x: _decimal(x).sqrt(),
    "cbrt": _cbrt,
    "abs": abs,
    "round": _round,
    "floor": lambda x: _decimal(x).to_integral_value(rounding=decimal.ROUND_FLOOR),
    "ceil": lambda x: _decimal(x).to_integral_value(rounding=decimal.ROUND_CEILING),
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values, Decimal(0)),
    "log": _log,
    "ln": _log,
    "log10": lambda x: _decimal(x).log10(),
    "log2": _log2,
    "exp": lambda x: _decimal(x).exp(),
    "sin": _by_float(math.sin),
    "cos": _by_float(math.cos),
    "tan": _by_float(math.tan),
    "asin": _by_float(math.asin),
    "acos": _by_float(math.acos),
    "atan": _by_float(math.atan),
    "atan2": _by_float(math.atan2),
    "degrees": _by_float(math.degrees),
    "radians": _by_float(math.radians),
    "factorial": _factorial,
    "gcd": _gcd,
}
_NAMES: Mapping[str, Decimal] = {
    "pi": Decimal("3.14159265358979323846264338327950288419716939937510582097494"),
    "e": Decimal("2.71828182845904523536028747135266249775724709369995957496697"),
}
