"""Tasks on synthetic languages: what is the best score by counting every text, and what a model reaches in seconds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.synthetic import LanguageSwitch, WhichLanguage
from scaling.training.experiment import assemble
from scaling.training.run import train

SMALL: dict[str, Any] = {"symbols": 3, "length": 5, "order": 1, "examples": 20_000, "held_out": 20_000}


def every_text(task: Any) -> np.ndarray:
    return np.array(list(itertools.product(range(task.symbols), repeat=task.length)), np.int64)


def test_the_best_accuracy_is_that_of_every_text_weighed():
    task = WhichLanguage(**SMALL)
    chances = np.exp(task.log_chances(every_text(task)).sum(2))
    assert chances.sum(1) == pytest.approx(1)
    exact = chances.max(0).sum() / 2
    assert task.best == pytest.approx(exact, abs=0.01)
    assert 0.6 < exact < 0.99


def test_the_best_switch_is_that_of_every_text_weighed():
    task = LanguageSwitch(**SMALL)
    texts = every_text(task)
    first, second = np.exp(task.log_chances(texts))
    joint = [first[:, :at].prod(1) * second[:, at:].prod(1) for at in range(1, task.length)]
    assert [one.sum() for one in joint] == pytest.approx([1] * 4)
    exact = np.max(joint, 0).sum() / 4
    assert task.best == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("kind", [WhichLanguage, LanguageSwitch])
def test_who_takes_the_likeliest_label_scores_the_best(kind, tmp_path):
    task = kind(**SMALL)
    source = task.open("validation", tmp_path)
    symbols = source.items.arrays["tokens"].reshape(-1, task.length)
    likeliest = task.chances(symbols).argmax(1)
    found = likeliest.tolist() if kind is WhichLanguage else [str(1 + at) for at in likeliest]
    score = source.task.score(found, source.examples)
    assert next(iter(score.values())) == pytest.approx(task.best, abs=0.015)


@pytest.mark.parametrize("kind", ["WhichLanguage", "LanguageSwitch", "RankTags"])
def test_splits_differ_and_the_fingerprint_names_the_law(kind, tmp_path):
    sources = {split: build("data", {"kind": kind}).open(split, tmp_path) for split in ("train", "validation", "test")}
    heads = [source.items.arrays["tokens"][:64].tolist() for source in sources.values()]
    assert heads[0] != heads[1] != heads[2]
    other = build("data", {"kind": kind, "seed": 7}).open("train", tmp_path)
    assert other.fingerprint != sources["train"].fingerprint == sources["test"].fingerprint
    objective = build("objective", "Answer", Vocabulary.of(other), 24, "encoder")
    assert evaluation(other, objective, 8, 16)[0].batch(0).rows == 8


def test_a_small_model_comes_near_the_best_score(tmp_path):
    words = ["size={width: 32, layers: 1, heads: 2, length: 24, vocabulary: null}", "train.batch=64"]
    words += ["data=rank_tags", "model.head={kind: Tokens, classes: 4}", "trainer.max_steps=200", "optimizer.lr=1e-2"]
    words += ["evaluate.points=1", "evaluate.windows=null", "log.wandb=disabled", f"runs={tmp_path / 'runs'}"]
    config = load("encoder", words)
    assert 0.95 < train(assemble(config))["accuracy"] <= config.build("data").best == 1


def test_an_objective_of_windows_is_refused_before_the_examples_are_drawn(monkeypatch):
    def drawn(*_):
        raise AssertionError("examples were drawn")

    monkeypatch.setattr(WhichLanguage, "generate", drawn)
    with pytest.raises(ScalingError, match="it learns from windows, and the data are examples; choose Answer"):
        assemble(load("decoder", ["size=tiny", "data=which_language", "objective=Causal"]))
