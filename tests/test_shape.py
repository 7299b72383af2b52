"""Shapes from sizes, what factors on them make, and the shapes of what a piece reads."""

import pytest
import torch
from jaxtyping import TypeCheckError

from scaling.base.errors import ScalingError
from scaling.config.shape import Shape
from scaling.model.blocks import RMSNorm

BASE = {"width": 768, "layers": 12, "heads": 12, "hidden": 3072, "vocabulary": 100, "length": 8}


@pytest.mark.parametrize(
    ("size", "made"),
    [
        ({"hidden": None}, {"head_width": 64, "value_width": 64, "key_heads": 12, "hidden": 3072}),
        (
            {"times": {"layers": 1.5, "heads": 0.6667, "hidden": 0.6667}},
            {"layers": 18, "heads": 8, "hidden": 2048, "head_width": 64, "key_heads": 8},
        ),
        ({"width": 16, "heads": 2, "hidden": None, "times": {"hidden": 0.5}}, {"hidden": 32}),
        ({"times": {"head_width": 0.25, "value_width": 4}}, {"head_width": 16, "value_width": 64}),
        ({"heads": 1, "times": {"heads": 0.3}}, {"heads": 1}),
    ],
    ids=str,
)
def test_what_is_left_out_follows_from_the_width_and_factors_come_after(size, made):
    shape = Shape.of({**BASE, **size})
    assert {key: getattr(shape, key) for key in made} == made


def test_factors_that_are_none_are_refused():
    with pytest.raises(ScalingError, match=r"size\.times\.layer: .* did you mean 'layers'"):
        Shape.of({**BASE, "times": {"layer": 2}})


def test_a_forward_refuses_what_its_shapes_exclude():
    """The shapes that a piece's `forward` promises are held while the tests run."""
    with pytest.raises(TypeCheckError):
        RMSNorm(8)(torch.ones(2, 3, 8).long())
