"""Heads of tasks on the body of an encoder: a format for a class of the text, one for tags, and one for a span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaling.interop.template import Format, Names, table

CLASSES = Names(("id2label",))
OUT = "head.out.{weight,bias}   classifier.{weight,bias}"
SPAN = "head.out.{weight,bias}   qa_outputs.{weight,bias}"


def with_heads(
    body: type[Format], names: str, places: Mapping[str, str], pool: Mapping[str, Any], pooled: str, dropout: Any
) -> tuple[type[Format], type[Format], type[Format]]:
    """The formats of a pretrained encoder with the heads of tasks, each of which has its own table.

    `names` are those of the body's tensors, `pool` is what the head of a class does before its classes, and `pooled`
    names its tensors. (Devlin et al. 2018, sections 4 and 5)
    """
    title, stem = str(body.__doc__).partition(":")[0], body.architecture.partition("For")[0]

    def joined(prefix: str, answer: str, task: str, head: Mapping[str, Any], tensors: str) -> type[Format]:
        parts = {
            "__doc__": f"{title} with {answer}. (Devlin et al. 2018)",
            "__module__": body.__module__,
            "architecture": f"{stem}For{task}",
            "model": {**body.model, "head": head, "sentence": None, "tie": []},
            "names": table(f"{names}\n{tensors}", **places),
            "copies": {},
        }
        return type(f"{prefix}{body.__name__}", (body,), parts)

    sequence = {"kind": "Sequence", "classes": CLASSES, **pool}
    tokens = {"kind": "Tokens", "classes": CLASSES, "dropout": dropout}
    return (
        joined("Classifying", "a class of the text", "SequenceClassification", sequence, pooled),
        joined("Tagging", "a class of each token", "TokenClassification", tokens, OUT),
        joined("Answering", "a span of the text", "QuestionAnswering", {"kind": "Span"}, SPAN),
    )
