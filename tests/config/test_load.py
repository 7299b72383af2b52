"""Layers, names, rows, overrides, references, types, and what is said when they are wrong."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.config import SECTIONS, document, load, names, shipped
from scaling.config.reader import read
from scaling.config.resolve import TYPES
from scaling.errors import ScalingError


def test_layers_in_their_order(shelf):
    shelf("over.yaml", "train: {batch: 16, clip: 2}\noptimizer: {lr: 3e-4}\n")
    config = load("gated", ["train.batch=32", "--seed=3", "optimizer.betas=[0.9, 0.99]"], overlays=["over.yaml"])
    assert config["model.block"] == {"norm": {"kind": "LayerNorm", "bias": True}, "channel": {"kind": "Gated"}}
    assert config["size"] == {"width": 512, "heads": 8}
    assert config["train.batch"] == 32
    assert config["train.clip"] == 2.0
    assert config["optimizer"] == {"kind": "AdamW", "lr": 3e-4, "betas": [0.9, 0.99]}
    assert config["seed"] == 3
    assert config.origin["model.block.norm.bias"] == "configs/model/plain.yaml:5"
    assert config.origin["model.block.channel.kind"] == "configs/model/gated.yaml:4"
    assert config.origin["size.width"] == "configs/size/big.yaml:1"
    assert config.origin["optimizer.lr"] == "over.yaml:2"
    assert config.origin["train.batch"] == "command line"
    assert list(config.tree) == [section for section in SECTIONS if section in config.tree]


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ([], {"width": 16, "heads": 2}),
        (["size=1M"], {"width": 128, "heads": 4}),
        (["size=ladder/1M"], {"width": 128, "heads": 4}),
        (["size=two"], {"width": 1024, "heads": 8, "head_width": 64}),
        (["size=big/shared"], {"width": 1}),
        (["size.width=32"], {"width": 32, "heads": 2}),
        (["size.width=32", "size=big/one"], {"width": 32, "heads": 8}),
        (["size={width: 8, heads: 1}"], {"width": 8, "heads": 1}),
        (["data=text"], {"width": 16, "heads": 2, "vocabulary": 512}),
        (["size=two", "data=text"], {"width": 1024, "heads": 8, "head_width": 64, "vocabulary": 512}),
        (["size.vocabulary=64", "data=text"], {"width": 16, "heads": 2, "vocabulary": 64}),
        (["size.vocabulary=32k"], {"width": 16, "heads": 2, "vocabulary": 32000}),
    ],
)
def test_sizes_by_name_and_by_key(shelf, words, size):
    assert load("plain", words)["size"] == size


def test_a_named_size_leaves_nothing_of_the_size_before(shelf):
    shelf("mine.yaml", "base: plain\nsize: huge/two\n")
    assert load("mine.yaml", ["size=tiny"])["size"] == {"width": 16, "heads": 2}


@pytest.mark.parametrize(
    ("words", "optimizer"),
    [
        (["optimizer=SGD"], {"kind": "SGD"}),
        (["optimizer.kind=SGD"], {"kind": "SGD"}),
        (["optimizer.kind=SGD", "optimizer.lr=1"], {"kind": "SGD", "lr": 1}),
        (["optimizer.lr=1", "optimizer.kind=SGD"], {"kind": "SGD", "lr": 1}),
        (["optimizer.lr=1", "optimizer=SGD"], {"kind": "SGD", "lr": 1}),
        (["optimizer.lr=1", "optimizer.lr=2"], {"kind": "AdamW", "lr": 2, "betas": [0.9, 0.95]}),
        (["optimizer={kind: SGD, lr: 4}"], {"kind": "SGD", "lr": 4}),
        (["optimizer={'kind': 'SGD', 'lr': 4.0}"], {"kind": "SGD", "lr": 4.0}),
        (["--optimizer.lr=None"], {"kind": "AdamW", "lr": None, "betas": [0.9, 0.95]}),
    ],
)
def test_overrides_say_the_same_in_any_order(shelf, words, optimizer):
    assert load("plain", words)["optimizer"] == optimizer


def test_a_row_is_laid_over_its_table(shelf):
    assert load("table/paper", ["row=Vanilla"]).tree == load("gated").tree
    gelu = load("table/paper", ["row=GeLU 0.5", "size=tiny"])
    assert gelu["model.block.channel"] == {"kind": "Gated", "activation": "GeLU"}
    assert gelu["size.width"] == 16
    assert load("decoder", ["model=table/paper", "row=GeLU 0.5"])["model"] == gelu["model"]


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
    config = load("plain", words)
    assert config["model.position.base"] == 16
    assert config["log.name"] == "w16h2"


def test_types_of_the_fixed_sections_follow_the_defaults(shelf):
    config = load("plain", ["train.steps=1e3", "train.clip=null", "log.name=007", "train.tokens=1.5B", "log.tags=[a]"])
    assert config["train.steps"] == 1000
    assert type(config["train.steps"]) is int
    assert config["train.clip"] is None
    assert config["log.name"] == "007"
    assert config["train.tokens"] == 1_500_000_000
    assert config["log.tags"] == ["a"]


MISTAKES = {
    ("plian",): "there is no model 'plian'; did you mean 'plain'?",
    (None,): "no model is named; choose from gated, plain",
    ("plain", "size=tony"): "command line: size='tony': there is no size 'tony'; did you mean 'tiny'?",
    ("plain", "size=big/on"): "command line: size='big/on': big has no size 'on'; did you mean 'one'?",
    ("plain", "size=bog/one"): "command line: size='bog/one': there is no size 'bog'; did you mean 'big'?",
    ("plain", "size=shared"): (
        "command line: size='shared': several families have a size 'shared'; name one of big/shared, huge/shared"
    ),
    ("plain", "size=null"): "command line: size=None: expected a name; write the name of a config, as one word",
    ("plain", "data=txet"): "command line: data='txet': there is no data 'txet'; did you mean 'text'?",
    ("plain", "sice.width=3"): "command line: sice: there is no such section; did you mean 'size'?",
    ("plain", "rate"): "command line: override='rate': expected key=value; as in train.steps=100",
    ("plain", "=3"): "command line: override='=3': expected key=value; as in train.steps=100",
    ("plain", "a..b=3"): "command line: override='a..b=3': expected key=value; as in train.steps=100",
    ("plain", "train.batches=3"): "command line: train.batches=3: train has no such key; did you mean 'batch'?",
    ("plain", "train.batch=many"): "command line: train.batch='many': expected a whole number or keys with values",
    ("plain", "train.batch=null"): "command line: train.batch=None: expected a whole number or keys with values",
    ("plain", "train.batch=true"): "command line: train.batch=True: expected a whole number or keys with values",
    ("plain", "train.batch=2.5"): "command line: train.batch=2.5: expected a whole number or keys with values",
    ("plain", "train.batch=[1]"): "command line: train.batch=[1]: expected a whole number or keys with values",
    ("plain", "train.compile=yes"): "command line: train.compile='yes': expected true or false",
    ("plain", "train.clip=x"): "command line: train.clip='x': expected a number or null",
    ("plain", "log.tags=a"): "command line: log.tags='a': expected a list of anything",
    ("plain", "train=fast"): (
        "command line: train='fast': expected keys under it; "
        "write train.KEY, with KEY of steps, tokens, batch, clip, precision, compile"
    ),
    ("plain", "seed={a: 1}"): "command line: seed={'a': 1}: expected a whole number",
    ("plain", "train={batch: 1, batch: 2}"): (
        "command line: batch='{batch: 1, batch: 2}': the key is there twice; keep one of them"
    ),
    ("plain", "model.x=[1"): (
        "command line: model.x='[1': not YAML: did not find expected ',' or ']' while parsing a flow sequence"
    ),
    ("plain", "log.name=${env:HOME}"): (
        "command line: log.name='${env:HOME}': resolvers are not read; only ${section.key} is"
    ),
    ("plain", "log.name=${oc.env:HOME}"): (
        "command line: log.name='${oc.env:HOME}': resolvers are not read; only ${section.key} is"
    ),
    ("plain", "log.name=${size.widht}"): (
        "command line: log.name='${size.widht}': there is no key 'size.widht' to refer to; did you mean 'size.width'?"
    ),
    ("plain", "log.name=${size}"): (
        "command line: log.name='${size}': size is not a single value; refer to a key that holds one"
    ),
    ("plain", "model.a=${model.b}", "model.b=${model.a}"): (
        "command line: model.a='${model.b}': it cannot be resolved: Recursive interpolation detected; "
        "write ${section.key}"
    ),
    ("plain", "row=GeLU"): (
        "command line: row='GeLU': plain has no rows; name a table, as in table/narang2021 row=GeLU"
    ),
    ("table/paper", "row=GeLU"): "command line: row='GeLU': table/paper has no such row; did you mean 'GeLU 0.5'?",
    ("table/paper", "row=Based"): (
        "configs/table/paper.yaml:9: Based.base='plain': a row has no base; write what it changes"
    ),
    ("table/paper", "row=Bare"): (
        "configs/table/paper.yaml:10: Bare=5: expected sections under a row; write {} where it changes nothing"
    ),
    ("table/papper",): "there is no model 'table/papper'; did you mean 'table/paper'?",
    (None, "row=GeLU"): "command line: row='GeLU': a row needs its table; name it, as in table/narang2021 row=GeLU",
    ("plain", "model.position=[", "model=gated"): (
        "command line: model.position='[': not YAML: did not find expected node content while parsing a flow node"
    ),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.items(), ids=[" ".join(map(str, words)) for words in MISTAKES])
def test_a_mistake_on_the_command_line_is_one_line(shelf, words, told):
    with pytest.raises(ScalingError) as error:
        load(words[0], words[1:])
    assert str(error.value) == told
    assert error.value.code == 2


FILES = {
    "base: mine\n": ("mine.yaml:1: base='mine': the config includes itself: mine.yaml → mine.yaml; break the circle"),
    "\nbase: yours.yaml\n": (
        "yours.yaml:1: base='mine': the config includes itself: mine.yaml → yours.yaml → mine.yaml; break the circle"
    ),
    "base: plian\n": "mine.yaml:1: base='plian': there is no model 'plian'; did you mean 'plain'?",
    "base: [a]\n": "mine.yaml:1: base: expected a name; write the name of a config, as one word",
    "base: gone.yaml\n": "mine.yaml:1: base='gone.yaml': there is no file 'gone.yaml'; did you mean 'mine.yaml'?",
    "base: plain\nsize: tony\n": "mine.yaml:2: size='tony': there is no size 'tony'; did you mean 'tiny'?",
    "base: plain\nsize:\n": "mine.yaml:2: size=None: expected a name; write the name of a config, as one word",
    "base: plain\ntrian: {batch: 1}\n": "mine.yaml:2: trian: there is no such section; did you mean 'train'?",
    "base: plain\ntrain:\n  batch: 1\n  lr: 2\n": (
        "mine.yaml:4: train.lr=2: train has no such key; choose from batch, clip, compile, precision, steps, tokens"
    ),
    "base: plain\ntrain:\n  batch: '8'\n": "mine.yaml:3: train.batch='8': expected a whole number or keys with values",
    "model: plain\n": ("mine.yaml:1: model='plain': expected the model's keys; name another model's file as `base`"),
    "- a\n": f"mine.yaml: expected sections; write one of {', '.join(SECTIONS)}",
    "base: plain\ndata: loop\n": (
        "loop.yaml:1: data='other': expected its keys here, not a name; name that file as `base`"
    ),
}


@pytest.mark.parametrize(("text", "told"), FILES.items(), ids=[told[10:50] for told in FILES.values()])
def test_a_mistake_in_a_file_names_its_line(shelf, text, told):
    shelf("mine.yaml", text)
    shelf("yours.yaml", "base: mine\n")
    shelf("loop.yaml", "data: other\n")
    with pytest.raises(ScalingError) as error:
        load("mine.yaml")
    assert str(error.value) == told


def test_an_error_found_later_is_placed_by_its_key(shelf):
    config = load("gated", ["size.heads=3"])
    assert str(config.error("size.heads", "does not divide the width", "take 4")) == (
        "command line: size.heads=3: does not divide the width; take 4"
    )
    assert str(config.error("model.block.norm.gain", "unknown")) == (
        "configs/model/plain.yaml:5: model.block.norm.gain: unknown"
    )
    assert str(config.place(ScalingError("unknown", key="nowhere"))) == "nowhere: unknown"


def test_what_is_saved_loads_as_the_same_config(shelf, tmp_path):
    config = load("table/paper", ["row=GeLU 0.5", "log.name=1M", "model.note=a: b # c", "log.tags=['null', x y]"])
    config.save(tmp_path / "saved.yaml")
    text = (tmp_path / "saved.yaml").read_text()
    assert "    width: 512" not in text
    assert "  width: 512  # configs/size/big.yaml:1\n" in text
    assert '  name: "1M"  # command line\n' in text
    assert load("saved.yaml").tree == config.tree
    assert document("saved.yaml").tree == config.tree
    assert [path.name for path in tmp_path.iterdir() if "saved" in path.name] == ["saved.yaml"]


def test_a_save_that_fails_leaves_the_old_file_and_no_litter(shelf, tmp_path, monkeypatch):
    config = load("plain")
    (tmp_path / "out").mkdir()
    config.save(tmp_path / "out" / "c.yaml")
    before = (tmp_path / "out" / "c.yaml").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ScalingError, match="No space left on device; free some space") as error:
        dataclasses.replace(config, tree={**config.tree, "seed": 9}).save(tmp_path / "out" / "c.yaml")
    assert error.value.code == 74
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["c.yaml"]
    assert (tmp_path / "out" / "c.yaml").read_bytes() == before


def test_the_types_that_defaults_do_not_show_are_all_told():
    defaults = read(shipped() / "defaults.yaml")
    fixed = {key: node for key, node in defaults.walk() if key.split(".")[0] in ("train", "evaluate", "log")}
    silent = {key for key, node in fixed.items() if node.value is None}
    assert silent <= set(TYPES)
    assert set(TYPES) <= set(fixed)


def test_every_default_has_a_comment():
    for number, line in enumerate((shipped() / "defaults.yaml").read_text().splitlines(), 1):
        if ":" in line.split("#")[0] and not line.split("#")[0].rstrip().endswith(":"):
            assert "#" in line or "kind:" in line, f"defaults.yaml:{number} says no word about {line!r}"


@pytest.mark.parametrize("name", names("model"))
def test_every_shipped_model_resolves(name):
    config = load(name)
    assert config["model.kind"]
    assert all(Path(origin.rpartition(":")[0]).is_file() for origin in set(config.origin.values()))


def test_reading_configs_imports_nothing_heavy():
    code = "import sys, scaling.config; print({'torch', 'numpy', 'omegaconf', 'lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_row_is_a_difference_from_the_size_in_force(shelf):
    shelf("configs/table/deep.yaml", "base: model/gated\nrows: {Deep: {size.times: {layers: 2}}}\n")
    assert load("table/deep", ["row=Deep", "size=tiny"])["size"] == {"width": 16, "heads": 2, "times": {"layers": 2}}
    assert load("table/deep", ["row=Deep", "size.times.layers=3"])["size.times"] == {"layers": 3}


def test_a_row_said_again_is_laid_over_what_it_was(shelf):
    shelf("configs/table/again.yaml", "base: table/paper\nrows: {GeLU 0.5: {optimizer.lr: 1}, New: {seed: 1}}\n")
    config = load("table/again", ["row=GeLU 0.5"])
    assert config["model.block.channel"] == {"kind": "Gated", "activation": "GeLU"}
    assert config["optimizer.lr"] == 1
    assert load("table/again", ["row=New"])["seed"] == 1
