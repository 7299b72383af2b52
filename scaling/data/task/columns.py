"""Columns: the examples of a task from the rows of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from scaling.base.errors import ScalingError, plural, refuse
from scaling.data.documents import fill, value_of
from scaling.data.rows import Row
from scaling.data.task.answers import KINDS, Goal
from scaling.data.task.example import Example, places


@dataclass(kw_only=True, eq=False)
class Columns:
    """The rule that makes an example of a row: templates over its fields, and the meaning of its label."""

    answer: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    text: str
    second: str | None = None
    options: list[str] | None = None
    label: str = "{label}"
    labels: list[str] | Mapping[str, str] | None = None  # names in their order; or by what files write for them
    group: str | None = None
    heads: str | None = None  # of words in a tree, the number of the word that each depends on, from 1; 0: the root
    prompt: str | None = None
    target: str | None = None  # of texts that are all right, the one that is learned
    missing: Literal["refused", "dropped"] = "refused"  # what becomes of an example without a label
    none: Literal["refused", "allowed"] = "refused"  # whether a span may be absent

    def __post_init__(self) -> None:
        labels = self.labels or ()
        self.values = {str(key): str(name) for key, name in labels.items()} if isinstance(labels, Mapping) else {}
        self.names = tuple(dict.fromkeys(map(str, self.values.values() or labels)))
        self.kind, kind = KINDS[self.answer], f"an answer that is {self.answer}"
        what, is_named = "it takes the names of two labels or more", "classes" in self.kind.head_keys
        refuse(is_named and len(self.names) < 2, what, key="labels", value=self.labels)
        for key in ("options", "second", "heads"):
            value, example = getattr(self, key), self.kind.takes.get(key)
            fix = f"leave it out, or set answer={next(name for name in KINDS if key in KINDS[name].takes)}"
            refuse(value and example is None, f"{kind} has none", fix, key=key, value=value)
            refuse(not value and example, f"{kind} needs it", f"set it, as in {example}", key=key)

    @property
    def unit(self) -> tuple[str, str] | None:
        """The name and the template of what examples share that are held out together; None: each is held out alone."""
        if self.group is not None:
            return "group", self.group
        return ("context", str(self.second)) if self.kind.takes.get("second") else None

    def example(self, row: Row, goal: Goal, *, secret: bool) -> Example | None:
        """The example of a row, None for one that is dropped; its label may be missing where that is `secret`."""
        value = value_of(self.label, row, "label")
        is_absent = goal.is_absent(value)
        if is_absent and not secret:
            if self.missing == "dropped":
                return None
            what, fix = goal.no_label
            raise ScalingError(what, key="label", value=self.label, fix=fix)
        example = self.question(row)
        group = None if self.group is None else fill(self.group, row, "group")
        unit = None if self.unit is None else fill(self.unit[1], row, "group")
        example = replace(example, group=group, unit=unit)
        if is_absent:
            return example
        if self.target is not None and "target" in goal.takes:
            value = [self._filled("target", row), *goal.listed(value)]
        return replace(example, **goal.answered(value, example.texts))

    def question(self, row: Row) -> Example:
        """The example of a row that has no label."""
        heads = None
        if self.kind.is_of_words:
            texts = self._words("text", row)
            refuse(not texts, "it is empty", key="text")
        else:
            texts = tuple(self._filled(key, row) for key in ("text", "second") if getattr(self, key) is not None)
        if self.options:
            values = [value_of(template, row, "options") for template in self.options]
            options = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
            refuse(None in options, "one of them is empty", key="options")
            refuse(len(options) < 2, f"it has {len(options)} options, and two are the fewest", key="options")
            texts = (*texts, *map(str, options))
        if self.heads is not None:
            named = self._words("heads", row)
            what = f"it has {plural(len(texts), 'word')} and {plural(len(named), 'head')}"
            refuse(len(named) != len(texts), what, key="heads")
            places(named)  # refuses what is not a tree
            heads = tuple(map(int, named))
        prompt = " ".join(texts) if self.prompt is None else self._filled("prompt", row)
        return Example(texts=texts, prompt=prompt, heads=heads)

    def _filled(self, key: str, row: Row) -> str:
        """The template of a key with the row's fields, none of which may be empty."""
        filled = fill(getattr(self, key), row, key)
        refuse(filled is None, "it is empty", key=key)
        return str(filled)

    def _words(self, key: str, row: Row) -> tuple[str, ...]:
        """The words of a field: a list of them, or a text."""
        value = value_of(getattr(self, key), row, key)
        words = value.split() if isinstance(value, str) else value or ()
        is_words = isinstance(words, list | tuple)
        refuse(not is_words, "it is neither a list of words nor a text", key=key, value=value)
        return tuple(map(str, words))
