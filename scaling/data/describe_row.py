"""A row of a batch spelled out for a person: what the model reads, what it must predict, and what was done to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.source import Source, Vocabulary
from scaling.data.task.source import Examples

Kind = str  # one of those that `Run` describes
_ENOUGH = 192  # tokens of a row that are shown
_HIDDEN = {"filling": "", "silent": " · "}  # kinds whose tokens are not spelled out


@dataclass(frozen=True)
class Run:
    """Neighbouring tokens of one kind.

    text, other    what is read, documents in turn      prefix   what is read and sees all of itself
    kept, changed  chosen to be predicted, as it was    target   what must be predicted
                   or disguised                         silent   what bears no loss
    special        <eos>, <mask>, <sentinel_0> …        filling  what is not there
    """

    kind: Kind
    text: str


def describe_row(batch: Batch, row: int, source: Source, vocabulary: Vocabulary, family: str) -> dict[str, list[Run]]:
    """The runs of a row's `source` (where it has one), `reads` and `predicts`, as a model of the family meets it."""
    specials = {index: f"<{name}>" for name, index in vocabulary.specials.items()}

    def spelled(kind: Kind, ids: list[int]) -> str:
        if kind == "special":
            return "".join(specials[token] for token in ids)
        return _HIDDEN[kind] if kind in _HIDDEN else source.decode(np.array(ids))

    def runs(ids: np.ndarray, kinds: Sequence[Kind]) -> list[Run]:
        marked = [
            ("special" if kind not in _HIDDEN and token in specials else kind, token)
            for token, kind in zip(ids[:_ENOUGH].tolist(), kinds)
        ]
        groups = groupby(marked, key=lambda pair: pair[0])
        described = [Run(kind, spelled(kind, [token for _, token in group])) for kind, group in groups]
        return described + [Run("silent", "…")] * (len(ids) > _ENOUGH)

    tokens, targets = _row(batch.tokens, row), _row(batch.targets, row)
    documents = np.ones_like(tokens) if batch.documents is None else _row(batch.documents, row)
    kinds = [_read(number) for number in documents.tolist()]
    if batch.prefix is not None:
        for place in range(int(batch.prefix[row])):
            kinds[place] = "prefix"
    if family == "encoder":  # tokens are predicted in their own places
        for place in np.flatnonzero(targets != IGNORE):
            kinds[place] = "kept" if tokens[place] == targets[place] else "changed"
    lines = {"reads": runs(tokens, kinds)}
    if batch.source is not None:
        question = _row(batch.source, row)
        inside = np.ones_like(question) if batch.source_documents is None else _row(batch.source_documents, row)
        lines = {"source": runs(question, [_read(number) for number in inside.tolist()]), **lines}
    borne: list[Kind] = ["silent" if target == IGNORE else "target" for target in targets]
    if batch.examples is not None and source.gives == "examples":
        lines["answer"] = [Run("target", _answer(source, int(batch.examples[row])))]  # type: ignore[arg-type]
    if batch.labels is not None and not (targets != IGNORE).any():
        return lines
    return {**lines, "predicts": runs(targets, borne)}


def _answer(source: Examples, index: int) -> str:
    """The label of an example in words."""
    example = source.examples[index]
    if source.task.answer == "class" and example.answer is not None:
        return source.task.labels[example.answer]
    return example.target or str(example.answer)


def _read(document: int) -> Kind:
    if document == 0:
        return "filling"
    return "text" if document % 2 else "other"


def _row(tensor: Tensor, row: int) -> np.ndarray:
    return tensor[row].numpy()
