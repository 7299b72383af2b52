"""Shapes from sizes, and what factors on them make."""

import pytest

from scaling.errors import ScalingError
from scaling.shape import Shape

BASE = {"width": 768, "layers": 12, "heads": 12, "hidden": 3072, "vocabulary": 100, "length": 8}


def test_what_is_left_out_follows_from_the_width():
    shape = Shape.of({key: value for key, value in BASE.items() if key != "hidden"})
    assert (shape.head_width, shape.value_width, shape.key_heads, shape.hidden) == (64, 64, 12, 3072)


def test_factors_come_after_what_follows_from_the_width():
    shape = Shape.of({**BASE, "times": {"layers": 1.5, "heads": 0.6667, "hidden": 0.6667}})
    assert (shape.layers, shape.heads, shape.hidden, shape.head_width, shape.key_heads) == (18, 8, 2048, 64, 8)


def test_values_are_as_wide_as_keys_after_the_factors():
    shape = Shape.of({**BASE, "times": {"heads": 0.6667, "head_width": 2}})
    assert (shape.heads, shape.head_width, shape.value_width) == (8, 128, 128)
    assert (
        Shape.of({"width": 16, "layers": 2, "heads": 2, "vocabulary": 9, "length": 8, "times": {"hidden": 0.5}}).hidden
        == 32
    )


def test_keys_alone_may_be_narrower():
    shape = Shape.of({**BASE, "times": {"head_width": 0.25, "value_width": 4}})
    assert (shape.head_width, shape.value_width) == (16, 64)


def test_a_factor_leaves_at_least_one():
    assert Shape.of({**BASE, "heads": 1, "times": {"heads": 0.3}}).heads == 1


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (3, "size.times=3: expected factors; write {layers: 2, hidden: 0.5}"),
        ({"layer": 2}, "size.times.layer: no such key in a size; did you mean 'layers'?"),
        ({"layers": 0}, "size.times.layers=0: expected a number above 0"),
        ({"layers": True}, "size.times.layers=True: expected a number above 0"),
    ],
)
def test_factors_that_are_none(times, said):
    with pytest.raises(ScalingError) as error:
        Shape.of({**BASE, "times": times})
    assert str(error.value) == said
