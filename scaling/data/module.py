"""DataModule: a run's batches as Lightning asks for them. All the state of a loader is the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch
from lightning.pytorch import LightningDataModule

from scaling.batch import Batch
from scaling.data.batches import Batches
from scaling.data.prefetch import ahead


@dataclass
class Loader:
    """One rank's batches of the steps from `start` to `stop`. Each iteration begins at `start`."""

    batches: Batches
    start: int
    stop: int | None  # None: without end
    rank: int = 0
    ranks: int = 1
    depth: int = 2

    def __iter__(self) -> Iterator[Batch]:
        return (batch for _, batch in self._numbered(self.start))

    def __len__(self) -> int:
        if self.stop is None:
            raise TypeError("these batches have no end")
        return max(0, self.stop - self.start)

    def _numbered(self, first: int) -> Iterator[tuple[int, Batch]]:
        return zip(self._steps(first), ahead(self._batch, self._steps(first), self.depth))

    def _batch(self, step: int) -> Batch:
        return self.batches.batch(step, self.rank, self.ranks)

    def _steps(self, first: int) -> Iterator[int]:
        return count(first) if self.stop is None else iter(range(first, self.stop))


@dataclass
class TrainingLoader(Loader):
    """A loader whose next iteration goes on where the one before stopped, and begins at `start` after the last step.
    Lightning's checkpoints keep which step comes next.
    """

    def __post_init__(self) -> None:
        self._next = self.start

    def __iter__(self) -> Iterator[Batch]:
        # Lightning stops by the loader's length and does not ask for the end, so an epoch may end at `stop`.
        if self.stop is not None and self._next >= self.stop:
            self._next = self.start
        for step, batch in self._numbered(self._next):
            self._next = step + 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


class DataModule(LightningDataModule):
    """Training batches from step `start` to `stop`, and the fixed batches of an evaluation."""

    def __init__(
        self,
        train: Batches,
        validation: Batches,
        evaluations: int,
        start: int = 0,
        stop: int | None = None,
    ):
        super().__init__()
        self.train, self.validation, self.evaluations = train, validation, evaluations
        self.start, self.stop = start, stop

    def train_dataloader(self) -> TrainingLoader:
        rank, ranks = self._place()
        return TrainingLoader(self.train, self.start, self.stop, rank, ranks)

    def val_dataloader(self) -> Loader:
        rank, ranks = self._place()
        return Loader(self.validation, 0, self.evaluations, rank, ranks)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        return batch if device.type == "cpu" else batch.to(device)

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
