"""Probes: how well a linear classifier predicts something from the stream of each layer, next to a control task that
only memory can solve. (Alain and Bengio 2016; Hewitt and Liang 2019)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError
from scaling.inside.labelled import Labelled
from scaling.inside.maps import TowerName
from scaling.inside.stream import stream
from scaling.metric import bootstrap
from scaling.metric.interval import Interval
from scaling.metric.metric import Metric, ratio
from scaling.model.family import Family

TOKENS = 8192  # of a forward pass
ITERATIONS = 200


@dataclass(frozen=True)
class LayerScore:
    """The scores of a layer's probe on held-out texts: 0 is what the first block is given, n the stream after n blocks.

    `selectivity` is accuracy − control. Intervals are 95% over the texts, the same ones for all three.
    """

    layer: int
    accuracy: Interval
    control: Interval
    selectivity: Interval


@dataclass(frozen=True)
class Baselines:
    """The accuracy of the commonest class, and of the commonest class of each type (a word, a symbol), both as counted
    in the training texts.
    """

    majority: float
    type: float


@dataclass(frozen=True, kw_only=True)
class Selectivity(Metric):
    """The accuracy of a probe and of its control, and the difference; a row is a text."""

    main = "accuracy"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        return np.array([(real.sum(), control.sum(), len(real)) for real, control in predictions], float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        real, control = ratio(sums[:, 0], sums[:, 2]), ratio(sums[:, 1], sums[:, 2])
        return {"accuracy": real, "control": control, "selectivity": real - control}


def probe(
    model: Family,
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    classes: int,
    *,
    penalty: float = 1e-3,
    seed: int = 0,
    pad: int = 0,
) -> list[LayerScore]:
    """The scores of every layer; `seed` draws the control task."""
    if not train or not test:
        raise ScalingError("there is no text with a class", key="TASK", fix="take a split that has labels")
    control = Control.drawn(train, test, classes, seed)
    known, held = (layers(model, texts, pad) for texts in (train, test))
    labels, others = _labels(train), control.labels(train)
    scores = []
    for layer, (x, new) in enumerate(zip(known, held, strict=True)):
        right = classify(x, labels, new, classes, penalty) == _labels(test)
        recalled = classify(x, others, new, classes, penalty) == control.labels(test)
        ends = np.cumsum([len(text.labels) for text in test])[:-1]
        rows = list(zip(np.split(right, ends), np.split(recalled, ends), strict=True))
        values = bootstrap(Selectivity(), rows, rows, seed=seed)
        scores.append(LayerScore(layer, values["accuracy"], values["control"], values["selectivity"]))
    return scores


def baselines(train: Sequence[Labelled], test: Sequence[Labelled]) -> Baselines:
    every = Counter(_labels(train).tolist())
    commonest = every.most_common(1)[0][0]
    by_type: dict[Hashable, Counter[int]] = {}
    for text in train:
        for kind, label in zip(text.types, text.labels.tolist(), strict=True):
            by_type.setdefault(kind, Counter())[label] += 1
    best = {kind: counts.most_common(1)[0][0] for kind, counts in by_type.items()}
    labels = _labels(test)
    guessed = np.array([best.get(kind, commonest) for text in test for kind in text.types])
    return Baselines(float((labels == commonest).mean()), float((labels == guessed).mean()))


@dataclass(frozen=True)
class Control:
    """A class for each type, drawn as often as the task's classes occur: what a probe can only learn by heart."""

    classes: Mapping[Hashable, int]

    @staticmethod
    def drawn(train: Sequence[Labelled], test: Sequence[Labelled], classes: int, seed: int) -> Control:
        types = sorted({kind for text in (*train, *test) for kind in text.types}, key=str)
        chances = np.bincount(_labels(train), minlength=classes).astype(float)
        drawn = np.random.default_rng(seed).choice(classes, len(types), p=chances / chances.sum())
        return Control(dict(zip(types, drawn.tolist(), strict=True)))

    def labels(self, texts: Sequence[Labelled]) -> np.ndarray:
        return np.array([self.classes[kind] for text in texts for kind in text.types])


@torch.no_grad()
def layers(model: Family, texts: Sequence[Labelled], pad: int = 0) -> list[Tensor]:
    """[n w] of each layer: the stream at the places of all texts, in their order."""
    model.eval()
    tower: TowerName = "decoder" if model.family == "decoder" else "encoder"
    device = next(model.parameters()).device
    parts: list[tuple[Sequence[int], list[Tensor]]] = []
    for numbers in _groups(texts):
        own = [texts[number] for number in numbers]
        seen = stream(model, _batch(model, own, pad).to(device), tower)
        width = max(len(text.tokens) for text in own)
        if any(x.shape[1] != width for x in seen):
            what = "the stack changes the number of tokens, so that its layers have no place for each"
            raise ScalingError(what, key="RUN", fix="take a run of another stack")
        row = torch.repeat_interleave(torch.arange(len(own)), torch.tensor([len(text.places) for text in own]))
        place = torch.from_numpy(np.concatenate([text.places for text in own]))
        parts.append((numbers, [x[row.to(device), place.to(device)].float().cpu() for x in seen]))
    count = len(parts[0][1])
    order = np.argsort([number for numbers, _ in parts for number in numbers])
    split = [
        [piece for numbers, seen in parts for piece in seen[layer].split([len(texts[n].places) for n in numbers])]
        for layer in range(count)
    ]
    return [torch.cat([pieces[place] for place in order]) for pieces in split]


def classify(x: Tensor, labels: np.ndarray, new: Tensor, classes: int, penalty: float) -> np.ndarray:
    """The classes of `new` by softmax regression on (x, labels): argmin of −mean ln p + penalty ‖W‖² / 2, over features
    of mean 0 and variance 1. The minimum is unique, so that no seed decides it.
    """
    mean, scale = x.mean(0), x.std(0, correction=0).clamp(min=1e-6)
    x, new = (x - mean) / scale, (new - mean) / scale
    y = torch.from_numpy(labels)
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe", tolerance_change=1e-7
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), y) + penalty / 2 * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)  # type: ignore[arg-type]
    return F.linear(new, weight, bias).argmax(-1).detach().numpy()


def _labels(texts: Sequence[Labelled]) -> np.ndarray:
    return np.concatenate([text.labels for text in texts])


def _groups(texts: Sequence[Labelled]) -> Iterator[list[int]]:
    """Numbers of texts of similar lengths, of at most `TOKENS` tokens with their padding."""
    group: list[int] = []
    for number in sorted(range(len(texts)), key=lambda number: len(texts[number].tokens)):
        if group and (len(group) + 1) * len(texts[number].tokens) > TOKENS:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _batch(model: Family, texts: Sequence[Labelled], pad: int) -> Batch:
    width = max(len(text.tokens) for text in texts)
    tokens, documents = torch.full((len(texts), width), pad), torch.zeros(len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        tokens[row, : len(text.tokens)], documents[row, : len(text.tokens)] = torch.tensor(text.tokens), 1
    padded = None if bool(documents.all()) else documents
    ignored = torch.full_like(tokens, IGNORE)
    if model.family != "encoder_decoder":
        return Batch(tokens, ignored, documents=padded)
    written = tokens.new_zeros(len(texts), 1)
    return Batch(written, torch.full_like(written, IGNORE), source=tokens, source_documents=padded)
