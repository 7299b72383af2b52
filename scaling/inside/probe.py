"""Probes: what a layer's states tell a linear classifier of labelled words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scaling.base.errors import refuse
from scaling.config.schema import build
from scaling.data.store import root
from scaling.data.synthetic.language import Language, Synthetic
from scaling.data.task.source import Examples
from scaling.evaluation.generate import aligned, framing, prompt
from scaling.evaluation.likelihood import batches
from scaling.inside.look import stream, towers
from scaling.interop.pretrained import Pretrained
from scaling.metrics.metric import Metric, bootstrap
from scaling.model.family import Family
from scaling.training.finetune import unfinetuned

RANKS, SUCCESSOR = "ranks", "successor"
"""What a run on a synthetic language can be probed for: the rank of each symbol and the likeliest symbol after it."""
TAGS = 4  # ranks 0, 1, 2 and all further ones


@dataclass(frozen=True)
class Labelled:
    """A text as the model reads it; at each of `places` a class and the type (a word, a symbol) of what is there."""

    tokens: Sequence[int]
    places: np.ndarray
    labels: np.ndarray
    types: Sequence[Hashable]


@dataclass(frozen=True)
class Reading:
    """The way in which a run reads a text: its family, its special tokens and its window."""

    family: str
    ids: Mapping[str, int]
    length: int

    def labelled(
        self, tokens: Sequence[int], places: np.ndarray, labels: np.ndarray, types: Sequence[Hashable]
    ) -> Labelled:
        """What of a text fits into the window; places are counted from its own first token, −1 of what has none."""
        before, after = framing(self.family, self.ids)
        room = self.length - len(before) - len(after)
        visible = np.flatnonzero((places >= 0) & (places < min(len(tokens), room)))
        of = [types[number] for number in visible.tolist()]
        read = [*before, *tokens[:room], *after]
        return Labelled(read, places[visible] + len(before), labels[visible], of)


def of_task(source: Examples, reading: Reading) -> Iterator[Labelled]:
    """The words of a task of tags, each at its last token where no token sees those after it, else at its first."""
    for number, example in enumerate(source.examples):
        if example.answer is None:
            continue
        item = source.items[number]
        places = item.pieces[:, 1 if reading.family == "decoder" else 0]
        labels = np.asarray(item.label, np.int64)
        yield reading.labelled(item.parts[0].tolist(), np.asarray(places, np.int64), labels, example.texts)


def of_language(law: Synthetic, task: str, split: str, reading: Reading) -> Iterator[Labelled]:
    """The rank of each symbol after those before it, up to `TAGS` − 1, the state that the symbols are made of; or the
    symbol of rank 0 after each symbol and those before it, what has to be known to predict the next.
    """
    source, likeliest = Language(law, split), law.successors()[:, 0]
    # A decoder's text begins behind bos, its start; the windows of others have it as their first token.
    first = [] if reading.family == "decoder" else [law.symbols]
    for row in itertools.count():
        symbols, ranks = (drawn[0].astype(np.int64) for drawn in source.drawn(np.array([row]), reading.length))
        labels = np.minimum(ranks, TAGS - 1)
        if task == SUCCESSOR:
            labels = likeliest[law.contexts(symbols[None])[0, 1:]].astype(np.int64)
        places = np.arange(len(symbols)) + len(first)
        yield reading.labelled([*first, *symbols.tolist()], places, labels, symbols.tolist())


def texts_of(
    source: Pretrained, task: str, words: Sequence[str], runs: str | Path
) -> tuple[Sequence[str], Callable[[str, Reading], Iterator[Labelled]]]:
    """The classes and the texts of a split of a task of tags, or of what a run's own data can be probed for."""
    if task in (RANKS, SUCCESSOR):
        what = "overrides are of a task, and this probe reads the run's own data"
        refuse(words, what, "leave it out", key=" ".join(words))
        what, fix = "only a synthetic language has ranks", "take a run that was trained on data=synthetic"
        refuse(source.data.get("kind") != "Synthetic", what, fix, key="TASK", value=task)
        law = build("data", source.data)
        return [*map(str, range(TAGS if task == RANKS else law.symbols))], partial(of_language, law, task)
    data = build("data", unfinetuned(source, task, words, runs=runs))
    what = f"the answers are {data.answer}, and a probe predicts tags"
    refuse(not data.goal.is_of_words, what, "take a task of tags, as conll2003", key="TASK", value=task)
    return data.goal.labels, lambda split, reading: of_task(data.open(split, root(runs)), reading)


def some(texts: Iterable[Labelled], limit: int) -> list[Labelled]:
    """The first texts, until `limit` classes are reached."""
    chosen, count = [], 0
    for text in texts:
        if len(text.labels):
            chosen.append(text)
        count += len(text.labels)
        if count >= limit:
            break
    return chosen


