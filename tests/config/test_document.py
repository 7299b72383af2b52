"""Strict YAML: what a file means, what is refused, and where."""

import math
import os
import string
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaling import config
from scaling.config import Config, document
from scaling.errors import ScalingError

LOADERS = {"C": getattr(yaml, "CSafeLoader", yaml.SafeLoader), "Python": yaml.SafeLoader}


@pytest.fixture(params=LOADERS)
def loader(request, monkeypatch):
    config._parse.cache_clear()
    monkeypatch.setattr(config, "_LOADER", LOADERS[request.param])


DOCUMENTS = {
    "": {},
    "# only a comment\n": {},
    "---\n": {},
    "a: 1\nb: [x, 2.5, null]\n": {"a": 1, "b": ["x", 2.5, None]},
    "no: 1\n1: 2\n1.5B: {a: b}\n": {"no": 1, "1": 2, "1.5B": {"a": "b"}},
    "a: &x {b: 1}\nc: *x\n": {"a": {"b": 1}, "c": {"b": 1}},
    "a: |\n  two\n  lines\n": {"a": "two\nlines\n"},
    "\ufeffa: 1\n": {"a": 1},
    "'<<': 1\n": {"<<": 1},
    "a: {title}\nb: {t: }\n": {"a": "{title}", "b": {"t": None}},
    "optimizer.lr: {value: 1}\n": {"optimizer.lr": {"value": 1}},
}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_a_file_is_plain_values(text, write, loader):
    assert document(write("a.yaml", text)).tree == DOCUMENTS[text]


TEXT = "no yes on off y NO .nan nan inf 1e999 1:30 190:20:30 2026-11-20 1.2.3 _1 1e e5 ٣ 20M 5%"
WORDS = "~ null None true True FALSE 0 -7 +7 007 1_000_000 0x1F 0o17 1e-4 1E5 1. .5 -.5e3 .inf -.inf"
VALUES = [None, None, None, True, True, False, 0, -7, 7, 7, 1_000_000, 31, 15, 1e-4, 1e5, 1.0, 0.5, -500.0]


def test_an_unquoted_word_means_what_a_person_means(write):
    text = [*TEXT.split(), "9" * 5000]
    lines = "".join(f"k{index}: {word}\n" for index, word in enumerate(["", *WORDS.split(), *text]))
    found = list(document(write("a.yaml", lines)).tree.values())
    assert list(map(repr, found)) == list(map(repr, [None, *VALUES, math.inf, -math.inf, *text]))


BOMB = "".join(f"a{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in range(10)) if n else 'x'}]\n" for n in range(12))
TOWER = "".join(f"a{n}: &a{n} [[[[[[[[[[{f'*a{n - 1}' if n else 'x'}]]]]]]]]]]\n" for n in range(200))
TAG = "is not read; write the plain value"

REFUSALS = {
    "a: 1\nb: 2\na: 3\n": "a.yaml:3: a: the key is there twice; keep one of them",
    "a:\n  b: {c: 1, c: 2}\n": "a.yaml:2: c: the key is there twice; keep one of them",
    '"a\\nb": 1\n"a\\nb": 2\n': "a.yaml:2: a b: the key is there twice; keep one of them",
    "a:\n\tb: 1\n": "a.yaml:2: a tab in the indentation; indent with spaces",
    "a: !!python/object/apply:os.system [x]\n": f":python/object/apply:os.system' {TAG}",
    "a: !!str 1\n": f"a.yaml:1: the tag 'tag:yaml.org,2002:str' {TAG}",
    "!!str a: 1\n": f"a.yaml:1: the tag 'tag:yaml.org,2002:str' {TAG}",
    "a: &x {b: 1}\nc:\n  <<: *x\n": "a.yaml:3: merge keys are not read; name the other file as `base`",
    "a: *x\n": "a.yaml:1: not YAML: found undefined alias",
    "a: &x [*x]\n": "a.yaml:1: nested more than 32 deep; flatten it",
    "a: 1\n---\nb: 2\n": "a.yaml:2: not YAML: but found another document expected a single document in the stream",
    "? [a]\n: 1\n": "a.yaml:1: a key must be a single word; quote it if it is meant as text",
    "[" * 40 + "]" * 40: "a.yaml:1: nested more than 32 deep; flatten it",
    "[" * 5000: "a.yaml:1: nested more than 32 deep; flatten it",
    BOMB: "a.yaml:1: more than 50,000 values, aliases written out; write less",
    TOWER: "a.yaml:1: nested more than 32 deep; flatten it",
    b"a: 1\nb: \xff\n": "a.yaml:2: not UTF-8; save it as UTF-8",
    "a: 1\n".encode("utf-16"): "a.yaml:1: not UTF-8; save it as UTF-8",
    b"a: " + b"x" * config.MOST_BYTES: "a.yaml: 1,048,579 bytes are too many for a config; 1,048,576 are the most",
    **dict.fromkeys(
        ["a: [1\n", "a: 'x\n", "a: b: c\n", "- a\nb\n", "a: @x\n", "%x\n", "a: \x07\n", "a: }"], "not YAML: "
    ),
}


