"""A row of a batch spelled out for a person: what the model reads, what it must predict, and what was done to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.data.source import Source, Vocabulary
from scaling.data.task.source import Examples

_ENOUGH = 192  # tokens of a row that are shown
_HIDDEN = {"filling": "", "silent": " · "}  # kinds whose tokens are not spelled out


def describe_row(
    batch: Batch, row: int, source: Source, vocabulary: Vocabulary, family: str
) -> dict[str, list[dict[str, str]]]:
    """The runs of a row's `source` (where it has one), `reads` and `predicts`, as a model of the family meets it.

    A run is the `text` of neighbouring tokens of one `kind`:

    text, other    what is read, documents in turn      prefix   what is read and sees all of itself
    kept, changed  chosen to be predicted, as it was    target   what must be predicted
                   or disguised                         silent   what bears no loss
    special        <eos>, <mask>, <sentinel_0> …        filling  what is not there
    """
    specials = {index: f"<{name}>" for name, index in vocabulary.specials.items()}

    def spelled(kind: str, ids: list[int]) -> str:
        if kind == "special":
            return "".join(specials[token] for token in ids)
        return _HIDDEN[kind] if kind in _HIDDEN else source.decode(np.array(ids))

    def runs(ids: np.ndarray, kinds: Sequence[str]) -> list[dict[str, str]]:
        marked = [
            ("special" if kind not in _HIDDEN and token in specials else kind, token)
            for token, kind in zip(ids[:_ENOUGH].tolist(), kinds)
        ]
        groups = [(kind, [token for _, token in group]) for kind, group in groupby(marked, key=lambda pair: pair[0])]
        described = [{"kind": kind, "text": spelled(kind, tokens)} for kind, tokens in groups]
        return described + [{"kind": "silent", "text": "…"}] * (len(ids) > _ENOUGH)

    def numbered(ids: np.ndarray, documents: Tensor | None) -> list[str]:
        numbers = [1] * len(ids) if documents is None else documents[row].tolist()
        return ["filling" if number == 0 else "text" if number % 2 else "other" for number in numbers]

    tokens, targets = batch.tokens[row].numpy(), batch.targets[row].numpy()
    kinds = numbered(tokens, batch.documents)
    if batch.prefix is not None:
        kinds[: int(batch.prefix[row])] = ["prefix"] * int(batch.prefix[row])
    if family == "encoder":  # tokens are predicted in their own places
        for place in np.flatnonzero(targets != IGNORE):
            kinds[place] = "kept" if tokens[place] == targets[place] else "changed"
    lines = {"reads": runs(tokens, kinds)}
    if batch.source is not None:
        question = batch.source[row].numpy()
        lines = {"source": runs(question, numbered(question, batch.source_documents)), **lines}
    if batch.examples is not None and source.gives == "examples":
        lines["answer"] = [{"kind": "target", "text": _answer(source, int(batch.examples[row]))}]  # type: ignore[arg-type]
    bears = targets != IGNORE
    if batch.labels is None or bears.any():
        lines["predicts"] = runs(targets, ["target" if each else "silent" for each in bears])
    return lines


def _answer(source: Examples, index: int) -> str:
    """The label of an example in words."""
    example = source.examples[index]
    if source.task.answer == "class" and example.answer is not None:
        return source.task.labels[example.answer]
    return example.target or str(example.answer)
