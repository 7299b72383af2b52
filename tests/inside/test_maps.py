"""Attention maps are those of transformers, and looking changes no output; what parts of a model do: heads and blocks
left out, the logit lens, activations of one text in another, the loss around the weights. And `scaling look`,
`scaling landscape` and `scaling probe`: the scores, the page, the figure, and what is refused.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.data.synthetic.language import Synthetic
from scaling.inside.effects import ablate, direction, landscape, lens, patch
from scaling.inside.look import Map, maps, scores
from scaling.inside.probe import Labelled, Reading, control_task, of_language, some
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from tests.command_line import printed, refused, refuses
from tests.inside.conftest import SIZE
from tests.reports.test_browser import CHROMIUM, opened


def drawn(name="decoder", *changes, **sections) -> Any:
    config = load(name, [f"size={SIZE}", *changes])
    torch.manual_seed(0)
    return build_model({"model": config["model"], "size": config["size"], **sections}).eval()


def batch_for(model, seed=0, rows=1):
    generator = torch.Generator().manual_seed(seed)
    tokens, source = (torch.randint(3, 61, (rows, count), generator=generator) for count in (10, 12))
    return Batch(tokens, tokens.roll(-1, 1), source=source if model.family == "encoder_decoder" else None)


def loss_of(model, batch):
    return pytest.approx(float(model.losses(batch).mean()), rel=1e-5)


@pytest.mark.parametrize("name", ["bert masked", "gpt2", "llama grouped", "bloom", "t5 gated"])
def test_maps_are_those_of_transformers(tmp_path, name):
    saved = pytest.importorskip("tests.interop.test_huggingface").theirs(name)
    saved.set_attn_implementation("eager")
    saved.save_pretrained(tmp_path / "model")
    ours: Any = scaling.load(tmp_path / "model").module
    batch = batch_for(ours)
    found = {(f"{each.tower} {each.slot}", each.layer): each.weights for each in maps(ours, batch)}
    parts = {f"{ours.family} mixer": "attentions"}
    inputs = {"input_ids": batch.tokens}
    if batch.source is not None:
        inputs = {"input_ids": batch.source, "decoder_input_ids": batch.tokens}
        parts = {"encoder mixer": "encoder_attentions", "decoder mixer": "decoder_attentions"}
        parts["decoder cross"] = "cross_attentions"
    output = saved(**inputs, output_attentions=True)
    expected = {(part, n): each for part, key in parts.items() for n, each in enumerate(getattr(output, key))}
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        np.testing.assert_allclose(found[key], weights[0].detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        "model.position=Shaw",
        "model.pattern={kind: Window, size: 4, pattern: Causal}",
        "model.block.mixer={kind: Longformer, window: 2, dilation: 2}",
        "size.key_heads=1",
        "model.blocks={every 2: {mixer: {kind: LightweightConvolution}}}",
    ],
)
@torch.no_grad()
def test_who_looks_changes_nothing_and_nothing_stays_in_the_model(change):
    model = drawn("decoder", change).double()
    batch = batch_for(model)
    before, seen, looked = model.logits(batch), maps(model, batch), []
    model.decoder.weights = looked.append
    torch.testing.assert_close(model.logits(batch), before, rtol=1e-10, atol=1e-10)
    model.decoder.weights = None
    assert seen or "Longformer" in change  # which has two softmaxes, one for each dilation
    assert all(np.allclose(each.weights.sum(-1), 1, atol=1e-5) for each in seen)
    assert {each.name for each in seen} <= dict(model.named_modules()).keys()
    assert torch.equal(model.logits(batch), before)
    assert not [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


def test_a_learned_prefix_stands_before_the_tokens_and_a_convolution_has_no_map():
    model = drawn(tuning={"kind": "Prefix", "length": 3})
    for number, each in enumerate(maps(model, batch_for(model))):
        assert (each.layer, each.before, each.weights.shape[-1], each.of_tokens.shape[-1]) == (number, 3, 13, 10)
    without = drawn("decoder", "model.block.mixer={kind: LightweightConvolution, kernel: 3}")
    assert maps(without, batch_for(without)) == []


def test_the_scores_of_heads_whose_weights_are_known():
    def of(weights, slot="mixer"):
        return Map("decoder.stack.blocks.0", "decoder", 0, slot, weights[None])

    T = 8
    previous = np.eye(T, k=-1) + np.eye(T)[0][:, None] * np.eye(T)[0]
    (score,) = scores([of(previous)], [of(previous)])
    assert score["previous"] == score["positional"] == 1.0
    assert (score["offset"], score["induction"]) == (-1, 0.0)
    assert score["entropy"] == pytest.approx(0, abs=1e-12)
    assert score["distance"] == pytest.approx((T - 1) / T)
    (score,) = scores([of(np.full((T, T), 1 / T))])
    assert score["entropy"] == pytest.approx(math.log(T))
    assert score["previous"] == pytest.approx(1 / T)
    assert score["distance"] == pytest.approx(np.abs(np.subtract.outer(np.arange(T), np.arange(T))).mean())
    following = previous.copy()
    following[T // 2 :] = np.eye(T)[1 : T // 2 + 1]
    assert scores([of(previous)], [of(following)])[0]["induction"] == 1.0
    (score,) = scores([of(np.full((T, 3), 1 / 3), "cross")])
    assert score["entropy"] == pytest.approx(math.log(3))
    assert score["distance"] is score["previous"] is score["induction"] is None


@pytest.mark.parametrize("name", ["decoder", "bert", "decoder model.stack.distinct=1", "t5"])
@torch.no_grad()
def test_a_head_is_left_out_as_if_its_columns_were_zero_and_the_last_logits_of_the_lens_are_the_models(name):
    model = drawn(*name.split())
    batch = batch_for(model, rows=2)
    effects = [effect for effect in ablate(model, [batch]) if effect["head"] is not None]
    assert len(effects) == len({(effect["name"], effect["head"]) for effect in effects}) > 0
    for effect in effects:
        out = model.get_submodule(f"{effect['name']}.out")
        kept, width = out.weight.clone(), out.weight.shape[1] // SIZE["heads"]
        out.weight[:, effect["head"] * width : (effect["head"] + 1) * width] = 0
        assert effect["loss"] == loss_of(model, batch)
        out.weight.copy_(kept)
    assert effects[0]["loss"] - effects[0]["effect"] == loss_of(model, batch)
    logits = lens(model, batch)
    assert len(logits) == SIZE["layers"]
    assert torch.equal(logits[-1], model.logits(batch))
    assert not torch.allclose(logits[0], logits[-1])


@torch.no_grad()
def test_all_activations_of_a_layer_give_the_logits_of_the_other_text_and_a_block_is_left_out():
    model, layer = drawn(), "decoder.stack.blocks.1"
    batch, other = batch_for(model), batch_for(model, seed=1)
    before = model.logits(batch)
    assert torch.equal(patch(model, batch, other, layer), model.logits(other))
    some = patch(model, batch, other, layer, tokens=[4])
    assert torch.equal(some[:, :4], before[:, :4])
    assert not torch.allclose(some[:, 4:], before[:, 4:])
    refuses("same number of tokens", patch, model, batch, other.map(lambda tensor: tensor[:, :7]), layer)
    effect = next(effect for effect in ablate(model, [batch]) if effect["name"] == layer)
    del model.decoder.stack.blocks[1]
    model.decoder.stack.order = [0, 1]
    assert effect["loss"] == loss_of(model, batch)


def test_a_loaded_model_is_asked_by_text(folders):
    model = scaling.load(folders / "gpt2", device="cpu")
    assert [each.shape for each in model.lens("a law")] == [(6, SIZE["vocabulary"])] * 3
    assert torch.equal(model.patch("a law", "a cow", "decoder.stack"), model.lens("a cow")[-1])
    effects = model.ablate([batch_for(model.module)])
    assert (list(effects.columns), len(effects)) == (["name", "head", "loss", "effect"], 3 + 3 * 2)
    refuses(r"no such activation; did you mean .decoder\.stack.", model.patch, "a law", "a cow", "decoder.stak")


@torch.no_grad()
def test_a_point_of_a_landscape_is_the_loss_of_the_moved_weights():
    model = drawn("bert")
    batch = batch_for(model, rows=3)
    loss = landscape(model, [batch, batch], side=3, reach=0.5, seed=2)
    assert loss[1, 1] == loss_of(model, batch)  # the model stays
    first, second = direction(model, 4), direction(model, 5)
    for spec, parameter in parameters(model):
        one, other = first[spec.name], second[spec.name]
        if parameter.ndim > 1:
            norms = parameter.flatten(1).norm(dim=1)
            torch.testing.assert_close(one.flatten(1).norm(dim=1), norms)
            assert parameter.numel() < 100 or abs(float((one * other).sum())) < norms.square().sum()
        else:
            assert not one.any()
        parameter += 0.5 * one - 0.5 * other
    assert loss[2, 0] == loss_of(model, batch)


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
