"""Probes: what a layer's states tell a linear classifier of labelled words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from scaling.batch import IGNORE, Batch
from scaling.data.codec import Codec
from scaling.data.store import root
from scaling.data.synthetic.language import Language, Synthetic
from scaling.data.task.source import Examples
from scaling.errors import ScalingError
from scaling.inside.heads import TowerName, stream
from scaling.inside.look import framed
from scaling.inside.statements import statements
from scaling.metric import bootstrap
from scaling.metric.interval import Interval
from scaling.metric.metric import Metric, ratio
from scaling.model.family import Family
from scaling.schema import build
from scaling.training.finetune import Pretrained, corpus, unfinetuned

RANKS, SUCCESSOR, TREE = "ranks", "successor", "python_tree"
"""What a run's own data can be probed for: the rank of each symbol of a synthetic language and the likeliest symbol
after it; the depth in Python's syntax tree.
"""
TAGS = 4  # ranks 0, 1, 2 and all further ones
DEEPEST = 8  # depths from 1; the last covers all further ones


@dataclass(frozen=True)
class Labelled:
    """A text as the model reads it; at each of `places` a class and the type (a word, a symbol) of what is there."""

    tokens: Sequence[int]
    places: np.ndarray
    labels: np.ndarray
    types: Sequence[Hashable]


@dataclass(frozen=True)
class Reading:
    """How a run reads a text: its family, its special tokens, and its window."""

    family: str
    ids: Mapping[str, int]
    length: int

    @property
    def reads_back(self) -> bool:
        """Whether a token sees nothing after it, so that a word is known at its last token."""
        return self.family == "decoder"

    def labelled(
        self, tokens: Sequence[int], places: np.ndarray, labels: np.ndarray, types: Sequence[Hashable]
    ) -> Labelled:
        """What of a text fits into the window; places are counted from its own first token, −1 of what has none."""
        before, after = self._frame
        most = self.length - before - after
        kept = np.flatnonzero((places >= 0) & (places < min(len(tokens), most)))
        line = framed(self.family, self.ids, {"text": tokens[:most], "target": []})
        tower = "decoder" if self.family == "decoder" else "encoder"
        return Labelled(line[tower], places[kept] + before, labels[kept], [types[number] for number in kept.tolist()])

    @property
    def _frame(self) -> tuple[int, int]:
        """How many tokens come before and behind a text."""
        if self.family == "decoder":
            return int("start" in self.ids or "bos" in self.ids), 0
        if self.family == "encoder":
            return int("cls" in self.ids), int("sep" in self.ids)
        return 0, int("eos" in self.ids)


def of_task(source: Examples, reading: Reading) -> Iterator[Labelled]:
    """The words of a task of tags, each at its last token where the model reads back, else at its first."""
    for number, example in enumerate(source.examples):
        if example.answer is None:
            continue
        item = source.items[number]
        assert item.pieces is not None
        places = item.pieces[:, 1 if reading.reads_back else 0]
        labels = np.asarray(item.label, np.int64)
        yield reading.labelled(item.parts[0].tolist(), np.asarray(places, np.int64), labels, example.texts)


def of_ranks(law: Synthetic, split: str, reading: Reading) -> Iterator[Labelled]:
    """The rank of each symbol after those before it, up to `TAGS` − 1: the state that the symbols are made of."""
    for symbols, ranks in _drawn(law, split, reading):
        yield _of_symbols(law, reading, symbols, np.minimum(ranks, TAGS - 1))


def of_successors(law: Synthetic, split: str, reading: Reading) -> Iterator[Labelled]:
    """The symbol of rank 0 after each symbol and those before it: what has to be known to predict the next."""
    likeliest = law.successors()[:, 0]
    for symbols, _ in _drawn(law, split, reading):
        before = np.concatenate([np.zeros(law.order - 1, np.int64), symbols])
        context = sum(before[law.order - 1 - lag :][: len(symbols)] * law.symbols**lag for lag in range(law.order))
        yield _of_symbols(law, reading, symbols, likeliest[context])


def _drawn(law: Synthetic, split: str, reading: Reading) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The symbols and ranks of one window after another."""
    source = Language(law, split)
    for row in itertools.count():
        symbols, ranks = source.drawn(np.array([row]), reading.length)
        yield symbols[0].astype(np.int64), ranks[0]


