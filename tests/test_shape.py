"""Shapes from sizes, and what factors on them make."""

import pytest

from scaling.base.errors import ScalingError
from scaling.config.shape import Shape

BASE = {"width": 768, "layers": 12, "heads": 12, "hidden": 3072, "vocabulary": 100, "length": 8}


@pytest.mark.parametrize(
    ("size", "made"),
    [
        ({"hidden": None}, {"head_width": 64, "value_width": 64, "key_heads": 12, "hidden": 3072}),
        (
            {"times": {"layers": 1.5, "heads": 0.6667, "hidden": 0.6667}},
            {"layers": 18, "heads": 8, "hidden": 2048, "head_width": 64, "key_heads": 8},
        ),
        ({"times": {"heads": 0.6667, "head_width": 2}}, {"heads": 8, "head_width": 128, "value_width": 128}),
        ({"width": 16, "heads": 2, "hidden": None, "times": {"hidden": 0.5}}, {"hidden": 32}),
        ({"times": {"head_width": 0.25, "value_width": 4}}, {"head_width": 16, "value_width": 64}),
        ({"heads": 1, "times": {"heads": 0.3}}, {"heads": 1}),
    ],
    ids=str,
)
def test_what_is_left_out_follows_from_the_width_and_factors_come_after(size, made):
    shape = Shape.of({**BASE, **size})
    assert {key: getattr(shape, key) for key in made} == made


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (3, "size.times=3: expected factors; write {layers: 2, hidden: 0.5}"),
        ({"layer": 2}, "size.times.layer: a size has no such key; did you mean 'layers'?"),
        ({"layers": 0}, "size.times.layers=0: expected a number above 0 and up to 1e9"),
        ({"layers": 1e308}, "size.times.layers=1e+308: expected a number above 0 and up to 1e9"),
    ],
)
def test_factors_that_are_none(times, said):
    with pytest.raises(ScalingError) as error:
        Shape.of({**BASE, "times": times})
    assert str(error.value) == said
