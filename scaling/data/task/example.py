"""Examples of a task: the content of a row of a file, as every family frames it afterwards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.base.batch import IGNORE
from scaling.base.errors import ScalingError, nearest, plural, refuse
from scaling.data.documents import fill, value_of
from scaling.data.rows import Row

Answer = Literal["class", "classes", "number", "options", "tags", "span", "text"]
NAMED: tuple[Answer, ...] = ("class", "classes", "tags")  # answers that are names
PAIRED: tuple[Answer, ...] = ("class", "number")  # answers about a text, or a pair of them
NO_ANSWER = "unanswerable"

_KEYS: dict[str, tuple[Sequence[Answer], Sequence[Answer], str]] = {
    "options": (("options",), ("options",), "options=[{choice1}, {choice2}]"),
    "second": (("class", "classes", "number", "span", "text"), ("span",), "second={context}"),
    "heads": (("tags",), (), ""),
}
"""The kinds of answer that take a key, those that need it, and an example."""

_SECRETS: dict[Answer, tuple[Any, ...]] = {"number": (None, ""), "text": (None, ""), "classes": (None,)}
"""How files write that there is no label. Of numbers and texts −1 is a value; no class is an answer of several."""
_SECRET = (None, "", "-1", -1)  # of other answers: how published test splits write a label that they keep back


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
        what = "it takes the names of two labels or more"
        refuse(self.answer in NAMED and len(self.names) < 2, what, key="labels", value=self.labels)
        for key, (takes, needs, example) in _KEYS.items():
            value, kind = getattr(self, key), f"an answer that is {self.answer}"
            fix = f"leave it out, or set answer={takes[0]}"
            refuse(value and self.answer not in takes, f"{kind} has none", fix, key=key, value=value)
            refuse(not value and self.answer in needs, f"{kind} needs it", f"set it, as in {example}", key=key)

    @property
    def unit(self) -> tuple[str, str] | None:
        """The name and the template of what examples share that are held out together; None: each is held out alone."""
        if self.group is not None:
            return "group", self.group
        return ("context", str(self.second)) if self.answer == "span" else None

    def example(self, row: Row, *, secret: bool) -> Example | None:
        """The example of a row, None for one that is dropped; its label may be missing where that is `secret`."""
        value = value_of(self.label, row, "label")
        is_absent = self._is_absent(value)
        if is_absent and not secret:
            if self.missing == "dropped":
                return None
            what, fix = "it has no label", "write one, or leave such examples out: data.missing=dropped"
            if self.answer == "span":
                what, fix = "it has no answer", "set data.none=allowed where questions may have no answer"
            raise ScalingError(what, key="label", value=self.label, fix=fix)
        example = self.question(row)
        group = None if self.group is None else fill(self.group, row, "group")
        unit = None if self.unit is None else fill(self.unit[1], row, "group")
        answered = {} if is_absent else self._answered(value, example.texts, row)
        return replace(example, group=group, unit=unit, **answered)

    def question(self, row: Row) -> Example:
        """The example of a row that has no label."""
        heads = None
        if self.answer == "tags":
            texts = self._words("text", row)
            refuse(not texts, "it is empty", key="text")
        else:
            texts = tuple(self._filled(key, row) for key in ("text", "second") if getattr(self, key) is not None)
        if self.answer == "options":
            texts = (*texts, *self._options(row))
        if self.heads is not None:
            named = self._words("heads", row)
            what = f"it has {plural(len(texts), 'word')} and {plural(len(named), 'head')}"
            refuse(len(named) != len(texts), what, key="heads")
            places(named)  # refuses what is not a tree
            heads = tuple(map(int, named))
        prompt = " ".join(texts) if self.prompt is None else self._filled("prompt", row)
        return Example(texts=texts, prompt=prompt, heads=heads)

    def _options(self, row: Row) -> Sequence[str]:
        """The options of a row: of a template each, or of one that yields a list of them."""
        values = [value_of(template, row, "options") for template in self.options or ()]
        options = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
        refuse(None in options, "one of them is empty", key="options")
        refuse(len(options) < 2, f"it has {len(options)} options, and two are the fewest", key="options")
        return list(map(str, options))

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

    def _is_absent(self, value: Any) -> bool:
        """Whether a field has no label."""
        if self.answer == "span":
            is_none = isinstance(value, Mapping) and not value.get("text")
            return value is None or (is_none and self.none == "refused")
        if isinstance(value, list | tuple | Mapping):
            return self.answer != "classes" and not value
        is_secret = value in _SECRETS.get(self.answer, _SECRET) and spelled(value) not in (*self.values, *self.names)
        return is_secret or value != value

    def _answered(self, value: Any, texts: Sequence[str], row: Row) -> dict[str, Any]:
        """The answer that a label means, and what is learned of it."""
        several = value if isinstance(value, list | tuple) else [value]
        match self.answer:
            case "class":
                answer = self.class_of(value)
                return {"answer": answer, "target": self.names[answer]}
            case "classes":
                answer = sorted({self.class_of(label) for label in listed(value, "classes")})
                return {"answer": answer, "target": ", ".join(self.names[label] for label in answer) or "none"}
            case "number":
                answer = _number(value)  # as text to the nearest fifth (Raffel et al. 2019, section 2.3, of STS-B)
                return {"answer": answer, "target": f"{round(answer * 5) / 5:.1f}"}
            case "options":
                right = self._option(several[0], texts[1:])
                answer = list(map(str, value)) if several is value else right
                return {"answer": answer, "right": right, "target": texts[1 + right]}
            case "tags":
                tags = listed(value, "tags")
                what = f"it has {plural(len(texts), 'word')} and {plural(len(tags), 'tag')}"
                refuse(len(tags) != len(texts), what, key="label")
                names = [self.names[self.class_of(tag)] for tag in tags]
                return {"answer": names, "target": " ".join(names)}
            case "span":
                return self._span(value, texts[1])
        target = str(several[0]) if self.target is None else self._filled("target", row)
        return {"answer": list(dict.fromkeys([target, *map(str, several)])), "target": target}

    def class_of(self, value: Any) -> int:
        """The id of a class, by its name or by what the files write for it."""
        name = self.values.get(spelled(value), spelled(value))
        if name not in self.names:
            fix = f"{nearest(name, self.names)} or give its meaning in data.labels"
            raise ScalingError("there is no such label", key="label", value=value, fix=fix)
        return self.names.index(name)

    def _option(self, value: Any, options: Sequence[str]) -> int:
        """The number of an option: by `labels` (A, B, …), by its number from 0, or where a text is given by its text,
        the first of several.
        """
        name = spelled(value)
        if self.names:
            number = self.class_of(value)
        elif name in options and not isinstance(value, int):
            number = options.index(name)
        else:
            number = int(name) if name.isdecimal() else -1
        what, fix = f"the {len(options)} options, counted from 0, have no", "give the number of one, or its text"
        refuse(not 0 <= number < len(options), what, fix, key="label", value=value)
        return number

    def _span(self, value: Any, context: str) -> dict[str, Any]:
        texts, starts = list[Any](), list[Any]()
        match value:
            case {"text": [*texts], "answer_start": [*starts]}:
                is_span = len(texts) == len(starts) and all(isinstance(start, int) and start >= 0 for start in starts)
            case _:
                is_span = False
        what = "a span is {text: [TEXT, …], answer_start: [CHARACTER, …]}"
        refuse(not is_span, what, key="label", value=self.label)
        for text, start in zip(texts, starts):
            what = f"the span {text!r} is not in its context at {start}"
            refuse(context[start : start + len(str(text))] != text, what, key="label")
        if not texts:
            return {"answer": [], "target": NO_ANSWER}
        return {"answer": texts, "span": (starts[0], starts[0] + len(texts[0])), "target": texts[0]}


def listed(value: Any, answer: Answer) -> list[Any]:
    """The labels that a field holds: a list of them, or names in a text."""
    if isinstance(value, str) and answer in ("classes", "tags"):
        labels = map(str.strip, value.split("," if answer == "classes" else None))
        return [label for label in labels if label]
    return list(value) if isinstance(value, list | tuple) else [] if value in (None, "") else [value]


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
    above = [0]
    for head in map(str, heads):
        if not head.isdecimal() or int(head) > len(heads):
            what = f"the sentence has {plural(len(heads), 'word')}, and the head is none of them"
            raise ScalingError(what, key="heads", value=head, fix="write its number, or 0")
        above.append(int(head))
    paths: list[list[int]] = []  # from the root down to each word
    for word in range(1, len(above)):
        path = [word]
        while path[0]:
            path.insert(0, above[path[0]])
            refuse(len(path) > len(above), "the heads of the sentence form a circle", key="heads")
        paths.append(path)
    firsts = {path[-1]: number for number, path in enumerate(sorted(paths), 1)}
    sizes = Counter(word for path in paths for word in path)
    return [(len(path) - 1, firsts[path[-1]], firsts[path[-1]] + sizes[path[-1]]) for path in paths]
