"""Arithmetic formulas: a subset of Python's expressions, parsed with `ast` and never executed as Python.

NumPy computes the statistics, TensorFlow the packed rows and requests. Both provide the same operations, on float64. An
operation with a missing operand (NaN) gives a missing result.
"""

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

# The functions, with the least and the greatest number of arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("abs", "ceil", "exp", "floor", "is_missing", "log", "log1p", "sqrt"), (1, 1)),
    **dict.fromkeys(("max", "min"), (2, 100)),
    "clip": (3, 3),
    "if_missing": (2, 2),
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
}
_COLUMN = "column"
_DEEPEST = 50  # levels of a formula: each is a call of Python, and an operation of the graph


class Operations(Protocol):
    """The operations of a formula, on float64 [N] or numbers. `where` chooses by a condition."""

    def apply(self, name: str, *values: Any) -> Any:
        """Returns the result of an operation: add, subtract, multiply, divide, power, minimum, maximum, negative, or a
        function of one argument except `is_missing`.
        """

    def where(self, condition: Any, first: Any, second: Any) -> Any: ...

    def is_missing(self, value: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Formula:
    """A parsed formula.

    Attributes:
        root: The expression.
        columns: Its columns, in the order of their first use.
    """

    root: ast.expr
    columns: tuple[str, ...]


@functools.lru_cache(1024)
def parse(text: str) -> Formula:
    """Returns a formula.

    Raises:
        ValueError: the text is not a formula of FUNCTIONS, numbers and columns, or names no column.
    """
    try:
        root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "offset", None)
        where = f" at character {place}" if place else ""
        raise ValueError(f"'{text}' is not a formula{where}; write one such as log1p(clicks / (shows + 1))") from error
    columns: dict[str, None] = {}
    _check(root, text, columns, 1)
    if not columns:
        raise ValueError(f"'{text}' names no column; it would be the same number in each row")
    return Formula(root, tuple(columns))


def _check(node: ast.expr, text: str, columns: dict[str, None], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"the formula is nested more than {_DEEPEST} levels deep; split it into two")
    children: list[ast.expr] = []
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            raise ValueError(f"'{text}': {ast.unparse(node)} is not a number")
        case ast.Constant(value=int() | float() as value):
            if not np.isfinite(_finite(value)):
                raise ValueError(f"'{text}': {ast.unparse(node)} is too large")
        case ast.Name(id=name):
            if name in FUNCTIONS or name == _COLUMN:
                raise ValueError(f"'{text}': the function {name} needs arguments in parentheses")
            columns[name] = None
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            children = [operand]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            children = [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name == _COLUMN:
                columns[_named(arguments, text)] = None
                return
            least, most = FUNCTIONS.get(name, (0, 0))
            if not most:
                raise ValueError(f"'{text}': there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}")
            if not least <= len(arguments) <= most:
                many = f"{least}" if least == most else f"{least} or more"
                raise ValueError(f"'{text}': {name} takes {many} argument{'s' * (most > 1)}, not {len(arguments)}")
            children = arguments
        case _:
            raise ValueError(
                f"'{text}': {ast.unparse(node)} is not allowed in a formula, which has columns, numbers, + - * / **, "
                "parentheses and functions"
            )
    for child in children:
        _check(child, text, columns, depth + 1)


def _finite(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _named(arguments: list[ast.expr], text: str) -> str:
    match arguments:
        case [ast.Constant(value=str() as name)] if name:
            return name
    raise ValueError(f"'{text}': {_COLUMN} takes the name of a column in quotes")


def evaluate(formula: Formula, columns: Mapping[str, object], operations: Operations) -> Any:
    """Returns a formula's values, float64 [N]; NaN or infinite where the result is undefined.

    Args:
        formula: The formula.
        columns: Its columns, float64 [N].
        operations: The operations for the columns' array type.
    """
    return _value(formula.root, columns, operations)


def _value(node: ast.expr, columns: Mapping[str, object], operations: Operations) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return columns[name]
        case ast.UnaryOp(op=operator, operand=operand):
            inner = _value(operand, columns, operations)
            return operations.apply("negative", inner) if isinstance(operator, ast.USub) else inner
        case ast.BinOp(left=left, op=operator, right=right):
            sides = (_value(left, columns, operations), _value(right, columns, operations))
            return _known(_binary(_OPERATORS[type(operator)], sides, operations), sides, operations)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if name == _COLUMN:
                return columns[_named(arguments, "")]
            return _called(name, [_value(each, columns, operations) for each in arguments], operations)
    raise AssertionError(ast.dump(node))


def _binary(name: str, sides: tuple[Any, Any], operations: Operations) -> Any:
    result = operations.apply(name, *sides)
    return operations.where(sides[1] == 0.0, float("nan"), result) if name == "divide" else result


def _called(name: str, values: list[Any], operations: Operations) -> Any:
    if name == "if_missing":
        return operations.where(operations.is_missing(values[0]), values[1], values[0])
    if name == "is_missing":
        return operations.where(operations.is_missing(values[0]), 1.0, 0.0)
    if name in ("log", "log1p"):  # of 0 and -1 they are infinite
        least = 0.0 if name == "log" else -1.0
        return operations.where(values[0] <= least, float("nan"), operations.apply(name, values[0]))
    if name == "clip":
        inner = operations.apply("maximum", values[0], values[1])
        return _known(operations.apply("minimum", inner, values[2]), values, operations)
    if name in ("max", "min"):
        pick: Callable[[Any, Any], Any] = functools.partial(operations.apply, f"{name}imum")
        return _known(functools.reduce(pick, values), values, operations)
    return operations.apply(name, values[0])


def _known(result: Any, values: Any, operations: Operations) -> Any:
    """Returns the result, NaN where an operand is NaN: 1 ** NaN is 1, and libraries differ in their minimum with
    NaN.
    """
    for value in values:
        if not isinstance(value, float):
            result = operations.where(operations.is_missing(value), float("nan"), result)
    return result


class NumpyOperations:
    """The operations on NumPy arrays."""

    def apply(self, name: str, *values: Any) -> Any:
        return getattr(np, name)(*values)

    def where(self, condition: Any, first: Any, second: Any) -> Any:
        return np.where(condition, first, second)

    def is_missing(self, value: Any) -> Any:
        return np.isnan(value)
