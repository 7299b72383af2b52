"""Probes: on a language whose state is known, on tags of words; what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling import config
from scaling.cli import main
from scaling.config import load
from scaling.data.codec import Codec
from scaling.data.synthetic.language import Synthetic
from scaling.data.tokenizer import Byte
from scaling.inside.probe import Labelled, Reading, baselines, classify, layers, of_ranks, of_successors, some
from scaling.interop import run as saved
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.schema import build
from scaling.training.experiment import assemble
from scaling.training.run import train

LAW = Synthetic(symbols=4, order=2)
SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 260, "length": 48}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that has learned a language of four symbols."""
    folder = tmp_path_factory.mktemp("probe")
    words = ["size=tiny", "size.length=32", "size.vocabulary=null", "data=synthetic", "data.symbols=4"]
    words += [
        "trainer.max_steps=200",
        "train.batch=32",
        "optimizer.lr=0.02",
        "schedule.warmup=10",
        "log.wandb=disabled",
    ]
    words += ["evaluate.points=1", "data.validation=4096", f"runs={folder}"]
    return folder, train(assemble(config.load("decoder", words)))["run"]


def exact(split: str, of: object) -> list[Labelled]:
    reading = Reading("decoder", {"bos": LAW.symbols, "start": LAW.symbols}, 32)
    return some(of(LAW, split, reading), 4000)  # type: ignore[operator]


def test_labels_are_the_state_of_the_language() -> None:
    table = LAW.successors()
    for ranked, next_ in zip(exact("train", of_ranks), exact("train", of_successors)):
        tokens = ranked.tokens
        assert tokens == next_.tokens
        assert tokens[0] == LAW.symbols
        history = [0, 0, *tokens[1:]]
        for place, rank, likeliest in zip(ranked.places, ranked.labels, next_.labels):
            a, b, symbol = history[place - 1 : place + 2]
            assert table[a * 4 + b, rank] == symbol or rank == 3
            assert table[b * 4 + symbol, 0] == likeliest


def test_the_embedding_gives_what_the_symbol_alone_gives_and_the_last_layer_the_state(runs: tuple[Path, str]) -> None:
    folder, run = runs
    probed = scaling.probe(run, "successor", tokens=4000, runs=folder)
    assert list(probed.layers["layer"]) == [0, 1, 2]
    # The best guess from the symbol alone, by the stationary law of pairs of symbols.
    flow = np.full(16, 1 / 16)
    for _ in range(200):
        into = (np.arange(16)[:, None] % 4) * 4 + LAW.successors().astype(int)
        flow = np.bincount(into.ravel(), (flow[:, None] * LAW.ranks.probabilities).ravel(), 16)
    by_symbol = np.zeros((4, 4))
    np.add.at(by_symbol, (np.arange(16) % 4, LAW.successors()[:, 0]), flow)
    best = float(by_symbol.max(1).sum())
    assert probed.type == pytest.approx(best, abs=0.03)
    frame = probed.layers
    first = frame.iloc[0]
    assert first.accuracy == pytest.approx(best, abs=0.03)
    assert first.accuracy_low <= best <= first.accuracy_high
    assert (frame.accuracy.idxmax(), frame.accuracy.max() > 0.97) == (2, True)
    # A class for each symbol is read from the embedding, whatever it is.
    assert first.control == 1
    assert first.selectivity == pytest.approx(first.accuracy - 1)
    assert (frame.accuracy_low <= frame.accuracy).all()
    assert (frame.accuracy <= frame.accuracy_high).all()


def test_a_classifier_reads_a_known_state_and_nothing_from_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = np.random.default_rng(0).integers(0, 5, 3000)
    turn, _ = torch.linalg.qr(torch.randn(16, 16, generator=generator))
    known = torch.nn.functional.one_hot(torch.from_numpy(labels), 16).float() @ turn
    noise = torch.randn(3000, 16, generator=generator)
    for x, least, most in ((known + 0.1 * noise, 0.999, 1.0), (noise, 0.15, 0.26)):
        new = classify(x[:2000], labels[:2000], x[2000:], 5, 1e-3)
        assert least <= (new == labels[2000:]).mean() <= most


