"""What docs/configuration.md promises: strict YAML, layers, names, rows, overrides, references, types, errors."""

import os
import string
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.config.compose import assignments, load, table_file, varied
from scaling.config.document import Config, document
from scaling.config.files import names
from tests.command_line import refuses

SHIPPED = {
    "defaults": """
        size: tiny
        data: toy
        objective: {kind: Causal}
        optimizer: {kind: AdamW, lr: 1e-3, betas: [0.9, 0.95]}
        trainer: {max_steps: null, gradient_clip_val: 1.0}
        train: {tokens: 1M, batch: 8, compile: false}
        log: {tags: [], name: null}
        seed: 0
        runs: runs
        """,
    "model/plain": """
        model:
          kind: Decoder
          norm: {kind: LayerNorm, bias: true}
          position: {kind: Rotary, base: 10000}
          block: {channel: {kind: Dense, activation: ReLU}}
          block.norm: ${model.norm}
          stack.norm: ${model.norm}
        """,
    "model/gated": """
        base: plain
        size: big/one
        model.block.channel: {kind: Gated}
        """,
    "size/ladder": "tiny: {width: 16, heads: 2}\n1M: {width: 128, heads: 4}\n",
    "size/big": "one: {width: 512, heads: 8}\nshared: {width: 1}\n",
    "size/huge": "two: {width: 1024, heads: 8, head_width: 64}\nshared: {width: 2}\n",
    "data/toy": "data: {kind: Synthetic, order: 2}\n",
    "data/text": "base: toy\ndata: {kind: Python}\nsize: {vocabulary: 512}\n",
    "table/paper": """
        base: model/gated
        table: {paper: a paper, columns: [Params]}
        rows:
          Vanilla: {}
          GeLU 0.5:
            model.block.channel.activation: GeLU
            table: {published: 1.5}
          Based: {base: plain}
        """,
}
TWO = {"width": 1024, "heads": 8, "head_width": 64}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Write files into an empty working folder, next to a small set of shipped configs."""
    monkeypatch.chdir(tmp_path)
    for module in ("compose", "files"):
        monkeypatch.setattr(f"scaling.config.{module}.shipped", lambda: Path("configs"))

    def write(name: str, text: str | bytes) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return path

    for name, text in SHIPPED.items():
        write(f"configs/{name}.yaml", text)
    return write


def refusal(function: Any, *arguments: Any) -> Any:
    """The one line of a refusal with code 2, or the answer."""
    try:
        return function(*arguments)
    except ScalingError as error:
        message, code = str(error), error.code
    assert ("\n" in message, code) == (False, 2)
    return message


def test_a_file_is_plain_values(shelf):
    documents = {
        "": {},
        "a: 1\nb: [x, 2.5, null]\n": {"a": 1, "b": ["x", 2.5, None]},
        "no: 1\n1: 2\n1.5B: {a: b}\n": {"no": 1, "1": 2, "1.5B": {"a": "b"}},
        "a: &x {b: 1}\nc: *x\n": {"a": {"b": 1}, "c": {"b": 1}},
        "\ufeffa: 1\n": {"a": 1},
        "'<<': 1\n": {"<<": 1},
        "a: {title}\nb: {t: }\n": {"a": "{title}", "b": {"t": None}},
    }
    for text, tree in documents.items():
        assert document(shelf("a.yaml", text)).tree == tree


def test_an_unquoted_word_means_what_a_person_means(shelf):
    text = "no yes on off y NO .nan nan inf 1e999 1:30 190:20:30 2026-11-20 1.2.3 _1 1e e5 ٣ 20M 5%"
    words = "~ null None true True FALSE 0 -7 +7 007 1_000_000 0x1F 0o17 1e-4 1E5 1. .5 -.5e3 .inf -.inf"
    values = [None, None, None, True, True, False, 0, -7, 7, 7, 1_000_000, 31, 15, 1e-4, 1e5, 1.0, 0.5, -500.0]
    text = [*text.split(), "9" * 5000]
    lines = "".join(f"k{index}: {word}\n" for index, word in enumerate(["", *words.split(), *text]))
    found = list(document(shelf("a.yaml", lines)).tree.values())
    assert list(map(repr, found)) == list(map(repr, [None, *values, float("inf"), -float("inf"), *text]))


def test_what_is_no_strict_yaml_and_no_file_is_refused_in_one_line_with_its_place(shelf):
    bomb = "".join(f"a{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in range(10)) if n else 'x'}]\n" for n in range(12))
    tag = "is not read; write the plain value"
    refusals = {
        "a: 1\nb: 2\na: 3\n": "a.yaml:3: a: the key appears twice; keep one of them",
        "a: !!python/object/apply:os.system [x]\n": f":python/object/apply:os.system' {tag}",
        "a: &x {b: 1}\nc:\n  <<: *x\n": "a.yaml:3: merge keys are not read; name the other file as `base`",
        "a: 1\n---\nb: 2\n": "a.yaml:2: not YAML: but found another document expected a single document in the stream",
        "[" * 40 + "]" * 40: "a.yaml:1: nested more than 32 deep; flatten it",
        bomb: "more than 50,000 values, aliases written out; write less",
        b"a: 1\nb: \xff\n": "a.yaml:2: not UTF-8; save it as UTF-8",
        b"a: " + b"x" * (1 << 20): "a.yaml: the file is over 1,048,576 bytes; write less",
    }
    for text, said in refusals.items():
        message = refusal(document, shelf("a.yaml", text))
        assert message.startswith("a.yaml")
        assert said in message
    os.mkfifo("pipe")
    for where in ("absent.yaml", "configs", "pipe", "a\0b.yaml", "x" * 300 + ".yaml"):
        assert isinstance(refusal(document, where), str)


PIECES = [*"[]{}:,-?#&*!|>%@`'\"\n\t ~<.", "a", "b: ", "\n  ", "\n- ", "&a ", "*a", "<<: ", "!!x ", "---\n", "1e-4"]
yaml_like = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=60)
words = st.text(string.printable + "é€𝛼\x85\u2028\ufeff\x7f", max_size=12)
lookalikes = ["null", "None", "1e5", "4k", "1M", "0x1F", "no", "true", "# x", "a: b", "", "- x", "2026-11-20", "{a}"]
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | words | st.sampled_from(lookalikes)
nested = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))


@given(yaml_like)
@example("&a [*a]")
@example("{" * 5000)
@example("? " * 3000)
@example("'")
@example("\ud800")
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused_in_one_line(text):
    refusal(assignments, [f"a.b={text}", text])
    with TemporaryDirectory() as folder:
        (file := Path(folder, "a.yaml")).write_text(text, "utf-8", "surrogatepass")
        refusal(document, file)


@given(st.dictionaries(words, nested, max_size=4))
@settings(max_examples=60, deadline=None)
def test_what_is_saved_is_read_back(tree):
    with TemporaryDirectory() as folder:
        Config(tree, {}).save(Path(folder, "saved.yaml"))
        assert repr(document(Path(folder, "saved.yaml")).tree) == repr(tree)


def test_layers_in_their_order(shelf):
    shelf("over.yaml", "train: {batch: 16}\ntrainer: {gradient_clip_val: 2}\noptimizer: {lr: 3e-4}\n")
    config = load("gated", ["train.batch=32", "--seed=3", "optimizer.betas=[0.9, 0.99]"], overlays=["over.yaml"])
    norm = {"kind": "LayerNorm", "bias": True}
    assert config["model.block"] == {"channel": {"kind": "Gated"}, "norm": norm}
    assert config["size"] == {"width": 512, "heads": 8}
    assert (config["train.batch"], config["trainer.gradient_clip_val"], config["seed"]) == (32, 2.0, 3)
    assert config["optimizer"] == {"kind": "AdamW", "lr": 3e-4, "betas": [0.9, 0.99]}
    origins = {
        "model.block.norm.bias": "configs/model/plain.yaml:4",  # of the value, not of the reference to it
        "size.width": "configs/size/big.yaml:1",
        "optimizer.lr": "over.yaml:3",
        "train.batch": "command line",
    }
    assert {key: config.origin[key] for key in origins} == origins


def test_names_and_keys_of_a_section(shelf):
    tiny = {"width": 16, "heads": 2}
    adamw = {"kind": "AdamW", "lr": 1e-3, "betas": [0.9, 0.95]}
    sections = {
        (): {"size": tiny},
        ("size=1M",): {"size": {"width": 128, "heads": 4}},
        ("size=two",): {"size": TWO},
        ("size.width=32", "size=big/one"): {"size": {"width": 32, "heads": 8}},
        ("size={width: 8, heads: 1}",): {"size": {"width": 8, "heads": 1}},
        ("data=text",): {"size": {**tiny, "vocabulary": 512}},
        ("size.vocabulary=64", "data=text"): {"size": {**tiny, "vocabulary": 64}},
        ("optimizer.lr=1", "optimizer=SGD"): {"optimizer": {"kind": "SGD", "lr": 1}},
        ("optimizer={kind: SGD, lr: 1}", "optimizer.lr=2"): {"optimizer": {"kind": "SGD", "lr": 2}},
        ("--optimizer.lr=None", "optimizer.note={a}: [b] {c}"): {
            "optimizer": {**adamw, "lr": None, "note": "{a}: [b] {c}"}
        },
    }
    for words, expected in sections.items():
        assert {section: load("plain", words)[section] for section in expected} == expected


def test_a_kind_replaces_and_the_rest_is_laid_over(shelf):
    overlays = {
        ("{kind: LayerNorm, bias: true}", "{bias: false}"): {"kind": "LayerNorm", "bias": False},
        ("{kind: LayerNorm, bias: true}", "RMSNorm"): {"kind": "RMSNorm"},
        ("LayerNorm", "{bias: false}"): {"kind": "LayerNorm", "bias": False},
        ("[1, 2]", "[3]"): [3],
        ("{kind: X, b: {kind: Y, c: 1}}", "{b.kind: Z, b.d: 1}"): {"kind": "X", "b": {"kind": "Z", "d": 1}},
        ("{b.c.d: 1, b: {c.e: 2}}", "{b.c: Z, b.c.e: 3}"): {"b": {"c": {"kind": "Z", "e": 3}}},
        ("{eps: 1}", "{kind: '${model.norm}', eps: 2}"): {"kind": "LayerNorm", "bias": True, "eps": 2},
    }
    for (below, above), expected in overlays.items():
        shelf("below.yaml", f"base: plain\nmodel.x: {below}\n")
        shelf("above.yaml", f"base: below.yaml\nmodel.x: {above}\n")
        assert load("above.yaml")["model.x"] == expected


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
    assert file.rows == ("Vanilla", "GeLU 0.5", "Based", "Deep")
    assert file.config.tree == {"paper": "b", "columns": ["Params"]}


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


@pytest.mark.parametrize("name", names("model"))
def test_one_key_is_the_norm_of_a_shipped_model(name):
    def norms(tree):
        for key, value in tree.items():
            if key == "norm" and value is not None:
                yield value["kind"] if isinstance(value, dict) else value
            elif isinstance(value, dict):
                yield from norms(value)

    before = load(name)["model"]
    after = load(name, ["model.norm={kind: LayerNorm, eps: 0.125}"])["model"]
    assert "norm" not in before
    assert list(norms(after)) == [norm if norm == "NoNorm" else "LayerNorm" for norm in norms(before)]
    assert after["block"]["norm"] == {"kind": "LayerNorm", "eps": 0.125}
    one = load(name, ["model.norm.gain=false", "model.block.norm.eps=0.5"])["model"]["block"]["norm"]
    assert (one["gain"], one["eps"]) == (False, 0.5)


def test_types_of_the_fixed_sections_follow_the_defaults(shelf):
    words = ["trainer.max_steps=1e3", "trainer.gradient_clip_val=null", "log.name=007", "train.tokens=1.5B"]
    config = load("plain", words)
    found = [config[word.partition("=")[0]] for word in words]
    assert repr(found) == "[1000, None, '007', 1500000000]"
    quantities = {"4k": 4000, "20M": 20_000_000, "1.5B": 1_500_000_000, "2T": 2 * 10**12, "5%": 0.05, "'4k'": "4k"}
    assert [load("plain", [f"model.x={text}"])["model.x"] for text in quantities] == list(quantities.values())
    assert varied(config, ["trainer.max_steps=5"])["trainer"] == {**config["trainer"], "max_steps": 5}
    shelf("a.yaml", "base: plain\ntrain: {batch: {tokens: 25000}}\n")
    assert load("a.yaml", ["train.batch=4"])["train.batch"] == 4


MISTAKES = """
plian: there is no model 'plian'; did you mean 'plain'?
plain size=shared: > size='shared': several families have a size 'shared'; name one of big/shared, huge/shared
plain sice.width=3: > sice: there is no such section; did you mean 'size'?
plain a..b=3: > override='a..b=3': expected key=value; as in seed=1
plain train.steps=3: > train.steps=3: train has no such key; write trainer.max_steps
plain train.batch=many: > train.batch='many': expected a whole number or keys with values
plain trainer=fast: > trainer='fast': expected keys under it; write trainer.KEY, with KEY of max_steps
plain log.name=${oc.env:HOME}: > log.name='${oc.env:HOME}': it is not a reference; write ${section.key}
plain seed=${size.hoods}: > seed='${size.hoods}': there is no key 'size.hoods' to refer to; did you mean 'size.heads'?
plain log.name=a${size}: > log.name='a${size}': size is not a single value; refer to a key that holds one
plain model.a=${model.b} model.b=${model.a}: > model.a='${model.b}': Recursive interpolation detected
plain model.norm=A model.block.norm=B model.stack.norm=B: > model.norm: nothing in this model refers to it; set model.b
plain row=GeLU: > row='GeLU': plain has no rows; name a table, as in table/narang2021 row=GeLU
table/paper row=Based: configs/table/paper.yaml:9: rows.Based.base='plain': a row has no base; write what it changes
"""


FILES = r"""
base: mine | mine.yaml:1: base='mine': the config includes itself: mine.yaml → mine.yaml; break the circle
base: plain\nsize: tony | mine.yaml:2: size='tony': there is no size 'tony'; did you mean 'tiny'?
base: plain\ntrain.batch: 1\ntrain:\n  batch: 2 | mine.yaml:3: train: the key appears twice; keep one of them
model: plain | mine.yaml:1: model='plain': expected the model's keys; name another model's file as `base`
base: plain\ndata: loop | loop.yaml:1: data='other': expected its keys here, not a name; name that file as `base`
"""


def test_a_mistake_is_one_line_with_its_place(shelf):
    for case in MISTAKES.strip().splitlines():
        words, _, message = case.partition(": ")
        assert message.replace("> ", "command line: ", 1) in refusal(load, words.split()[0], words.split()[1:])
    shelf("loop.yaml", "data: other\n")
    for case in FILES.strip().splitlines():
        text, _, message = case.partition(" | ")
        shelf("mine.yaml", text.replace("\\n", "\n"))
        assert refusal(load, "mine.yaml").startswith(message)


def test_what_is_saved_loads_as_the_same_config_and_is_whole_or_as_it_was(shelf, monkeypatch):
    config = load("table/paper", ["row=GeLU 0.5", "log.name=1M", "model.note=a: b # c", "log.tags=['null', x y]"])
    config.save("saved.yaml")
    text = Path("saved.yaml").read_text()
    assert "  width: 512  # configs/size/big.yaml:1\n" in text
    assert '  name: "1M"  # command line\n' in text
    assert load("saved.yaml").tree == document("saved.yaml").tree == config.tree
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ScalingError, match="No space left on device; free some space"):
        load("plain").save("saved.yaml")
    assert Path("saved.yaml").read_text() == text


def test_a_mixture_of_a_file_that_names_itself_is_one_line(tmp_path):
    file = tmp_path / "mix.yaml"
    file.write_text("data: {kind: Mixture, domains: {a: mix.yaml, b: python}, shares: {a: 1, b: 1}}\n")
    refuses("mix.yaml:1: .*the config includes itself: mix.yaml → mix.yaml", load, "decoder", [f"data={file}"])