def _of_symbols(law: Synthetic, reading: Reading, symbols: np.ndarray, labels: np.ndarray) -> Labelled:
    # A decoder's text begins behind bos, its start; the windows of others have it as their first token.
    first = [] if reading.family == "decoder" else [law.symbols]
    places = np.arange(len(symbols)) + len(first)
    return reading.labelled([*first, *symbols.tolist()], places, labels.astype(np.int64), symbols.tolist())


def of_python(documents: Iterable[tuple[int, Any]], codec: Codec, reading: Reading) -> Iterator[Labelled]:
    """The depth of each word of a top-level statement in Python's own syntax tree, from 1 up to `DEEPEST`."""
    ends = set(codec.specials.values())
    for _, tokens in documents:
        text = codec.decode([token for token in tokens if int(token) not in ends])
        for statement in statements(text):
            encoding = codec.tokenizer.encode(statement.text, add_special_tokens=False)
            starts, stops = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
            if reading.reads_back:  # the token with the word's last character
                places = np.searchsorted(stops, [word.stop for word in statement.words], side="left")
            else:
                places = np.searchsorted(starts, [word.start for word in statement.words], side="right") - 1
            depths = np.minimum([word.depth for word in statement.words], DEEPEST).astype(np.int64)
            words = [statement.text[word.start : word.stop] for word in statement.words]
            yield reading.labelled(encoding.ids, places, depths - 1, words)


def texts_of(
    source: Pretrained, task: str, words: Sequence[str], runs: str | Path
) -> tuple[Sequence[str], Callable[[str, Reading], Iterator[Labelled]]]:
    """The classes of a task and the texts of a split of it: of a task of tags, or of what a run's own data can be
    probed for.
    """
    folder = root(runs)
    if words and task in (RANKS, SUCCESSOR, TREE):
        raise ScalingError("it does not apply to what is known of the run's own data", key=words[0], fix="leave it out")
    if task in (RANKS, SUCCESSOR):
        if source.data.get("kind") != "Synthetic":
            fix = "take a run that was trained on data=synthetic"
            raise ScalingError("only a synthetic language has ranks", key="TASK", value=task, fix=fix)
        law, of = build("data", source.data), of_ranks if task == RANKS else of_successors
        return [*map(str, range(TAGS if task == RANKS else law.symbols))], partial(of, law)
    if task == TREE:
        if (source.data.get("corpus") or {}).get("kind") != "Python" or source.tokenizer is None:
            fix = "take a run that was trained on data=python"
            raise ScalingError("the run was not trained on Python", key="TASK", value=task, fix=fix)
        data, codec = build("data", corpus(source, None, runs=runs)), Codec.load(source.tokenizer)
        depths = [str(depth) for depth in range(1, DEEPEST + 1)]
        return depths, lambda split, reading: of_python(data.open(split, folder).documents(), codec, reading)
    data = build("data", unfinetuned(source, task, words, runs=runs))
    if data.answer != "tags":
        what, fix = f"the answers are {data.answer}, and a probe predicts tags", "take a task of tags, as conll2003"
        raise ScalingError(what, key="TASK", value=task, fix=fix)
    return data.goal.labels, lambda split, reading: of_task(data.open(split, folder), reading)


def some(texts: Iterable[Labelled], limit: int) -> list[Labelled]:
    """The first texts, until `limit` classes are reached."""
    kept, count = [], 0
    for text in texts:
        if not len(text.labels):
            continue
        kept.append(text)
        count += len(text.labels)
        if count >= limit:
            break
    return kept


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
