"""Examples of a task: the content of a row of a file, as every family frames it afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError, nearest, plural, refuse
from scaling.data.documents import fill, value_of
from scaling.data.rows import Row

Answer = Literal["class", "classes", "number", "options", "tags", "span", "text"]
NAMED: tuple[Answer, ...] = ("class", "classes", "tags")  # answers that are names
SECRET = (None, "", "-1", -1)  # how published test splits write a label that they keep back


_KEYS: dict[str, tuple[Sequence[Answer], Sequence[Answer], str]] = {
    "options": (("options",), ("options",), "set options, such as options=[{choice1}, {choice2}]"),
    "second": (("class", "classes", "number", "span", "text"), ("span",), "set second, such as second={context}"),
    "heads": (("tags",), (), ""),
}
"""The kinds of answer that take a key, and those that need it."""


@dataclass(frozen=True)
class Example:
    """`texts` are the text, or a pair; the text and each of its options; or the words that are tagged.

    `answer` is what a metric takes: the id of a class, those of several, a number, the number of an option (or the
    texts of those that are right), a tag for each word, or the texts that are right. None: it is not known. `span` is
    where the first of these texts is in the second text, in characters.
    """

    texts: tuple[str, ...]
    answer: Any = None
    right: int | None = None  # the number of the option that is right, where `answer` lists texts
    span: tuple[int, int] | None = None
    group: str | None = None
    unit: str | None = None  # what it has in common with the examples that are held out with it
    heads: tuple[int, ...] | None = None  # of words that are tagged: the word that each depends on, from 1; 0: the root
    prompt: str = ""  # of a model that writes its answer, and what it has to write
    target: str | None = None


@dataclass(kw_only=True, eq=False)
class Columns:
    """The rule that makes an example of a row: templates over its fields, and the meaning of its label."""

    answer: Answer
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
        if self.answer in NAMED and len(self.names) < 2:
            raise ScalingError("it takes the names of two labels or more", key="labels", value=self.labels)
        for key, (takes, needs, fix) in _KEYS.items():
            value = getattr(self, key)
            what, fix = f"an answer that is {self.answer} has none", f"leave it out, or set answer={takes[0]}"
            refuse(value and self.answer not in takes, what, fix, key=key, value=value)
            if not value and self.answer in needs:
                raise ScalingError(f"an answer that is {self.answer} needs it", key=key, value=value, fix=fix)

    def example(self, row: Row, *, secret: bool) -> Example | None:
        """The example of a row, None for one that is dropped; its label may be missing where that is `secret`."""
        answered = self._answered(row, secret or self.missing == "dropped")
        if not answered and not secret:
            return None
        group = None if self.group is None else fill(self.group, row, "group")
        return replace(self.question(row), group=group, **answered)

    def question(self, row: Row) -> Example:
        """The example of a row that has no label."""
        texts, heads = self._texts(row), None
        if self.heads is not None:
            value = value_of(self.heads, row, "heads")
            named = [str(head) for head in _words(value, "heads")]
            what = f"it has {plural(len(texts), 'word')} and {plural(len(named), 'head')}"
            refuse(len(named) != len(texts), what, key="heads")
            places(named)  # refuses what is not a tree
            heads = tuple(map(int, named))
        prompt = " ".join(texts) if self.prompt is None else self._filled("prompt", row)
        return Example(texts=texts, prompt=prompt, heads=heads)

    def _texts(self, row: Row) -> tuple[str, ...]:
        if self.answer == "tags":
            words = _words(value_of(self.text, row, "text"), "text")
            refuse(not words, "it is empty", key="text")
            return tuple(map(str, words))
        texts = tuple(self._filled(key, row) for key in ("text", "second") if getattr(self, key) is not None)
        if self.answer != "options":
            return texts
        # A template each, or one that yields a list of them.
        values = [value_of(template, row, "options") for template in self.options or ()]
        each = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
        refuse(None in each, "one of them is empty", key="options")
        options = list(map(str, each))
        refuse(len(options) < 2, f"it has {len(options)} options, and two are the fewest", key="options")
        return (*texts, *options)

    def _filled(self, key: str, row: Row) -> str:
        """The template of a key with the row's fields, none of which may be empty."""
        filled = fill(getattr(self, key), row, key)
        if filled is None:
            raise ScalingError("it is empty", key=key)
        return filled

    def _answered(self, row: Row, secret: bool) -> dict[str, Any]:
        """The answer of a row and what is learned of it; nothing where its label may be missing, and is."""
        value = value_of(self.label, row, "label")
        several = isinstance(value, list | tuple)
        if self.answer == "span":
            absent = value is None
        elif several or isinstance(value, Mapping):
            absent = self.answer != "classes" and not value
        else:  # of numbers and texts −1 is a value, as is a label of this name; no class is an answer of several
            secrets = {"number": SECRET[:2], "text": SECRET[:2], "classes": SECRET[:1]}.get(self.answer, SECRET)
            absent = (value in secrets and spelled(value) not in (*self.values, *self.names)) or value != value
        if absent and secret:
            return {}
        fix = "write one, or leave such examples out: data.missing=dropped"
        refuse(absent and self.answer != "span", "it has no label", fix, key="label", value=self.label)
        match self.answer:
            case "span":
                return self._span(row, value, secret)
            case "class":
                answer = self.class_of(value)
                return {"answer": answer, "target": self.names[answer]}
            case "classes":
                answer = sorted({self.class_of(label) for label in listed(value, "classes")})
                return {"answer": answer, "target": ", ".join(self.names[label] for label in answer) or "none"}
            case "number":
                answer = _number(value)
                return {"answer": answer, "target": written(answer)}
            case "options":
                texts = self._texts(row)[1:]
                right = self._option(value[0] if several else value, texts)
                answer = [str(label) for label in value] if several else right
                return {"answer": answer, "right": right, "target": texts[right]}
            case "tags":
                tags, words = listed(value, "tags"), self._texts(row)
                what = f"it has {plural(len(words), 'word')} and {plural(len(tags), 'tag')}"
                refuse(len(tags) != len(words), what, key="label")
                names = [self.names[self.class_of(tag)] for tag in tags]
                return {"answer": names, "target": " ".join(names)}
        texts = [str(text) for text in (value if several else [value])]
        target = texts[0] if self.target is None else self._filled("target", row)
        return {"answer": list(dict.fromkeys([target, *texts])), "target": target}

    def class_of(self, value: Any) -> int:
        """The id of a class, by its name or by what the files write for it."""
        name = self.values.get(spelled(value), spelled(value))
        if name not in self.names:
            fix = f"{nearest(name, self.names)} or give its meaning in data.labels"
            raise ScalingError("there is no such label", key="label", value=value, fix=fix)
        return self.names.index(name)

    def _option(self, value: Any, texts: Sequence[str]) -> int:
        """The number of an option: by `labels` (A, B, …), by its number from 0, or where a text is given by its text,
        the first of several.
        """
        name, is_number = spelled(value), isinstance(value, int) and not isinstance(value, bool)
        what, fix = "no option is the right one", "give its number or its text"
        refuse(not (self.names or is_number or name in texts or name.isdecimal()), what, fix, key="label", value=value)
        if self.names:
            number = self.class_of(value)
        else:
            number = int(name) if is_number or name not in texts else texts.index(name)
        what = f"there are {len(texts)} options, counted from 0"
        refuse(not 0 <= number < len(texts), what, key="label", value=value)
        return number

    def _span(self, row: Row, value: Any, secret: bool) -> dict[str, Any]:
        if not isinstance(value, Mapping) or "text" not in value or "answer_start" not in value:
            raise ScalingError("a span is {text: […], answer_start: […]}", key="label", value=self.label)
        texts, starts = (value[key] for key in ("text", "answer_start"))
        is_listed = all(isinstance(each, list | tuple) for each in (texts, starts))
        is_whole = is_listed and len(texts) == len(starts) and all(isinstance(text, str) for text in texts)
        is_placed = is_whole and all(isinstance(start, int) and start >= 0 for start in starts)
        refuse(
            not is_placed, "a span is {text: [TEXT, …], answer_start: [CHARACTER, …]}", key="label", value=self.label
        )
        if not texts and self.none == "allowed":
            return {"answer": [], "target": NO_ANSWER}
        if not texts and secret:
            return {}
        refuse(not texts, "it has no answer", "set data.none=allowed where questions may have no answer", key="label")
        _, context = self._texts(row)
        for text, start in zip(texts, starts):
            if context[start : start + len(text)] != text:
                raise ScalingError(f"the span {text!r} is not in its context at {start}", key="label")
        return {"answer": list(texts), "span": (starts[0], starts[0] + len(texts[0])), "target": texts[0]}


