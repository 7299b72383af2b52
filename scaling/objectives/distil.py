"""Distillation: the loss of a student that learns the batches of another objective from a teacher too."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.base.numbers import Fraction, NonNegativeFloat, PositiveFloat
from scaling.config.schema import Recipe
from scaling.data.source import Rows, Vocabulary
from scaling.data.task.answers import KINDS, Goal
from scaling.model.contract import Head
from scaling.model.family import Family as Model
from scaling.model.family import Loss, counted, losses_of, predict
from scaling.objectives.causal import Family


class Distil:
    """(1 − w) · CE(targets) + w · τ² · KL(softmax(teacher / τ) ‖ softmax(student / τ)). (Hinton et al. 2015)

    The batches are those of another objective. `teacher` names a run of the ledger, or a folder with a model in it.

    Of a task, the teacher is a finetuned run of the student's family. Several classes are compared by their own
    chances, numbers by the squared distance. Examples without a label learn from the teacher alone. With
    `hidden`, that weight times 1 − cos of the last hidden vectors of each token is added (Sanh et al. 2019).
    """

    families = ("encoder", "decoder", "encoder_decoder")

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        objective: Recipe,
        teacher: str,
        weight: Fraction = 0.5,
        temperature: PositiveFloat = 1.0,
        hidden: NonNegativeFloat = 0.0,
    ):
        self.teacher = teacher
        self.student: Any = objective(vocabulary, length, family)
        what = "a teacher has one direction, and the other one would not learn"
        refuse(self.student.previous, what, "take objective: Causal", key="objective.objective", value="BothWays")
        self.weight, self.temperature, self.hidden = weight, temperature, hidden

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        return self.student(rows, keys)

    def __getattr__(self, name: str) -> Any:
        """Take all else from the student's objective: its vocabulary, its rows, the predictions."""
        if name.startswith("__") or name == "student":
            raise AttributeError(name)
        return getattr(self.student, name)

    def loss(self, student: Model, batch: Batch, teacher: Model) -> Loss:
        """The mean over targets or labels, and by name the losses of further heads and the parts that are means over
        rows: a task's distance to the teacher's predictions, and the distance of the hidden vectors.
        """
        output, head = student(batch), student.head
        with torch.no_grad():
            above = teacher(batch)
            goal = predict(teacher.head, above, batch)
        means = {
            name: losses_of(each, output, batch, weights=weights).sum() / counted(each, batch).clamp(min=1)
            for name, (each, weights) in student.heads_of(batch).items()
            if name != "tokens" or head.answer is not None  # those of a language model are in `of_tokens`
        }
        own, parts = predict(head, output, batch), {**output.auxiliary, **means}
        if head.answer is None:
            mean = self.of_tokens(own, goal, batch)
        else:
            mean = (1 - self.weight) * parts.pop("tokens")
            parts["soft"] = self.weight * self._soft(own, goal, head, batch)
        if self.hidden:
            parts["hidden"] = self.hidden * _apart(output.hidden, above.hidden, batch)
        return Loss(mean, parts)

    def _soft(self, student: Tensor, goal: Tensor, head: Head, batch: Batch) -> Tensor:
        """The mean over rows of the distance to the teacher's predictions."""
        refuse(
            student.shape != goal.shape,
            f"the teacher predicts {_shape(goal)} and the student {_shape(student)} of the same examples",
            "take a teacher of the same task, with the same head",
            key="objective.teacher",
            value=self.teacher,
        )
        student, goal = student.float(), goal.float()
        kind = KINDS.get(head.answer or "", Goal)
        if kind.chances is None:
            return F.mse_loss(student, goal)
        student, goal = student / self.temperature, goal / self.temperature
        if kind.chances == "sigmoid":
            each = F.binary_cross_entropy_with_logits(student, goal.sigmoid(), reduction="none")
            each = each - F.binary_cross_entropy_with_logits(goal, goal.sigmoid(), reduction="none")
        else:
            log_own, log_goal = student.log_softmax(-1), goal.log_softmax(-1)
            chance = log_goal.exp()
            each = (chance * (log_goal - log_own)).masked_fill(chance == 0, 0).sum(-1)  # what no head allows is 0
        if kind.is_of_words and batch.documents is not None:
            real = (batch.documents > 0).float()
            each = (each * real).sum(1) / real.sum(1).clamp(min=1)
        return self.temperature**2 * each.mean()

    def of_tokens(self, logits: Tensor, goal: Tensor, batch: Batch) -> Tensor:
        """The mean over the targets that count, from the logits [b t v] of student and teacher."""
        refuse(
            goal.shape[-1] != logits.shape[-1],
            f"the teacher knows {goal.shape[-1]:,} tokens and the student {logits.shape[-1]:,}",
            "train both on the same data and tokenizer",
            key="objective.kind",
            value="Distil",
        )
        counts = batch.targets != IGNORE
        student, taught = logits[counts].float(), goal[counts].float()
        few = counts.sum().clamp(min=1)  # a micro batch may hold no target
        hard = F.cross_entropy(student, batch.targets[counts], reduction="sum") / few
        log_own, log_goal = ((side / self.temperature).log_softmax(-1) for side in (student, taught))
        soft = F.kl_div(log_own, log_goal, reduction="sum", log_target=True) / few
        return (1 - self.weight) * hard + self.weight * self.temperature**2 * soft


def _apart(own: Tensor, goal: Tensor, batch: Batch) -> Tensor:
    """The mean over rows and their tokens of 1 − cos of two hidden vectors. (Sanh et al. 2019, section 3)"""
    refuse(
        own.shape != goal.shape,
        f"the teacher's hidden vectors are {_shape(goal)} and the student's {_shape(own)}",
        "set it to 0, or take a student of the teacher's width and family",
        key="objective.hidden",
    )
    real = torch.ones_like(batch.tokens, dtype=own.dtype) if batch.documents is None else (batch.documents > 0).to(own)
    distance = 1 - F.cosine_similarity(own, goal, dim=-1)
    return ((distance * real).sum(1) / real.sum(1).clamp(min=1)).mean()


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
