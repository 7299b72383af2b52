from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.build import Recipe
from scaling.data.source import Rows, Vocabulary
from scaling.errors import ScalingError
from scaling.number import Fraction, PositiveFloat
from scaling.objective.objective import Family, Objective


class Distil:
    """(1 − w) · CE(targets) + w · τ² · KL(softmax(teacher / τ) ‖ softmax(student / τ)). (Hinton et al. 2015)

    The batches are those of another objective. `teacher` names a run of the ledger, or a folder with a model in it; the
    trainer reads it and hands over a function from a batch to its logits.
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
    ):
        self.teacher = teacher
        self.student: Objective = objective(vocabulary, length, family)
        self.takes = self.student.takes
        self.separates = getattr(self.student, "separates", ())
        self.is_code = getattr(self.student, "is_code", False)
        self.vocabulary, self.reads, self.others = self.student.vocabulary, self.student.reads, self.student.others
        self.weight, self.temperature = weight, temperature

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        return self.student(rows, keys)

    def loss(self, logits: Tensor, batch: Batch, teacher: Callable[[Batch], Tensor]) -> Tensor:
        """The mean over the targets that count, from the student's logits [b t v]."""
        counts = batch.targets != IGNORE
        with torch.no_grad():
            taught = teacher(batch)[counts].float()
        if taught.shape[-1] != logits.shape[-1]:
            raise ScalingError(
                f"the teacher knows {taught.shape[-1]:,} tokens and the student {logits.shape[-1]:,}",
                key="objective.kind",
                value="Distil",
                fix="train both on the same data and tokenizer",
            )
        own = logits[counts].float()
        few = counts.sum().clamp(min=1)  # a micro batch may hold no target
        hard = F.cross_entropy(own, batch.targets[counts], reduction="sum") / few
        soft = (
            F.kl_div(
                F.log_softmax(own / self.temperature, -1),
                F.log_softmax(taught / self.temperature, -1),
                reduction="sum",
                log_target=True,
            )
            / few
        )
        return (1 - self.weight) * hard + self.weight * self.temperature**2 * soft