def _words(value: Any, key: str) -> Sequence[Any]:
    """The words of a field: a list of them, or a text."""
    words = value.split() if isinstance(value, str) else [] if value is None else value
    refuse(not isinstance(words, list | tuple), "it is neither a list of words nor a text", key=key, value=value)
    return words


def listed(value: Any, answer: Answer) -> list[Any]:
    """The labels that a field holds: a list of them, or names in a text."""
    if isinstance(value, str) and answer in ("classes", "tags"):
        labels = map(str.strip, value.split("," if answer == "classes" else None))
        return [label for label in labels if label]
    return list(value) if isinstance(value, list | tuple) else [] if value in (None, "") else [value]


NO_ANSWER = "unanswerable"


def written(number: float) -> str:
    """A number as text, to the nearest fifth. (Raffel et al. 2019, section 2.3, of STS-B)"""
    return f"{round(number * 5) / 5:.1f}"


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    fix = "write digits and a decimal point, as in 1000.5"
    refuse(not abs(number) < 1e38 or number == IGNORE, "this is not a number below 1e38", fix, key="label", value=value)
    return number


def spelled(value: Any) -> str:
    """A label as text, however the file's format holds it: 1 of the number 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# --- trees over the words of a text, as the head of each: from 1 in the order of the words, 0 the root's ---

OUTSIDE: tuple[int, int, int] = (0, 0, 2**31 - 1)  # the place of a token that is in no tree: above all others


def places(heads: Sequence[str | int]) -> list[tuple[int, int, int]]:
    """Each word's depth, its number when the tree is read from the root downwards, from 1, and the number behind its
    last descendant: word i is above j where first_i <= first_j < last_i. Heads that make no tree are refused.
    """
    below: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(map(str, heads), 1):
        if not head.isdecimal() or int(head) > len(heads):
            what = f"the sentence has {plural(len(heads), 'word')}, and the head is none of them"
            raise ScalingError(what, key="heads", value=head, fix="write its number, or 0")
        below[int(head)].append(word)
    depth, first, last = ([0] * len(below) for _ in range(3))
    number, path = 0, [(0, 0)]
    while path:
        word, child = path.pop()
        if child == 0:
            depth[word], first[word] = len(path), number
            number += 1
        if child < len(below[word]):
            path += [(word, child + 1), (below[word][child], 0)]
        else:
            last[word] = number
    refuse(0 in depth[1:], "the heads of the sentence form a circle", key="heads")
    return list(zip(depth[1:], first[1:], last[1:]))
