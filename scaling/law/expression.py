"""One small grammar of formulas, for laws, computed columns and conditions. A formula is parsed, never run as code.

    E + A*N^-alpha + B*D^-beta        params - embedding        max(N, 1e6) / log(D)

    sum      = product { ("+" | "-") product }
    product  = signed { ("*" | "/") signed }       a space may mean "*": A N^-a
    signed   = ("+" | "-") signed | power
    power    = primary [ ("^" | "**") signed ]     from the right: a^b^c = a^(b^c); -a^b = -(a^b)
    primary  = number | name | function "(" sum { "," sum } ")" | "(" sum ")"

A name is a letter and then letters, digits, `_` and `.`; any other column is written in backticks: `train/loss`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law import autodiff
from scaling.law.autodiff import Dual
from scaling.law.parse_number import parse_number

LONGEST = 2000  # characters
DEEPEST = 60  # brackets, signs and powers within each other

Value: TypeAlias = Any  # a float, an array or a Dual: numpy and Dual share their operators


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Negation:
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """left (sign) right, the sign one of + - * / ^."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = "Number | Name | Negation | Binary | Call"


def power(base: Value, exponent: Value) -> Value:
    """base ^ exponent; a plain exponent may have a base that is not positive."""
    if isinstance(exponent, Dual):
        return base**exponent
    return autodiff.power(base, exponent) if isinstance(base, Dual) else np.power(np.asarray(base, float), exponent)


def _either(of_dual: Callable[[Dual], Dual], of_array: Callable[[Any], Any]) -> Callable[[Value], Value]:
    return lambda x: of_dual(x) if isinstance(x, Dual) else of_array(x)


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Value]]] = {
    "exp": (1, _either(autodiff.exp, np.exp)),
    "log": (1, _either(autodiff.log, np.log)),
    "ln": (1, _either(autodiff.log, np.log)),
    "log2": (1, lambda x: FUNCTIONS["log"][1](x) * (1.0 / np.log(2.0))),
    "log10": (1, lambda x: FUNCTIONS["log"][1](x) * (1.0 / np.log(10.0))),
    "sqrt": (1, lambda x: power(x, 0.5)),
    "abs": (1, _either(autodiff.absolute, np.abs)),
    "sigmoid": (1, _either(autodiff.sigmoid, autodiff.sigmoid_of)),
    "tanh": (1, _either(autodiff.tanh, np.tanh)),
    "pow": (2, power),
    "min": (2, autodiff.minimum),
    "max": (2, autodiff.maximum),
}
"""Every function by name, with the number of its arguments (`min` and `max` take two or more)."""