TOKENS = 8192  # of a forward pass
ITERATIONS = 200


@dataclass(frozen=True, kw_only=True)
class Selectivity(Metric):
    """The accuracy of a probe and of its control, and the difference; a row is a text."""

    main = "accuracy"
    ratios: ClassVar = {"accuracy": (0, 2), "control": (1, 2)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        real, control = prediction
        return real.sum(), control.sum(), len(real)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        values = super().values(sums)
        return {**values, "selectivity": values["accuracy"] - values["control"]}


def probe(
    model: Family,
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    classes: int,
    *,
    penalty: float = 1e-3,
    seed: int = 0,
    pad: int = 0,
) -> list[dict[str, dict[str, float]]]:
    """The `accuracy` of each layer's probe on held-out texts, that of its `control`, and its `selectivity`, accuracy −
    control: of layer 0, which the first block is given, and of the stream after each block. Each is a `value` with the
    bounds `low` and `high` of its 95% interval over the texts, the same ones for all three. `seed` draws the control
    task.
    """
    refuse(not train or not test, "there is no text with a class", "take a split that has labels", key="TASK")
    control = control_task(train, test, classes, seed)
    fitted, held = (layers(model, texts, pad) for texts in (train, test))
    labels, held_labels = _labels(train), _labels(test)
    others, held_others = (
        np.array([control[kind] for text in texts for kind in text.types]) for texts in (train, test)
    )
    ends = np.cumsum([len(text.labels) for text in test])[:-1]
    scores = []
    for x, new in zip(fitted, held, strict=True):
        right = classify(x, labels, new, classes, penalty) == held_labels
        recalled = classify(x, others, new, classes, penalty) == held_others
        rows = list(zip(np.split(right, ends), np.split(recalled, ends), strict=True))
        measured = bootstrap(Selectivity(), rows, rows, seed=seed)
        each = ((name, value, *measured["intervals"][name]) for name, value in measured["metrics"].items())
        scores.append({name: {"value": value, "low": low, "high": high} for name, value, low, high in each})
    return scores


def baselines(train: Sequence[Labelled], test: Sequence[Labelled]) -> dict[str, float]:
    """The accuracy of the training texts' commonest class (`majority`), and of each `type`'s (a word, a symbol)."""
    label_counts = Counter(_labels(train).tolist())
    commonest = label_counts.most_common(1)[0][0]
    by_type: dict[Hashable, Counter[int]] = {}
    for text in train:
        for kind, label in zip(text.types, text.labels.tolist(), strict=True):
            by_type.setdefault(kind, Counter())[label] += 1
    best = {kind: counts.most_common(1)[0][0] for kind, counts in by_type.items()}
    labels = _labels(test)
    guessed = np.array([best.get(kind, commonest) for text in test for kind in text.types])
    return {"majority": float((labels == commonest).mean()), "type": float((labels == guessed).mean())}


def control_task(
    train: Sequence[Labelled], test: Sequence[Labelled], classes: int, seed: int
) -> Mapping[Hashable, int]:
    """A class for each type, drawn as often as the task's classes occur: what a probe can only learn by heart."""
    types = sorted({kind for text in (*train, *test) for kind in text.types}, key=str)
    chances = np.bincount(_labels(train), minlength=classes).astype(float)
    labels = np.random.default_rng(seed).choice(classes, len(types), p=chances / chances.sum())
    return dict(zip(types, labels.tolist(), strict=True))


@torch.no_grad()
def layers(model: Family, texts: Sequence[Labelled], pad: int = 0) -> list[Tensor]:
    """[n w] of each layer: the stream at the places of all texts, in their order."""
    model.eval()
    tower, device = next(iter(towers(model))), next(model.parameters()).device
    pieces: dict[int, list[Tensor]] = {}
    for numbers in batches({number: len(text.tokens) for number, text in enumerate(texts)}, TOKENS):
        tokens, padded = aligned([texts[number].tokens for number in numbers], pad, left=False)
        batch = prompt(tokens, padded)
        if model.family == "encoder_decoder":
            batch = prompt(tokens.new_zeros(len(numbers), 1), source=tokens, source_documents=padded)
        seen = stream(model, batch.to(device), tower)
        width = len(texts[numbers[-1]].tokens)
        what = "the stack changes the number of tokens, so that its layers have no place for each"
        refuse(any(x.shape[1] != width for x in seen), what, "take a run of another stack", key="RUN")
        for row, number in enumerate(numbers):
            place = torch.from_numpy(texts[number].places).to(device)
            pieces[number] = [x[row, place].float().cpu() for x in seen]
    return [torch.cat(layer) for layer in zip(*(pieces[number] for number in range(len(texts))), strict=True)]


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
