"""Probes: on a language whose state is known, on tags of words; what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling.cli import main
from scaling.data.synthetic.language import Synthetic
from scaling.inside.probe import Labelled, Reading, control_task, layers, of_language, some

LAW = Synthetic(symbols=4, order=2)


def test_labels_are_the_state_of_the_language() -> None:
    law = Synthetic(symbols=6, order=2)
    reading, table = Reading("decoder", {"bos": 6, "start": 6}, 32), law.successors()
    texts = (some(of_language(law, task, "train", reading), 1000) for task in ("ranks", "successor"))
    for ranked, next_ in zip(*texts, strict=True):
        assert ranked.tokens == next_.tokens
        assert ranked.tokens[0] == 6
        history = [0, 0, *ranked.tokens[1:]]
        for place, rank, likeliest in zip(ranked.places, ranked.labels, next_.labels, strict=True):
            a, b, symbol = history[place - 1 : place + 2]
            assert rank == min(3, list(table[a * 6 + b]).index(symbol))  # 3: all further ones
            assert likeliest == table[b * 6 + symbol, 0]


def test_the_control_task_draws_classes_as_often_as_the_task_has_them() -> None:
    text = Labelled([], np.arange(1000), np.array([0] * 900 + [1] * 100), list(range(1000)))
    drawn = list(control_task([text], [text], 2, seed=0).values())
    assert np.mean(drawn) == pytest.approx(0.1, abs=0.03)


def test_the_embedding_gives_what_the_symbol_gives_and_the_last_layer_the_state(
    learned: tuple[Path, str],
) -> None:
    folder, run = learned
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


def test_places_keep_their_order_whatever_the_groups(learned: tuple[Path, str]) -> None:
    model = scaling.load(learned[1], runs=learned[0], device="cpu").module.double()
    texts = [
        Labelled([4, *range(4)][:count], np.arange(1, count), np.zeros(count - 1, int), [0] * (count - 1))
        for count in (5, 3, 4)
    ]
    whole = layers(model, texts)  # type: ignore[arg-type]
    alone = [layers(model, [text]) for text in texts]  # type: ignore[arg-type]
    for layer, x in enumerate(whole):
        torch.testing.assert_close(x, torch.cat([own[layer] for own in alone]), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_each_family_is_probed_for_the_tags_of_words(family: str, folders: Path, capsys: pytest.CaptureFixture) -> None:
    words = {"train": ["a", "dog"] * 30, "validation": ["the", "cat"] * 10}
    for split, own in words.items():
        rows = "".join(f"{word} {'DET' if len(word) % 2 else 'X'}\n\n" for word in own)
        (folders / f"{split}.conll").write_text(rows)
    (folders / "tags.yaml").write_text(
        "data:\n  kind: Task\n  answer: tags\n  text: '{tokens}'\n  label: '{tags}'\n  labels: [DET, X]\n"
        "  metric: TagAccuracy\n  layout: conll\n  columns: [tokens, tags]\n  tokenizer: Byte\n"
        f"  files: {{train: '{folders}/train.conll', validation: '{folders}/validation.conll'}}\n"
    )
    asked = ["probe", str(folders / family), str(folders / "tags.yaml"), f"runs={folders / 'runs'}"]
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["classes"] == ["DET", "X"]
    assert (document["train"], document["test"]) == (60, 20)
    assert [layer["layer"] for layer in document["layers"]] == [0, 1, 2, 3]
    assert main(asked) == 0
    assert "selectivity" in capsys.readouterr().out


def test_a_step_without_a_checkpoint_and_a_run_without_text_are_refused(
    learned: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for words, what in ((["ranks", "--step=7"], "no whole checkpoint of step 7"), (["conll2003"], "no tokenizer")):
        assert main(["probe", learned[1], *words, f"runs={learned[0]}"]) == 2
        assert what in capsys.readouterr().err
