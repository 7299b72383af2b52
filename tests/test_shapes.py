"""The shapes that a piece's `forward` promises are held while these tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from scaling.model.blocks import RMSNorm


def test_a_forward_refuses_what_its_shapes_exclude():
    with pytest.raises(TypeCheckError):
        RMSNorm(8)(torch.ones(2, 3, 8).long())