def test_places_keep_their_order_whatever_the_groups(runs: tuple[Path, str]) -> None:
    model = scaling.load(runs[1], runs=runs[0], device="cpu").module.double()
    texts = [
        Labelled([4, *range(4)][:count], np.arange(1, count), np.zeros(count - 1, int), [0] * (count - 1))
        for count in (5, 3, 4)
    ]
    whole = layers(model, texts)  # type: ignore[arg-type]
    alone = [layers(model, [text]) for text in texts]  # type: ignore[arg-type]
    for layer, x in enumerate(whole):
        torch.testing.assert_close(x, torch.cat([own[layer] for own in alone]), atol=1e-10, rtol=1e-10)


def test_what_is_commonest_is_counted_in_the_training_texts() -> None:
    def text(labels: list[int], types: list[str]) -> Labelled:
        return Labelled([], np.arange(len(labels)), np.array(labels), types)

    train_, test_ = [text([0, 0, 1, 1, 1], ["a", "a", "b", "b", "c"])], [text([0, 1, 1, 0], ["a", "b", "d", "b"])]
    plain = baselines(train_, test_)
    assert (plain.majority, plain.type) == (0.5, 0.75)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model drawn at random for each family, which read bytes."""
    top = tmp_path_factory.mktemp("models")
    Codec(Byte().fit(iter(()))).save(top / "tokenizer.json")
    ids = {"gpt2": {"eos": 2, "start": 2}, "bert": {"cls": 256, "sep": 257, "mask": 258}, "t5": {"eos": 2, "start": 0}}
    for name, own in ids.items():
        torch.manual_seed(0)
        sections = {"model": load(name)["model"], "size": SIZE}
        model = build("model", sections["model"], SIZE)
        saved.write(top / name, Saved(sections, weights.of(model), own, tokenizer=top / "tokenizer.json"), "here")
    words = {"train": ["a", "dog"] * 30, "validation": ["the", "cat"] * 10}
    for split, own in words.items():
        rows = "".join(f"{word} {'DET' if len(word) % 2 else 'X'}\n\n" for word in own)
        (top / f"{split}.conll").write_text(rows)
    return top


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_each_family_is_probed_for_the_tags_of_words(family: str, folders: Path, capsys: pytest.CaptureFixture) -> None:
    (folders / "tags.yaml").write_text(
        "data:\n  kind: Task\n  answer: tags\n  text: '{tokens}'\n  label: '{tags}'\n  labels: [DET, X]\n"
        "  metric: TagAccuracy\n  layout: conll\n  columns: [tokens, tags]\n  tokenizer: Byte\n"
        f"  files: {{train: '{folders}/train.conll', validation: '{folders}/validation.conll'}}\n"
    )
    words = ["probe", str(folders / family), str(folders / "tags.yaml"), f"runs={folders / 'runs'}"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["classes"] == ["DET", "X"]
    assert (document["train"], document["test"]) == (60, 20)
    assert [layer["layer"] for layer in document["layers"]] == [0, 1, 2]
    assert main(words) == 0
    assert "selectivity" in capsys.readouterr().out


REFUSED = [
    (["ranks", "--tokens=0"], "tokens=0: expected a positive whole number"),
    (["ranks", "--penalty=-1"], "penalty=-1.0: expected a number from 0"),
    (["ranks", "data.limit=3"], "does not apply to what is known of the run's own data"),
    (["ranks", "--step=7"], "no whole checkpoint of step 7"),
    (["conll2003"], "the run has no tokenizer"),
    (["rankz"], "there is no such task"),
]


@pytest.mark.parametrize(("words", "what"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_cannot_be_probed_is_one_line(
    words: list[str], what: str, runs: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", runs[1], *words, f"runs={runs[0]}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert what in error


def test_a_task_of_classes_is_refused_for_a_probe(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(folders / "gpt2"), "cola", f"runs={folders / 'runs'}"]) == 2
    assert "the answers are class, and a probe predicts tags" in capsys.readouterr().err
