"""Layers, names, rows, overrides, references, types, and what is said when they are wrong."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from scaling import cli
from scaling.config import SECTIONS, TYPES, document, load, names, setting, shipped, table_file
from scaling.errors import ScalingError


def test_layers_in_their_order(shelf):
    shelf("over.yaml", "train: {batch: 16}\ntrainer: {gradient_clip_val: 2}\noptimizer: {lr: 3e-4}\n")
    config = load("gated", ["train.batch=32", "--seed=3", "optimizer.betas=[0.9, 0.99]"], overlays=["over.yaml"])
    norm = {"kind": "LayerNorm", "bias": True}
    assert config["model.block"] == {"channel": {"kind": "Gated"}, "norm": norm}
    assert config["size"] == {"width": 512, "heads": 8}
    assert (config["train.batch"], config["trainer.gradient_clip_val"], config["seed"]) == (32, 2.0, 3)
    assert config["optimizer"] == {"kind": "AdamW", "lr": 3e-4, "betas": [0.9, 0.99]}
    assert list(config.tree) == [section for section in SECTIONS if section in config.tree]
    origins = {
        "model.block.channel.kind": "configs/model/gated.yaml:4",
        "model.block.norm.bias": "configs/model/plain.yaml:4",  # of the value, not of the reference to it
        "size.width": "configs/size/big.yaml:1",
        "optimizer.lr": "over.yaml:3",
        "train.batch": "command line",
    }
    assert {key: config.origin[key] for key in origins} == origins


TWO = {"width": 1024, "heads": 8, "head_width": 64}
TINY = {"width": 16, "heads": 2}
SIZES = {
    (): TINY,
    ("size=1M",): {"width": 128, "heads": 4},
    ("size=ladder/1M",): {"width": 128, "heads": 4},
    ("size=two",): TWO,
    ("size=big/shared",): {"width": 1},
    ("size.width=32",): {"width": 32, "heads": 2},
    ("size.width=32", "size=big/one"): {"width": 32, "heads": 8},
    ("size={width: 8, heads: 1}",): {"width": 8, "heads": 1},
    ("data=text",): {**TINY, "vocabulary": 512},
    ("size=two", "data=text"): {**TWO, "vocabulary": 512},
    ("size.vocabulary=64", "data=text"): {**TINY, "vocabulary": 64},
    ("size.vocabulary=32k",): {**TINY, "vocabulary": 32000},
}


@pytest.mark.parametrize("words", SIZES)
def test_sizes_by_name_and_by_key(shelf, words):
    assert load("plain", words)["size"] == SIZES[words]
    shelf("mine.yaml", "base: plain\nsize: huge/two\n")
    assert load("mine.yaml", ["size=tiny"])["size"] == TINY


OPTIMIZERS = {
    ("optimizer=SGD",): {"kind": "SGD"},
    ("optimizer.kind=SGD", "optimizer.lr=1"): {"kind": "SGD", "lr": 1},
    ("optimizer.lr=1", "optimizer=SGD"): {"kind": "SGD", "lr": 1},
    ("optimizer.lr=1", "optimizer.lr=2"): {"kind": "AdamW", "lr": 2, "betas": [0.9, 0.95]},
    ("optimizer={'kind': 'SGD', 'lr': 4.0}",): {"kind": "SGD", "lr": 4.0},
    ("--optimizer.lr=None",): {"kind": "AdamW", "lr": None, "betas": [0.9, 0.95]},
    ("optimizer.note={a}: [b] {c}",): {"kind": "AdamW", "lr": 1e-3, "betas": [0.9, 0.95], "note": "{a}: [b] {c}"},
}


@pytest.mark.parametrize("words", OPTIMIZERS)
def test_overrides_say_the_same_in_any_order(shelf, words):
    assert load("plain", words)["optimizer"] == OPTIMIZERS[words]


OVERLAYS = {
    ("{a: 1, b: 2}", "{b: 3, c: 4}"): {"a": 1, "b": 3, "c": 4},
    ("{kind: LayerNorm, bias: true}", "{kind: RMSNorm}"): {"kind": "RMSNorm"},
    ("{kind: LayerNorm, bias: true}", "{kind: LayerNorm}"): {"kind": "LayerNorm"},
    ("{kind: LayerNorm, bias: true}", "{bias: false}"): {"kind": "LayerNorm", "bias": False},
    ("{kind: LayerNorm, bias: true}", "RMSNorm"): {"kind": "RMSNorm"},
    ("{kind: LayerNorm, bias: true}", "null"): None,
    ("LayerNorm", "RMSNorm"): "RMSNorm",
    ("LayerNorm", "{bias: false}"): {"kind": "LayerNorm", "bias": False},
    ("null", "{bias: false}"): {"bias": False},
    ("[1, 2]", "[3]"): [3],
    ("{kind: X, b: {kind: Y, c: 1}}", "{b: {c: 2}}"): {"kind": "X", "b": {"kind": "Y", "c": 2}},
    ("{kind: X, b: {kind: Y, c: 1}}", "{b.kind: Z, b.d: 1}"): {"kind": "X", "b": {"kind": "Z", "d": 1}},
    ("{b.c.d: 1, b: {c.e: 2}}", "{b.c: Z, b.c.e: 3}"): {"b": {"c": {"kind": "Z", "e": 3}}},
    ("{eps: 1}", "{kind: '${model.norm}', eps: 2}"): {"kind": "LayerNorm", "bias": True, "eps": 2},
}


@pytest.mark.parametrize(("below", "above"), OVERLAYS)
def test_a_kind_replaces_and_the_rest_is_laid_over(shelf, below, above):
    shelf("below.yaml", f"base: plain\nmodel.x: {below}\n")
    shelf("above.yaml", f"base: below.yaml\nmodel.x: {above}\n")
    assert load("above.yaml")["model.x"] == OVERLAYS[below, above]


def test_rows_are_laid_over_their_table_and_its_base(shelf):
    assert load("table/paper", ["row=Vanilla"]).tree == load("gated").tree
    gelu = load("table/paper", ["row=GeLU 0.5", "size=tiny"])
    assert gelu["model.block.channel"] == {"kind": "Gated", "activation": "GeLU"}
    assert gelu["size.width"] == 16
    assert load("decoder", ["model=table/paper", "row=GeLU 0.5"])["model"] == gelu["model"]
    rows = "GeLU 0.5: {optimizer.lr: 1}, Deep: {size: huge/two, size.times: {layers: 2}}"
    shelf("configs/table/again.yaml", f"base: table/paper\ntable: {{paper: b}}\nrows: {{{rows}}}\n")
    again = load("table/again", ["row=GeLU 0.5"])
    assert (again["model"], again["optimizer.lr"]) == (gelu["model"], 1)
    assert load("table/again", ["row=Deep", "size.times.layers=3"])["size"] == {**TWO, "times": {"layers": 3}}
    file = table_file("again")
    assert file.rows == ("Vanilla", "GeLU 0.5", "Based", "Bare", "Deep")
    assert file.config.tree == {"paper": "b", "columns": ["Params"]}
    assert file.config.origin["columns"] == "configs/table/paper.yaml:3"


def test_files_of_ones_own(shelf):
    shelf("mine/half.yaml", "base: ../configs/model/gated.yaml\nsize: sizes.yaml/small\ndata: corpus\n")
    shelf("mine/sizes.yaml", "small: {width: 24, heads: 3}\n")
    shelf("mine/corpus.yaml", "data: {kind: Files, paths: [a.txt]}\n")
    shelf("mine/whole.yaml", "base: half\ntrain.batch: 4\n")
    config = load("mine/whole.yaml")
    assert config["size"] == {"width": 24, "heads": 3}
    assert config["data"] == {"kind": "Files", "paths": ["a.txt"]}
    assert config["train.batch"] == 4


def test_references(shelf):
    words = ["model.position.base=${size.width}", "model.note=w${size.width}h${size.heads}", "log.name=${model.note}"]
    words += ["model.a=${model.block}", "model.b.norm=${model.a.norm}", "model.c=${model.b.norm.bias}"]
    config = load("plain", [*words, "model.l=[1, '${train.tokens}']", "train.tokens=4k"])
    assert (config["model.position.base"], config["log.name"], config["model.l"]) == (16, "w16h2", [1, 4000])
    assert config["model.a"] == config["model.block"]
    assert config["model.b.norm"] == config["model.stack.norm"]
    assert config["model.c"] is True


def norms(tree):
    """Every norm below a tree."""
    for key, value in tree.items():
        if key == "norm" and value is not None:
            yield value["kind"] if isinstance(value, dict) else value
        elif isinstance(value, dict):
            yield from norms(value)


@pytest.mark.parametrize("name", names("model"))
def test_one_key_is_the_norm_of_a_shipped_model(name):
    config = load(name)
    assert "norm" not in config["model"]
    assert all(Path(origin.rpartition(":")[0]).is_file() for origin in config.origin.values())
    after = load(name, ["model.norm={kind: LayerNorm, eps: 0.125}"])["model"]
    assert list(norms(after)) == [norm if norm == "NoNorm" else "LayerNorm" for norm in norms(config["model"])]
    assert after["block"]["norm"] == {"kind": "LayerNorm", "eps": 0.125}


def test_a_key_of_one_norm_is_laid_over_the_norm_of_the_model():
    model = load("decoder", ["model.norm.gain=false", "model.block.norm.eps=0.5"])["model"]
    assert model["block"]["norm"] == {"kind": "RMSNorm", "gain": False, "eps": 0.5}
    assert model["stack"]["norm"] == {"kind": "RMSNorm", "gain": False}


def test_a_norm_that_nothing_refers_to_is_refused(capsys, tmp_path):
    words = ["model.norm=RMSNorm", "model.block.norm=LayerNorm", "model.stack.norm=LayerNorm"]
    assert cli.main(["inspect", "decoder", *words]) == 2
    told = "command line: model.norm='RMSNorm': nothing in this model refers to it; set model.block.norm"
    assert told in capsys.readouterr().err
    assert load("decoder", words[1:])["model.stack.norm"] == "LayerNorm"
    file = tmp_path / "mine.yaml"
    file.write_text(
        "base: decoder\nmodel.block.norm: LayerNorm\nmodel.stack.norm: LayerNorm\nrows: {a: {model.norm: RMSNorm}}"
    )
    assert cli.main(["inspect", str(file), "row=a"]) == 2
    assert f"{file}:4: model.norm='RMSNorm': nothing in this model refers to it" in capsys.readouterr().err


def test_an_error_behind_a_reference_is_placed_where_the_value_was_set(capsys):
    assert cli.main(["inspect", "bert", "model.norm.epz=1"]) == 2
    assert "command line: model.embedding.norm.epz=1: LayerNorm has no such key" in capsys.readouterr().err


def test_types_of_the_fixed_sections_follow_the_defaults(shelf):
    words = (
        "trainer.max_steps=1e3",
        "trainer.gradient_clip_val=null",
        "log.name=007",
        "train.tokens=1.5B",
        "log.tags=[a]",
    )
    config = load("plain", words)
    found = [config[word.partition("=")[0]] for word in words]
    assert repr(found) == "[1000, None, '007', 1500000000, ['a']]"
    assert found == [setting(word)[1] for word in words]
    assert config.varied({"trainer.max_steps": 5})["trainer"] == {**config["trainer"], "max_steps": 5}


MISTAKES = """
plian: there is no model 'plian'; did you mean 'plain'?
table/papper: there is no model 'table/papper'; did you mean 'table/paper'?
plain size=tony: > size='tony': there is no size 'tony'; did you mean 'tiny'?
plain size=big/on: > size='big/on': there is no size 'big/on'; did you mean 'big/one'?
plain size=shared: > size='shared': several families have a size 'shared'; name one of big/shared, huge/shared
plain size=null: > size=None: expected a name; write the name of a config, as one word
plain data=txet: > data='txet': there is no data 'txet'; did you mean 'text'?
plain sice.width=3: > sice: there is no such section; did you mean 'size'?
plain rate: > override='rate': expected key=value; as in trainer.max_steps=100
plain a..b=3: > override='a..b=3': expected key=value; as in trainer.max_steps=100
plain train.steps=3: > train.steps=3: train has no such key; write trainer.max_steps
plain train.clip=3: > train.clip=3: train has no such key; write trainer.gradient_clip_val
plain train.batches=3: > train.batches=3: train has no such key; did you mean 'batch'?
plain train.batch=many: > train.batch='many': expected a whole number or keys with values
plain train.batch=2.5: > train.batch=2.5: expected a whole number or keys with values
plain train.compile=yes: > train.compile='yes': expected true or false
plain trainer.gradient_clip_val=x: > trainer.gradient_clip_val='x': expected a number above 0 or null
plain log.tags=a: > log.tags='a': expected a list of anything
plain seed={'a':1}: > seed={'a': 1}: expected a whole number from 0 and up to 9.223e18
plain train=fast: > train='fast': expected keys under it; write train.KEY, with KEY of tokens, batch, compile
plain train={'batch':1,'batch':2}: > batch="{'batch':1,'batch':2}": the key is there twice; keep one of them
plain model.x=[ model=gated: > model.x='[': not YAML: did not find expected node content while parsing a flow node
plain log.name=${oc.env:HOME}: > log.name='${oc.env:HOME}': it is no reference; write ${section.key}
plain log.name=${size.width: > log.name='${size.width': it is no reference; write ${section.key}
plain seed=${size.hoods}: > seed='${size.hoods}': there is no key 'size.hoods' to refer to; did you mean 'size.heads'?
plain log.name=a${size}: > log.name='a${size}': size is not a single value; refer to a key that holds one
plain model.a=${model.b} model.b=${model.a}: > model.a='${model.b}': Recursive interpolation detected
plain model.a.x=${model.b} model.b.y=${model.a}: beyond 32 levels or 50,000 values; write the values
plain row=GeLU: > row='GeLU': plain has no rows; name a table, as in table/narang2021 row=GeLU
table/paper row=GeLU: > row='GeLU': table/paper has no such row; did you mean 'GeLU 0.5'?
table/paper row=Based: configs/table/paper.yaml:9: rows.Based.base='plain': a row has no base; write what it changes
table/paper row=Bare: paper.yaml:10: rows.Bare=5: expected sections under a row; write {} where it changes nothing
"""


@pytest.mark.parametrize("case", MISTAKES.strip().splitlines())
def test_a_mistake_on_the_command_line_is_one_line(shelf, case):
    words, _, told = case.partition(": ")
    with pytest.raises(ScalingError) as error:
        load(words.split()[0], words.split()[1:])
    assert str(error.value).endswith(told.replace("> ", "command line: ", 1))
    assert (error.value.code, "\n" in str(error.value)) == (2, False)


def test_a_model_has_to_be_named(shelf):
    for words, told in (([], "choose from gated, plain"), (["row=GeLU"], "row='GeLU': a row needs its table; name it")):
        with pytest.raises(ScalingError, match=told):
            load(None, words)


FILES = r"""
base: mine | mine.yaml:1: base='mine': the config includes itself: mine.yaml → mine.yaml; break the circle
base: yours.yaml | yours.yaml:1: base='mine': the config includes itself: mine.yaml → yours.yaml → mine.yaml; break
base: plian | mine.yaml:1: base='plian': there is no model 'plian'; did you mean 'plain'?
base: [a] | mine.yaml:1: base: expected a name; write the name of a config, as one word
base: gone.yaml | mine.yaml:1: base='gone.yaml': there is no file 'gone.yaml'; did you mean 'mine.yaml'?
base: plain\nsize: tony | mine.yaml:2: size='tony': there is no size 'tony'; did you mean 'tiny'?
base: plain\nsize: | mine.yaml:2: size=None: expected a name; write the name of a config, as one word
base: plain\ntrian: {batch: 1} | mine.yaml:2: trian: there is no such section; did you mean 'train'?
base: plain\ntrian.batch: 1 | mine.yaml:2: trian: there is no such section; did you mean 'train'?
base: plain\ntrain:\n  lr: 2 | mine.yaml:3: train.lr=2: train has no such key; choose from batch, compile, tokens
base: plain\ntrain:\n  batch: '8' | mine.yaml:3: train.batch='8': expected a whole number or keys with values
base: plain\ntrain.batch: 1\ntrain:\n  batch: 2 | mine.yaml:3: train: the key is there twice; keep one of them
base: plain\nmodel.a..b: 1 | mine.yaml:2: model.a..b=1: a dotted key has an empty part; write it as section.key
model: plain | mine.yaml:1: model='plain': expected the model's keys; name another model's file as `base`
- a | mine.yaml: expected sections; write one of model, size, data
base: plain\ndata: loop | loop.yaml:1: data='other': expected its keys here, not a name; name that file as `base`
"""


@pytest.mark.parametrize("case", FILES.strip().splitlines())
def test_a_mistake_in_a_file_names_its_line(shelf, case):
    text, _, told = case.partition(" | ")
    shelf("mine.yaml", text.replace("\\n", "\n"))
    shelf("yours.yaml", "base: mine\n")
    shelf("loop.yaml", "data: other\n")
    with pytest.raises(ScalingError) as error:
        load("mine.yaml")
    assert str(error.value).startswith(told)


def test_references_are_bounded_when_they_are_written_out(shelf):
    pairs = "".join(f"  a{n}: ['${{model.a{n - 1}}}', '${{model.a{n - 1}}}']\n" for n in range(1, 25))
    shelf("mine.yaml", f"base: plain\nmodel:\n  a0: 1\n{pairs}")
    with pytest.raises(ScalingError, match=r"mine.yaml:\d+: model.*references beyond 32 levels or 50,000 values"):
        load("mine.yaml")


def test_an_error_found_later_is_placed_by_its_key(shelf):
    config = load("gated", ["size.heads=3"])
    told = str(config.error("size.heads", "does not divide the width", "take 4"))
    assert told == "command line: size.heads=3: does not divide the width; take 4"
    told = str(config.error("model.block.norm.gain", "unknown"))
    assert told == "configs/model/plain.yaml:4: model.block.norm.gain: unknown"
    assert str(config.place(ScalingError("unknown", key="nowhere"))) == "nowhere: unknown"


def test_what_is_saved_loads_as_the_same_config(shelf, tmp_path, monkeypatch):
    config = load("table/paper", ["row=GeLU 0.5", "log.name=1M", "model.note=a: b # c", "log.tags=['null', x y]"])
    config.save("saved.yaml")
    text = Path("saved.yaml").read_text()
    assert "  width: 512  # configs/size/big.yaml:1\n" in text
    assert '  name: "1M"  # command line\n' in text
    assert load("saved.yaml").tree == document("saved.yaml").tree == config.tree
    before = {path: path.read_text() for path in Path().iterdir() if path.is_file()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ScalingError, match="No space left on device; free some space") as error:
        dataclasses.replace(config, tree={**config.tree, "seed": 9}).save("saved.yaml")
    assert error.value.code == 74
    assert {path: path.read_text() for path in Path().iterdir() if path.is_file()} == before


def test_every_default_has_a_type_and_a_comment():
    defaults = document(shipped() / "defaults.yaml")
    fixed = {key for key in defaults.origin if key.partition(".")[0] in ("trainer", "train", "evaluate", "log", "seed")}
    assert {key for key in fixed if defaults[key] is None} <= set(TYPES)
    assert {key for key in TYPES if not key.startswith("start.")} <= fixed
    for number, line in enumerate((shipped() / "defaults.yaml").read_text().splitlines(), 1):
        if ":" in line.split("#")[0] and not line.split("#")[0].rstrip().endswith(":"):
            assert "#" in line or "kind:" in line, f"defaults.yaml:{number} says no word about {line!r}"


def test_reading_configs_imports_nothing_heavy():
    code = "import sys, scaling.config; print({'torch', 'numpy', 'omegaconf', 'lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