def evaluate(expression: Expression, values: Mapping[str, Value]) -> Value:
    """The formula at values by name; on Dual numbers with its exact derivative."""
    match expression:
        case Number(value):
            return value
        case Name(name):
            return values[name]
        case Negation(operand):
            return -evaluate(operand, values)
        case Call(function, arguments):
            apply = FUNCTIONS[function][1]
            first, *rest = (evaluate(argument, values) for argument in arguments)
            if not rest:
                return apply(first)
            for other in rest:
                first = apply(first, other)
            return first
        case Binary(sign, left, right):
            first, second = evaluate(left, values), evaluate(right, values)
            if sign == "^":
                return power(first, second)
            if sign == "+":
                return first + second
            if sign == "-":
                return first - second
            if sign == "*":
                return first * second
            return first / (second if isinstance(second, Dual) else np.asarray(second, float))
    raise AssertionError(expression)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The formulas that this one is made of, from left to right."""
    match expression:
        case Negation(operand):
            return (operand,)
        case Call(_, arguments):
            return arguments
        case Binary(_, left, right):
            return (left, right)
    return ()


def names(expression: Expression) -> tuple[str, ...]:
    """Every name in it, each once, in the order in which they appear."""

    def walk(node: Expression) -> Iterator[str]:
        if isinstance(node, Name):
            yield node.name
        for part in parts(node):
            yield from walk(part)

    return tuple(dict.fromkeys(walk(expression)))


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    spaced: bool
    """After a space, or at the beginning."""


_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*)"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<sign>\*\*|[-+*/^(),−·×÷])"
)
_SIGNS = {"**": "^", "−": "-", "·": "*", "×": "*", "÷": "/"}


def parse(text: str, key: str = "formula", suffixes: bool = False) -> Expression:
    """The formula that `text` writes. With `suffixes`, 10M and 1.5B are numbers, as in a condition."""
    if len(text) > LONGEST:
        raise ScalingError(f"is a formula of {len(text)} characters", key=key, fix=f"{LONGEST} are the most")
    return _Parser(text, key, suffixes).parse_all()


class _Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str, key: str, suffixes: bool):
        self.text, self.key, self.suffixes = text, key, suffixes
        self.tokens = list(self._tokens())
        self.place = 0
        self.depth = 0

    def error(self, what: str, fix: str) -> ScalingError:
        return ScalingError(what, key=self.key, value=self.text, fix=fix)

    def _tokens(self) -> Iterator[Token]:
        place = 0
        while place < len(self.text):
            if self.text[place].isspace():
                place += 1
                continue
            spaced = place == 0 or self.text[place - 1].isspace()
            match = _TOKEN.match(self.text, place)
            if match is None:
                sign = self.text[place]
                fix = "write one formula of numbers, names, + - * / ^ and functions"
                if sign in "<>=!&|":
                    fix = "a comparison belongs to --where"
                raise self.error(f"has {sign!r}, which no formula has", fix)
            kind = str(match.lastgroup)
            token = Token("name" if kind == "quoted" else kind, match[kind], spaced)
            place = match.end()
            if kind == "number":
                token, place = self._number(token, place)
            yield Token(token.kind, _SIGNS.get(token.text, token.text), spaced)

    def _number(self, token: Token, place: int) -> tuple[Token, int]:
        """A number and the letter of its thousands; any other letter at its end is refused."""
        after = re.match(r"\w+", self.text[place:])
        if after is None:
            return token, place
        suffixed = token.text + after[0]
        if self.suffixes and parse_number(suffixed) is not None:
            return Token("number", suffixed, token.spaced), place + after.end()
        raise self.error(f"has {suffixed!r}", f"write {token.text}*{after[0]}")

    @property
    def next(self) -> Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self, *signs: str) -> str | None:
        """The next sign, if it is one of these."""
        token = self.next
        if token is None or token.kind != "sign" or token.text not in signs:
            return None
        self.place += 1
        return token.text

    def parse_all(self) -> Expression:
        expression = self.sum()
        if self.next is not None:
            raise self.error(f"has {self.next.text!r} where its end should be", "balance the brackets and signs")
        return expression

    def sum(self) -> Expression:
        left = self.product()
        while sign := self.take("+", "-"):
            left = Binary(sign, left, self.product())
        return left

    def product(self) -> Expression:
        left, divided = self.signed(), False
        while True:
            if sign := self.take("*", "/"):
                left, divided = Binary(sign, left, self.signed()), divided or sign == "/"
                continue
            token = self.next
            if token is None or not token.spaced or (token.kind == "sign" and token.text != "("):
                return left
            if divided:
                raise self.error(f"has no sign before {token.text!r}, after a division", "write * or / there")
            left = Binary("*", left, self.signed())

    def signed(self) -> Expression:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"nests deeper than {DEEPEST}", "write a simpler formula")
        sign = self.take("+", "-")
        expression = self.power() if sign is None else self.signed()
        self.depth -= 1
        return Negation(expression) if sign == "-" else expression

    def power(self) -> Expression:
        base = self.primary()
        return Binary("^", base, self.signed()) if self.take("^") else base

    def primary(self) -> Expression:
        token = self.next
        if token is None:
            raise self.error("breaks off", "write what follows the last sign")
        self.place += 1
        if token.kind == "number":
            value = parse_number(token.text)
            if value is None or not np.isfinite(value):
                raise self.error(f"has {token.text!r}, which is no number", "write it as 1e9")
            return Number(value)
        if token.kind == "name":
            after = self.next
            if after is not None and after.text == "(" and after.kind == "sign" and not after.spaced:
                return self.call(token.text)
            if token.text in FUNCTIONS:
                raise self.error(f"has the function {token.text} without its argument", f"write {token.text}(…)")
            return Name(token.text)
        if token.text == "(":
            inner = self.sum()
            if not self.take(")"):
                raise self.error("has a bracket that is not closed", "balance the brackets")
            return inner
        raise self.error(f"has {token.text!r} where a number or a name should be", "balance the brackets and signs")

    def call(self, function: str) -> Call:
        if function not in FUNCTIONS:
            fix = f"{nearest(function, FUNCTIONS)}; a product is {function}*(…)"
            raise self.error(f"has no function {function!r}", fix)
        self.take("(")
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        if not self.take(")"):
            raise self.error("has a bracket that is not closed", "balance the brackets")
        count = FUNCTIONS[function][0]
        if len(arguments) < count or (len(arguments) > count and function not in ("min", "max")):
            raise self.error(f"gives {function} {len(arguments)} arguments", f"it takes {count}")
        return Call(function, tuple(arguments))
