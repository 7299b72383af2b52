"""The entropy and the gradient of a softmax by the width of a head, against torch's."""

import math

import numpy as np
import torch

from benchmarks.softmax_scale import _measured, saturation


def test_the_gradient_is_the_norm_of_torchs_jacobian_and_a_wide_head_saturates_without_the_scale_alone() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = _measured(4, "none", logits.numpy())
    jacobians = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in logits]
    norms = [float(torch.as_tensor(jacobian).norm()) for jacobian in jacobians]
    assert abs(found.gradient - np.mean(norms)) < 1e-12
    assert abs(found.entropy - float(torch.distributions.Categorical(logits=logits).entropy().mean())) < 1e-12
    rows = {(row.scale, row.width): row for row in saturation([4, 64, 1024], keys=32, queries=200)}
    bare, scaled = ([rows[scale, width] for width in (4, 64, 1024)] for scale in ("none", "sqrt"))
    assert bare[0].entropy > bare[1].entropy > bare[2].entropy
    assert bare[2].entropy < 0.1
    assert bare[2].gradient < 0.3 * scaled[2].gradient
    assert all(math.log(32) - 0.7 < row.entropy < math.log(32) - 0.3 for row in scaled)
    assert max(row.gradient for row in scaled) < 1.2 * min(row.gradient for row in scaled)
