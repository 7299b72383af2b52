"""What must hold for any text and any tree: one line or a tree, never a traceback; and what is saved is read back."""

import string
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scaling.config import document, reader
from scaling.config.node import Node, Origin
from scaling.config.overlay import overlay, undotted
from scaling.config.override import override
from scaling.config.reader import parse
from scaling.config.resolve import interpolate, quantities
from scaling.config.resolved import Config
from scaling.config.scalar import scalar
from scaling.errors import ScalingError

PIECES = [
    *"[]{}:,-?#&*!|>%@`'\"\n\t ~<.",
    "a",
    "b: ",
    "\n  ",
    "\n- ",
    "&a ",
    "*a",
    "<<: ",
    "!!x ",
    "---\n",
    "1e-4",
    "no",
    "é",
]
yaml_like = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
anything = st.text(max_size=60)

words = st.text(string.printable + "é€𝛼\x85\u2028\ufeff\x7f", max_size=12)
lookalikes = ["null", "None", "1e5", "4k", "1M", "0x1F", "no", "true", "${a}", "# x", "a: b", "", "- x", "2026-11-20"]
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | words | st.sampled_from(lookalikes)


def nested(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)


def kinded(inner):
    mappings = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return mappings | st.builds(lambda kind, rest: {**rest, "kind": kind}, kinds, mappings)


trees = st.dictionaries(words, st.recursive(scalars, nested, max_leaves=8), max_size=4)
kinds = st.sampled_from("XYZ")
values = st.recursive(st.integers(0, 3) | kinds | st.none(), kinded, max_leaves=6)
layers = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def node(value, file="f"):
    origin = Origin(file, 1)
    if isinstance(value, dict):
        return Node({key: node(child, file) for key, child in value.items()}, origin)
    if isinstance(value, list):
        return Node(tuple(node(child, file) for child in value), origin)
    return Node(value, origin)


def told_in_one_line(function, *arguments):
    try:
        return function(*arguments)
    except ScalingError as error:
        told = error
    assert "\n" not in str(told)
    assert told.code == 2
    return None


@given(yaml_like | anything)
@example("&a [*a]")
@example("a: \ud800")
@example("[" * 5000)
@example("{" * 5000)
@example("a: " + "9" * 5000)
@example("? " * 3000)
@settings(max_examples=300)
def test_any_text_is_a_tree_or_one_line(text):
    root = told_in_one_line(parse, text, "f")
    if root is not None and root.mapping is not None:
        told_in_one_line(undotted, root)
        told_in_one_line(interpolate, root)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml: there is one parser only")
@given(yaml_like)
@settings(max_examples=150)
def test_both_parsers_of_pyyaml_read_the_same(text):
    with pytest.MonkeyPatch.context() as patch:
        trees = []
        for loader in (yaml.CSafeLoader, yaml.SafeLoader):
            patch.setattr(reader, "_LOADER", loader)
            trees.append(told_in_one_line(parse, text, "f"))
    if None not in trees:
        assert trees[0].plain() == trees[1].plain()


@given(anything)
@example("a=[")
@example("a={b: 1")
@example("a='")
@example("a=" + "[" * 5000)
def test_any_override_is_read_or_one_line(word):
    told_in_one_line(override, word)
    told_in_one_line(override, f"a.b={word}")


@given(st.text("0123456789.-+eExonfk_~:", max_size=8))
def test_any_word_is_a_scalar(word):
    assert isinstance(scalar(word), str | int | float | bool | None)


@given(trees)
@settings(max_examples=100)
def test_what_is_saved_is_read_back(tree):
    config = Config.of(node(tree))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "saved.yaml"
        config.save(path)
        again = document(path)
        assert again.tree == tree
        assert quantities(node(again.tree)).plain() == tree
        types = [type(child.value) for _, child in node(tree).walk()]
        assert [type(child.value) for _, child in node(again.tree).walk()] == types


@given(layers)
def test_a_layer_over_itself_changes_nothing(layer):
    assert overlay(node(layer), node(layer)).plain() == layer


@given(layers, layers)
def test_nothing_of_a_replaced_kind_is_left(below, above):
    def check(merged, below, above):
        if isinstance(above, dict) and "kind" in above:
            assert merged == above
        elif isinstance(above, dict) and isinstance(below, dict):
            assert set(merged) == set(below) | set(above)
            for key in above:
                check(merged[key], below.get(key), above[key])
        elif not isinstance(above, dict):
            assert merged in (above, {"kind": above})

    check(overlay(node(below), node(above)).plain(), below, above)


@given(layers)
def test_every_value_comes_from_one_of_the_layers(layer):
    merged = overlay(node({"a": {"b": 1}}, "below"), node(layer, "above"))
    assert {child.origin.file for _, child in merged.walk()} <= {"below", "above"}
