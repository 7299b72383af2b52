"""`model.norm` and `model.tie` change what belongs together; a row or a word that changes half of it is remarked on."""

from __future__ import annotations

import pytest

from scaling import cli
from scaling.config import load, names, table_file

TABLES = names("table")
MODELS = names("model")
TIED = {"kind": "Linear", "scale": "inverse_sqrt_width"}


def model(name: str, *words: str):
    return load(name, words).tree["model"]


def every_norm(tree) -> list:
    """The kinds of all norms below a tree, NoNorm among them."""
    found = []
    for key, value in tree.items():
        if key == "norm" and value is not None:
            found.append(value["kind"] if isinstance(value, dict) else value)
        elif isinstance(value, dict):
            found += every_norm(value)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_one_word_changes_every_norm_of_a_model(name):
    before, after = every_norm(model(name)), every_norm(model(name, "model.norm={kind: LayerNorm, eps: 0.125}"))
    assert after == ["NoNorm" if norm == "NoNorm" else "LayerNorm" for norm in before]
    assert "LayerNorm" in after
    assert not load(name, ["model.norm=LayerNorm"]).remarks


def test_a_model_of_one_norm_is_the_config_that_names_each():
    short = load("table/narang2021", ["row=Vanilla Transformer", "model.norm=RMSNorm"])
    assert short.tree == load("table/narang2021", ["row=RMS Norm"]).tree


def test_what_a_layer_says_of_one_norm_counts_before_the_word_for_all():
    tree = model("decoder", "model.norm={kind: RMSNorm, gain: false}", "model.stack.norm=LayerNorm")
    assert (tree["block"]["norm"], tree["stack"]["norm"]) == ({"kind": "RMSNorm", "gain": False}, {"kind": "LayerNorm"})
    tree = model("decoder", "model.norm.gain=false", "model.block.norm.eps=0.5")
    assert tree["block"]["norm"] == {"kind": "RMSNorm", "gain": False, "eps": 0.5}
    assert tree["stack"]["norm"] == {"kind": "RMSNorm", "gain": False}


def test_a_model_without_norms_gets_them_and_loses_them():
    rezero = ("table/narang2021", "row=Rezero")
    assert set(every_norm(model(*rezero))) == {"NoNorm"}
    assert set(every_norm(model(*rezero, "model.norm=RMSNorm"))) == {"RMSNorm"}
    assert set(every_norm(model("decoder", "model.norm=NoNorm"))) == {"NoNorm"}


def test_a_file_says_the_norm_of_a_whole_model_and_of_a_stack_that_it_replaces(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: decoder\nmodel: {norm: LayerNorm, stack: Universal}\n")
    tree = model(str(file))
    assert tree["stack"] == {"norm": "LayerNorm", "kind": "Universal"}
    assert tree["block"]["norm"] == "LayerNorm"


def test_a_head_that_is_untied_loses_the_scale_of_a_tied_one():
    row = ("table/narang2021", "row=Vanilla Transformer")
    assert model(*row)["head"] == TIED
    untied = load(row[0], [row[1], "model.tie=[]"])
    assert untied.tree == load("table/narang2021", ["row=Untied embeddings"]).tree
    assert not untied.remarks
    assert model(*row, "model.tie=[encoder, decoder]")["head"] == {"kind": "Linear"}
    assert model(*row, "model.tie=[decoder, head]")["head"] == TIED


@pytest.mark.parametrize("name", ["t5_v1_1", "encoder_decoder"])
def test_a_head_that_is_tied_again_gets_its_scale_back(name, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"base: {name}\nmodel.tie: []\n")
    assert model(str(file))["head"] in ({"kind": "Linear"}, "Linear")
    assert model(str(file), "model.tie=[encoder, decoder, head]")["head"] == TIED


@pytest.mark.parametrize("name", ["decoder", "gpt2", "vaswani"])
def test_a_model_whose_tied_head_has_no_scale_gets_none(name):
    head = model(name)["head"]
    for tie in ("[decoder, head]", "[]"):
        assert model(name, f"model.tie={tie}")["head"] == head


@pytest.mark.parametrize("name", ["bert", "albert", "electra", "t5", "gemma"])
def test_a_head_that_a_layer_names_itself_is_left_alone(name):
    tied = model(name)["tie"]
    assert model(name, "model.tie=[]", f"model.head={{kind: Linear, scale: {TIED['scale']}}}")["head"] == TIED, tied


HALVES = {
    "the norm of the blocks": ("decoder", "model.block.norm=LayerNorm", "model.stack.norm stays RMSNorm"),
    "the norm of the stack": ("decoder", "model.stack.norm=LayerNorm", "model.block.norm stays RMSNorm"),
    "a key of a norm": ("decoder", "model.block.norm.eps=0.5", "model.norm={kind: RMSNorm, eps: 0.5} changes every"),
    "the norm of one tower": ("t5", "model.encoder.block.norm=LayerNorm", "set model.encoder.stack.norm=LayerNorm too"),
    "no norm in the blocks": ("decoder", "model.block.norm=NoNorm", "model.norm=NoNorm changes every norm"),
    "the head of a tied model": ("t5", "model.head=Linear", "model.head.scale is now none, and the head stays tied"),
    "the scale of an untied head": ("decoder", f"model.head.scale={TIED['scale']}", "and the head stays not tied"),
}


@pytest.mark.parametrize("half", HALVES)
def test_a_word_that_changes_half_of_a_pair_is_remarked_on(half):
    name, word, wanted = HALVES[half]
    (remark,) = load(name, [word]).remarks
    assert remark.startswith("command line: ")
    assert wanted in remark


WHOLES = {
    "both norms": ("decoder", "model.block.norm=LayerNorm", "model.stack.norm=LayerNorm"),
    "two norms": ("decoder", "model.block.norm=LayerNorm", "model.stack.norm=NoNorm"),
    "norms that were two before": ("bert", "model.block.norm=RMSNorm"),
    "from pre-norm to post-norm": ("decoder", "model.block.residual=Post", "model.stack.norm=NoNorm"),
    "another model": ("decoder", "model.kind=Encoder", "model.tie=[]"),
}


@pytest.mark.parametrize("whole", WHOLES)
def test_a_person_who_changes_both_is_told_nothing(whole):
    name, *words = WHOLES[whole]
    assert not load(name, words).remarks


@pytest.mark.parametrize("name", TABLES)
def test_no_row_of_a_shipped_table_changes_half_of_a_pair(name):
    file = table_file(name)
    assert not [remark for row in file.rows for remark in load(file.name, [f'row="{row}"']).remarks]


def test_a_row_that_changes_half_of_a_pair_is_named_by_file_and_line_and_trains_all_the_same(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("base: decoder\nsize: tiny\nrows:\n  plain: {}\n  half: {model.block.norm: LayerNorm}\n")
    wanted = f"scaling: {file}:5: model.block.norm='LayerNorm': model.stack.norm stays RMSNorm"
    assert cli.main(["table", str(file), "--counts"]) == 0
    told = capsys.readouterr()
    assert told.err.count(wanted) == 1
    assert "half" in told.out
    short = ["data=synthetic", "train.steps=2", "train.batch=2", "log.wandb=disabled", f"runs={tmp_path / 'runs'}"]
    assert cli.main(["train", str(file), "row=half", *short]) == 0
    assert capsys.readouterr().err.count(wanted) == 1
