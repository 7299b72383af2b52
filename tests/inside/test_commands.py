"""`scaling look`, `scaling landscape`, `scaling probe`: the scores, the page, the figure, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import scaling
from scaling.data.synthetic.language import Synthetic
from scaling.inside.probe import Labelled, Reading, control_task, of_language, some
from tests.command_line import printed, refused
from tests.reports.test_browser import CHROMIUM, opened


def test_the_document_has_each_layer_and_each_head(folders, capsys):
    lines = printed(capsys, "look", folders / "gpt2", "a law").splitlines()
    assert lines[0].split() == ["layer", "head", "entropy", "distance", "previous", "positional", "offset", "induction"]
    assert [line.split()[:2] for line in lines[1:7]] == [[str(n), str(h)] for n in range(3) for h in range(2)]
    seen = scaling.look(folders / "bert", "a [MASK] law")
    assert seen.tokens == {"encoder": ["[CLS]", "a", "[MASK]", *" law", "[SEP]"]}
    assert [each.weights.shape for each in seen.maps] == [(2, 8, 8)] * 3
    document = printed(capsys, "look", folders / "t5", "a law", "--target", "ein", "--json")
    assert len(scaling.look(folders / "t5", "a law").tokens["decoder"]) <= 48  # what it writes fits the window
    assert document["tokens"] == {"encoder": [*"a law", "[EOS]"], "decoder": ["[PAD]", *"ein"]}
    parts = [f"{part}.{n}" for n in range(3) for part in ("decoder", "cross")]
    assert [layer["name"] for layer in document["layers"]] == [f"encoder.{n}" for n in range(3)] + parts
    assert len(document["heads"]) == 2 * 9


def test_text_cannot_act_as_markup(folders, tmp_path):
    attack = "</script><img src=x>&'\""
    scaling.look(folders / "gpt2", attack).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    (each, *_) = json.loads(data[1])["maps"]
    assert "".join(each["rows"]).endswith(attack)


def test_what_cannot_be_done_is_one_line(folders, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    for words, message in {
        "look gpt2 " + 6 * "aaaaaaaaaa": "61 tokens are more than the 48",
        "look gpt2 law --target x": "reads no target",
        "landscape gpt2": "its training data are unknown",
        "probe gpt2 cola": "the answers are class, and a probe predicts tags",
    }.items():
        assert message in refused(capsys, *words.split())


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium")
def test_the_page_draws_itself_in_a_browser(folders, tmp_path):
    scaling.look(folders / "gpt2", "the law of the land").save(tmp_path / "page.html")
    drawn, _ = opened(tmp_path / "page.html", tmp_path, "--virtual-time-budget=2000")
    assert "Layer 0, head 0" in drawn
    assert drawn.count("<canvas") == 3 * 2 + 1
    assert drawn.count("<line") > 19


def test_runs_are_drawn_on_one_scale(learned, tmp_path, capsys):
    folder, name = learned
    words = ["landscape", name, name, f"runs={folder}", "--side", "5", "--windows", "8", "--json"]
    (each,) = printed(capsys, *words, "--to", tmp_path / "both.png")["runs"]
    loss = np.array(each["losses"])
    assert (tmp_path / "both.png").stat().st_size > 2000
    assert loss.shape == (5, 5)
    assert each["loss"] == loss[2, 2]
    edge = np.r_[loss[0], loss[-1], loss[1:-1, 0], loss[1:-1, -1]]
    assert each["border"] == pytest.approx(edge.mean() - loss[2, 2])
    assert each["border"] > 0  # trained weights are better than those around them


LAW = Synthetic(symbols=4, order=2)


def test_labels_are_the_state_of_the_language():
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


def test_the_control_task_draws_classes_as_often_as_the_task_has_them():
    text = Labelled([], np.arange(1000), np.array([0] * 900 + [1] * 100), list(range(1000)))
    drawn = list(control_task([text], [text], 2, seed=0).values())
    assert np.mean(drawn) == pytest.approx(0.1, abs=0.03)


def test_the_embedding_gives_what_the_symbol_gives_and_the_last_layer_the_state(learned, capsys):
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
    assert frame.accuracy.between(frame.accuracy_low, frame.accuracy_high).all()
    for words, what in ((["ranks", "--step=7"], "no whole checkpoint of step 7"), (["conll2003"], "no tokenizer")):
        assert what in refused(capsys, "probe", run, *words, f"runs={folder}")


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_each_family_is_probed_for_the_tags_of_words(family, folders, capsys):
    files = {split: str(folders / f"{split}.conll") for split in ("train", "validation")}
    for file, words in zip(files.values(), (["a", "dogs"] * 30, ["the", "cats"] * 10)):
        Path(file).write_text("".join(f"{word} {'DET' if len(word) % 2 else 'X'}\n\n" for word in words))
    data = {"kind": "Task", "answer": "tags", "text": "{tokens}", "label": "{tags}", "labels": ["DET", "X"]}
    data |= {"metric": "TagAccuracy", "layout": "conll", "columns": ["tokens", "tags"], "tokenizer": "Byte"}
    (folders / "tags.yaml").write_text(json.dumps({"data": {**data, "files": files}}))
    asked = ["probe", str(folders / family), str(folders / "tags.yaml"), f"runs={folders / 'runs'}"]
    document = printed(capsys, *asked, "--json")
    assert document["classes"] == ["DET", "X"]
    assert (document["train"], document["test"]) == (60, 20)
    assert [layer["layer"] for layer in document["layers"]] == [0, 1, 2, 3]
    assert "selectivity" in printed(capsys, *asked)
    assert "a folder has one set of weights" in refused(capsys, *asked, "--step=7")
