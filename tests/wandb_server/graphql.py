"""As much of GraphQL as the W&B client writes: one operation, its variables and fragments, answered from resolvers.

A resolver is a mapping; a field is its key, called with the field's arguments where it is a function. What a resolver
lacks is null, so the client may ask for more than we know of.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$?[A-Za-z_]\w*|-?\d+(?:\.\d+)?|\.\.\.|[{}()\[\]:!=@]')


class Field(NamedTuple):
    """A field that is asked for; a `fragment` has its name as alias, or fields of its own."""

    name: str
    alias: str
    arguments: dict[str, Any]
    fields: list[Field]


class Query:
    """An operation with the values of its variables."""

    def __init__(self, text: str, variables: Mapping[str, Any]):
        lines = (TOKEN.findall(line.split("#")[0]) for line in text.splitlines())
        self.tokens, self.variables = deque(token for line in lines for token in line), variables
        self.kind, self.fields, self.fragments = "query", list[Field](), dict[str, list[Field]]()
        while self.tokens:
            words = []
            while self.tokens[0] != "{":  # the variables' types are the client's business
                words.append(self.tokens.popleft())
            if words[:1] == ["fragment"]:
                self.fragments[words[1]] = self.selection()
            else:
                self.kind, self.fields = words[0] if words else "query", self.selection()

    def has(self, token: str) -> bool:
        """Whether a token comes next, which is then passed."""
        found = bool(self.tokens) and self.tokens[0] == token
        if found:
            self.tokens.popleft()
        return found

    def selection(self) -> list[Field]:
        fields = []
        assert self.has("{")
        while not self.has("}"):
            fields.append(self.field())
        return fields

    def field(self) -> Field:
        name = alias = self.tokens.popleft()
        if name == "...":
            inline = self.has("on") or self.tokens[0] == "{"
            named = "" if self.tokens[0] == "{" else self.tokens.popleft()
            return Field("...", named, {}, self.selection() if inline else [])
        if self.has(":"):
            name = self.tokens.popleft()
        arguments = self.pairs(")") if self.has("(") else {}
        while self.has("@"):
            self.tokens.popleft()
            if self.has("("):
                self.pairs(")")
        return Field(name, alias, arguments, self.selection() if self.tokens[0] == "{" else [])

    def pairs(self, end: str) -> dict[str, Any]:
        found = {}
        while not self.has(end):
            key = self.tokens.popleft()
            assert self.has(":")
            found[key] = self.value()
        return found

    def value(self) -> Any:
        if self.has("{"):
            return self.pairs("}")
        if self.has("["):
            items = []
            while not self.has("]"):
                items.append(self.value())
            return items
        token = self.tokens.popleft()
        if token.startswith("$"):
            return self.variables.get(token[1:])
        if token[0] in '"-0123456789':
            return json.loads(token)
        return {"true": True, "false": False, "null": None}.get(token, token)

    def spread(self, fields: list[Field]) -> Iterator[Field]:
        for field in fields:
            if field.name == "...":
                yield from self.spread(field.fields or self.fragments[field.alias])
            else:
                yield field

    def answer(self, fields: list[Field], source: Any) -> Any:
        if source is None or not fields:
            return source
        if isinstance(source, list):
            return [self.answer(fields, item) for item in source]
        found: dict[str, Any] = {}
        for field in self.spread(fields):
            value = source.get(field.name)
            value = self.answer(field.fields, value(**field.arguments) if callable(value) else value)
            if isinstance(value, dict) and isinstance(found.get(field.alias), dict):
                value = {**found[field.alias], **value}
            found[field.alias] = value
        return found


def execute(text: str, variables: Mapping[str, Any], roots: Mapping[str, Mapping[str, Callable[..., Any]]]) -> Any:
    """The data that a query asks for, from the resolvers of its kind (`query`, `mutation`)."""
    query = Query(text, variables)
    return query.answer(query.fields, roots[query.kind])
