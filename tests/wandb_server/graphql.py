"""As much of GraphQL as the W&B client writes: one operation, its variables and fragments, answered from resolvers.

A resolver is a mapping or an object; a field is its key, called with the field's arguments where it is a function. What
a resolver lacks is null, so the client may ask for more than we know of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$?[A-Za-z_]\w*|-?\d+(?:\.\d+)?|\.\.\.|[{}()\[\]:!=@]')


@dataclass
class Field:
    """One asked field; `name` is '...' for a fragment that is spread here."""

    name: str
    alias: str
    arguments: dict[str, Any]
    fields: list[Field]


@dataclass
class Document:
    kind: str
    name: str
    fields: list[Field]
    fragments: dict[str, list[Field]]


class _Variable(str):
    pass


def parse(text: str) -> Document:
    """The operation of a query, and its fragments."""
    tokens = [token for line in text.splitlines() for token in TOKEN.findall(line.split("#")[0])]
    return _Parser(tokens).document()


class _Parser:
    def __init__(self, tokens: list[str]):
        self.tokens, self.at = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def document(self) -> Document:
        kind, name, fields, fragments = "query", "", [], {}
        while self.peek():
            if self.peek() == "{":
                fields = self.selection()
                continue
            word = self.next()
            title = self.next() if self.peek() not in ("{", "(") else ""
            if word == "fragment":
                self.next()  # on
                self.next()  # the type
                fragments[title] = self.selection()
                continue
            kind, name = word, title
            while self.peek() != "{":  # the variables' types are the client's business
                self.next()
            fields = self.selection()
        return Document(kind, name, fields, fragments)

    def selection(self) -> list[Field]:
        assert self.next() == "{"
        fields = []
        while self.peek() != "}":
            fields.append(self.field())
        self.next()
        return fields

    def field(self) -> Field:
        name = self.next()
        if name == "...":
            if self.peek() == "on":
                self.next()
                self.next()
                return Field("...", "", {}, self.selection())
            if self.peek() == "{":
                return Field("...", "", {}, self.selection())
            return Field("...", self.next(), {}, [])
        alias, arguments = name, {}
        if self.peek() == ":":
            self.next()
            name = self.next()
        if self.peek() == "(":
            arguments = self.arguments()
        while self.peek() == "@":
            self.next()
            self.next()
            if self.peek() == "(":
                self.arguments()
        return Field(name, alias, arguments, self.selection() if self.peek() == "{" else [])

    def arguments(self) -> dict[str, Any]:
        self.next()
        found = {}
        while self.peek() != ")":
            key = self.next()
            assert self.next() == ":"
            found[key] = self.value()
        self.next()
        return found

    def value(self) -> Any:
        token = self.next()
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self.value())
            self.next()
            return items
        if token == "{":
            found = {}
            while self.peek() != "}":
                key = self.next()
                self.next()
                found[key] = self.value()
            self.next()
            return found
        if token.startswith("$"):
            return _Variable(token[1:])
        if token[0] == '"' or token[0] in "-0123456789":
            return json.loads(token)
        return {"true": True, "false": False, "null": None}.get(token, token)


def execute(text: str, variables: Mapping[str, Any], roots: Mapping[str, Mapping[str, Callable[..., Any]]]) -> Any:
    """The data that a query asks for, from the resolvers of its kind (`query`, `mutation`)."""
    document = parse(text)

    def filled(value: Any) -> Any:
        if isinstance(value, _Variable):
            return variables.get(value)
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        return [filled(item) for item in value] if isinstance(value, list) else value

    def spread(fields: list[Field]) -> Iterator[Field]:
        for field in fields:
            if field.name == "...":
                yield from spread(field.fields or document.fragments[field.alias])
            else:
                yield field

    def answer(fields: list[Field], source: Any) -> Any:
        if source is None or not fields:
            return source
        if isinstance(source, list):
            return [answer(fields, item) for item in source]
        found: dict[str, Any] = {}
        for field in spread(fields):
            value = source.get(field.name)
            if callable(value):
                value = value(**filled(field.arguments))
            value = answer(field.fields, value)
            if isinstance(value, dict) and isinstance(found.get(field.alias), dict):
                value = {**found[field.alias], **value}
            found[field.alias] = value
        return found

    return answer(document.fields, roots[document.kind])
