"""What was learned of the spans: `python spans.py pretrain_encoder_decoder.yaml RUNS RUN …`, after the pretraining.

The held-out loss of each run over all targets and over those that are text, the same where the encoder reads another
row's source, and the loss of a bigram of the targets, counted over the same training batches, which reads no source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.interop.run import read
from scaling.training.evaluation import Evaluation
from scaling.training.experiment import Experiment, assemble


def main() -> None:
    config, runs, *names = sys.argv[1:]
    experiment = assemble(load(config, [f"runs={runs}"]))
    print("| | all targets | text |")
    print("|---|--:|--:|")
    for name in names:
        model = read(name, runs).model()
        for title, change in (("", lambda batch: batch), (", sources shuffled", shuffled)):
            evaluation = Evaluation(*experiment.evaluation())
            for batch in held_out(experiment):
                evaluation.add(model, change(batch))
            measured = evaluation.measured()
            print(f"| {name}{title} | {measured['loss']:.3f} | {measured['loss_text']:.3f} |", flush=True)
    print("| bigram of the targets | {:.3f} | {:.3f} |".format(*bigram(experiment)))


def held_out(experiment: Experiment) -> Iterator[Batch]:
    batches, count = experiment.evaluation()
    return (batches.batch(step) for step in range(count))


def shuffled(batch: Batch) -> Batch:
    """Each row's encoder reads the source of the row before it."""
    return replace(batch, source=rolled(batch.source), source_documents=rolled(batch.source_documents))


def rolled(rows: torch.Tensor | None) -> torch.Tensor | None:
    return None if rows is None else rows.roll(1, 0)


def bigram(experiment: Experiment) -> tuple[float, float]:
    """Interpolated counts, (c(a b) + k p(b)) / (c(a) + k); k is chosen on the last tenth of the training batches.

    All sentinels are one token: their order is known.
    """
    objective: Any = experiment.batches.objective
    vocabulary = objective.vocabulary
    size, first = vocabulary.size, vocabulary["sentinel_0"]
    tenth = experiment.steps - experiment.steps // 10
    parts = range(tenth), range(tenth, experiment.steps)
    train = [counted((experiment.batches.batch(step) for step in part), size, first) for part in parts]
    k = min((2.0**power for power in range(12)), key=lambda k: losses(train[0], pairs_of(train[1]), k, size).mean())
    pairs = np.concatenate([pairs_in(batch, first) for batch in held_out(experiment)])
    found = losses(train[0] + train[1], pairs, k, size)
    return found.mean(), found[vocabulary.is_text[pairs[:, 1]]].mean()


def pairs_in(batch: Batch, sentinel: int) -> np.ndarray:
    """[n 2]: each target behind the token before it."""
    bears = batch.targets != IGNORE
    return torch.stack([batch.tokens[bears], batch.targets[bears]], 1).clamp(max=sentinel).numpy()


def counted(batches: Iterable[Batch], size: int, sentinel: int) -> np.ndarray:
    counts = np.zeros((size, size), np.int32)
    for batch in batches:
        pairs = pairs_in(batch, sentinel)
        np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    return counts


def pairs_of(counts: np.ndarray) -> np.ndarray:
    pairs = np.argwhere(counts)
    return np.repeat(pairs, counts[tuple(pairs.T)], axis=0)


def losses(counts: np.ndarray, pairs: np.ndarray, k: float, size: int) -> np.ndarray:
    before, after = pairs.T
    prior = (counts.sum(0) + 1) / (counts.sum() + size)
    return -np.log((counts[before, after] + k * prior[after]) / (counts.sum(1)[before] + k))


if __name__ == "__main__":
    main()
