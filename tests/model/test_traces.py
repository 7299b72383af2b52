"""A golden trace of every variant: what a piece computes changes only together with its `version`.

The version is part of a run's identity, so runs from before a fix and after it are never taken for each other.
`pytest tests/model/test_traces.py --golden` writes those that are new or of another version, and
refuses what changed under the same one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from scaling.config.schema import versions
from tests.model.test_variants import EVERY, GOLDEN, batch_for, build, case_name, configured


def trace(case: tuple[str, str]) -> dict[str, Any]:
    """The loss and the length of its gradient on one batch, in float64, beside the versions of the pieces."""
    model = build(*case).double().eval()
    loss = model.loss(batch_for(model)).total
    loss.backward()
    gradient = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    return {"loss": loss.item(), "gradient": gradient**0.5, "versions": versions(configured(*case).tree)}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    # Weights are drawn in float32, whose last digit depends on the processor's instructions.
    return all(a[key] == pytest.approx(b[key], rel=3e-6) for key in ("loss", "gradient"))


def test_what_is_computed_changes_only_with_a_version(request):
    stored = json.loads(GOLDEN.read_text())
    first = {change: family for family, change in reversed(EVERY)}
    traced = {case_name(case): case for case in EVERY if case_name(case) in stored or first[case[1]] == case[0]}
    found = {name: trace(case) for name, case in traced.items()}
    kept = {name for name in stored.keys() & found if stored[name].get("versions") == found[name]["versions"]}
    silent = sorted(name for name in kept if not same(stored[name], found[name]))
    assert not silent, f"these compute something else: raise `version` in the class that was fixed: {silent}"
    if request.config.getoption("--golden"):  # machines differ in the last digit: what is still true stands as it is
        GOLDEN.write_text(json.dumps(found | {name: stored[name] for name in kept}, indent=1, sort_keys=True) + "\n")
        return
    assert stored.keys() == found.keys(), "write the traces of new variants: --golden"
    assert kept == found.keys(), f"other versions: write their traces: --golden: {sorted(found.keys() - kept)}"
