import pytest

from scaling.config.overlay import gather, overlay, undotted
from scaling.config.reader import parse
from scaling.errors import ScalingError


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        ("{a: 1, b: 2}", "{b: 3, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{kind: LayerNorm, bias: true}", "{kind: RMSNorm}", {"kind": "RMSNorm"}),
        ("{kind: LayerNorm, bias: true}", "{kind: LayerNorm}", {"kind": "LayerNorm"}),
        ("{kind: LayerNorm, bias: true}", "{bias: false}", {"kind": "LayerNorm", "bias": False}),
        ("{kind: LayerNorm, bias: true}", "RMSNorm", {"kind": "RMSNorm"}),
        ("{kind: LayerNorm, bias: true}", "null", None),
        ("LayerNorm", "RMSNorm", "RMSNorm"),
        ("LayerNorm", "{bias: false}", {"kind": "LayerNorm", "bias": False}),
        ("LayerNorm", "{kind: RMSNorm, gain: true}", {"kind": "RMSNorm", "gain": True}),
        ("null", "{bias: false}", {"bias": False}),
        ("[1, 2]", "[3]", [3]),
        ("{a: [1]}", "{a: {b: 1}}", {"a": {"b": 1}}),
        ("{a: {kind: X, b: {kind: Y, c: 1}}}", "{a: {b: {c: 2}}}", {"a": {"kind": "X", "b": {"kind": "Y", "c": 2}}}),
        ("{a: {kind: X, b: {kind: Y, c: 1}}}", "{a: {b: {kind: Z}}}", {"a": {"kind": "X", "b": {"kind": "Z"}}}),
    ],
)
def test_a_kind_replaces_and_the_rest_is_laid_over(below, above, merged):
    assert overlay(parse(below, "below"), parse(above, "above")).plain() == merged


def test_each_value_keeps_its_own_origin():
    merged = overlay(parse("{a: {b: 1,\n c: 2}}", "below"), parse("\n\na: {c: 3}", "above"))
    origins = {key: str(node.origin) for key, node in merged.walk()}
    assert origins["a.b"] == "below:1"
    assert origins["a.c"] == "above:3"


def test_dotted_keys_are_spelled_out_and_join():
    tree = undotted(parse("{a.b.c: 1, a: {b.d: 2}, a.e: 3}", "f"))
    assert tree.plain() == {"a": {"b": {"c": 1, "d": 2}, "e": 3}}


@pytest.mark.parametrize("text", ["{a.kind: X, a.b: 1}", "{a.b: 1, a.kind: X}", "{a: X, a.b: 1}", "{a.b: 1, a: X}"])
def test_within_one_layer_a_kind_and_its_keys_come_in_any_order(text):
    assert undotted(parse(text, "f")).plain() == {"a": {"kind": "X", "b": 1}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{a.b: 1,\n a: {b: 2}}", "f:2: a=2: the key is there twice, first at f:1; keep one of them"),
        ("{a..b: 1}", "f:1: a..b=1: a dotted key has an empty part; write it as section.key"),
        ("{a: {b: {c: 1}, b.c: 1}}", "f:1: b.c=1: the key is there twice, first at f:1; keep one of them"),
    ],
)
def test_a_key_given_twice_is_refused(text, told):
    with pytest.raises(ScalingError) as error:
        undotted(parse(text, "f"))
    assert str(error.value).replace("a=2", "a=2") == told


def test_the_later_of_two_words_counts_where_asked():
    one, two = parse("1", "f"), parse("2", "f")
    assert gather([("a.b", one), ("a.b", two)], one.origin, later_wins=True).plain() == {"a": {"b": 2}}