@pytest.mark.parametrize("text", REFUSALS, ids=lambda text: ascii(text[:30]))
def test_what_is_no_strict_yaml_is_refused_in_one_line_with_its_place(text, write, loader):
    with pytest.raises(ScalingError) as error:
        document(write("a.yaml", text))
    told = str(error.value)
    assert told.startswith("a.yaml")
    assert REFUSALS[text] in told
    assert "\n" not in told
    assert error.value.code == 2


@pytest.mark.parametrize("where", ["absent.yaml", "folder", "pipe", "a\0b.yaml", "x" * 300 + ".yaml"])
def test_what_is_no_file_is_refused(where, write, tmp_path):
    write("folder/a.yaml", "a: 1")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScalingError) as error:
        document(where)
    assert "\n" not in str(error.value)
    assert error.value.code == 2


def test_an_origin_is_the_line_of_the_key(write, loader):
    text = "a:\n  b: &b\n    - 1\n    - {c: 2}\n  d: |\n    x\ne: *b\n"
    lines = {key: int(origin.removeprefix("a.yaml:")) for key, origin in document(write("a.yaml", text)).origin.items()}
    assert lines == {
        "a": 1,
        "a.b": 2,
        "a.b.0": 3,
        "a.b.1": 4,
        "a.b.1.c": 4,
        "a.d": 5,
        "e": 7,
        "e.0": 3,
        "e.1": 4,
        "e.1.c": 4,
    }


PIECES = [
    *"[]{}:,-?#&*!|>%@`'\"\n\t ~<.",
    *("a", "b: ", "\n  ", "\n- ", "&a ", "*a", "<<: ", "!!x ", "---\n", "1e-4", "é"),
]
yaml_like = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
words = st.text(string.printable + "é€𝛼\x85\u2028\ufeff\x7f", max_size=12)
lookalikes = ["null", "None", "1e5", "4k", "1M", "0x1F", "no", "true", "# x", "a: b", "", "- x", "2026-11-20", "{a}"]
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | words | st.sampled_from(lookalikes)
nested = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))


def in_one_line(function, *arguments):
    """The answer, or None where the input is refused as it has to be."""
    try:
        return function(*arguments)
    except ScalingError as error:
        refusal = error
    assert ("\n" in str(refusal), refusal.code) == (False, 2)
    return None


@given(yaml_like | st.text(max_size=60))
@example("&a [*a]")
@example("{" * 5000)
@example("a: " + "9" * 5000)
@example("? " * 3000)
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_alike_by_both_parsers_or_refused_in_one_line(text):
    trees = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        (file := Path(folder, "a.yaml")).write_text(text, "utf-8", "surrogatepass")
        for loader in LOADERS.values():
            config._parse.cache_clear()
            patch.setattr(config, "_LOADER", loader)
            trees.append(in_one_line(document, file))
    assert None in trees or trees[0].tree == trees[1].tree


@given(st.text(max_size=60))
@example("a=[")
@example("a='")
@example("a=\ud800")
@example("a=" + "[" * 5000)
def test_any_override_is_read_or_refused_in_one_line(word):
    in_one_line(config.override, word)
    in_one_line(config.assignments, [f"a.b={word}", word])


@given(st.dictionaries(words, nested, max_size=4))
@settings(max_examples=60, deadline=None)
def test_what_is_saved_is_read_back(tree):
    with TemporaryDirectory() as folder:
        Config(tree, {}).save(Path(folder, "saved.yaml"))
        assert repr(document(Path(folder, "saved.yaml")).tree) == repr(tree)
