"""DataModule: a run's batches as Lightning asks for them. All the state of a loader is the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from lightning.pytorch import LightningDataModule

from scaling.base.batch import Batch
from scaling.data.batches import Batches, ahead

HeldOut = tuple[Batches, int]  # the batches of an evaluation, and how many they are


@dataclass
class TrainingLoader:
    """One rank's batches from the step `next` up to the step `stop`. An iteration goes on where the one before stopped,
    after the last step at the first. Lightning's checkpoints keep which step comes next.
    """

    batches: Batches
    stop: int
    rank: int = 0
    ranks: int = 1
    next: int = 0
    overfits: bool = False  # a Trainer's `overfit_batches`: each iteration has the same batches

    def __iter__(self) -> Iterator[Batch]:
        # Lightning stops by the loader's length and does not ask for the end, so an epoch may end at `stop`.
        steps = range(0 if self.overfits or self.next >= self.stop else self.next, self.stop)
        made = ahead(lambda step: self.batches.batch(step, self.rank, self.ranks), steps)
        for step, batch in zip(steps, made):
            self.next = step + 1
            yield batch

    def __len__(self) -> int:
        return self.stop

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


@dataclass
class EvaluationLoader:
    """One rank's part of the batches of an evaluation: whole ones, so that each is computed as one rank alone would.

    All ranks have as many, since a sharded model needs all of them at each; where none is left, a spare one.
    """

    held_out: Callable[[], HeldOut]
    rank: int = 0
    ranks: int = 1

    def __iter__(self) -> Iterator[Batch]:
        batches, count = self.held_out()

        def make(step: int) -> Batch:
            return batches.batch(step) if step < count else batches.batch(count - 1).spare()

        yield from ahead(make, range(self.rank, -(-count // self.ranks) * self.ranks, self.ranks))

    def __len__(self) -> int:
        return -(-self.held_out()[1] // self.ranks)


class DataModule(LightningDataModule):
    """A run's training batches up to the step `stop`, and the fixed batches of an evaluation.

    `held_out` gives those of the evaluation at a step, the last one's for None: those that a Trainer validates on,
    unless a callback sets `evaluated`, the step of the next evaluation.
    """

    def __init__(self, train: Batches, held_out: Callable[[int | None], HeldOut], stop: int):
        super().__init__()
        self.train, self.held_out, self.stop = train, held_out, stop
        self.evaluated: int | None = None

    def train_dataloader(self) -> TrainingLoader:
        done, overfits = (getattr(self.trainer, key, 0) for key in ("global_step", "overfit_batches"))
        return TrainingLoader(self.train, self.stop, *self._place(), done, overfits > 0)

    def val_dataloader(self) -> EvaluationLoader:
        return EvaluationLoader(lambda: self.held_out(self.evaluated), *self._place())

    test_dataloader = predict_dataloader = val_dataloader

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch if device.type == "cpu" else batch.to(device)

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
