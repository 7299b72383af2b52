"""The forward pass of the plain decoder is the files that docs/architecture.md lists, and its activations are seen."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from tests.model.test_variants import build, tokens

PACKAGE = Path(scaling.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


def test_a_pass_runs_through_the_listed_files():
    model, batch = build("decoder", ""), Batch(tokens(2, 24), tokens(2, 24))
    model.loss(batch)  # compiles the kernels, where they are not
    ran, before = set[Path](), sys.getprofile()
    sys.setprofile(lambda frame, event, argument: ran.add(Path(frame.f_code.co_filename)))
    try:
        model.loss(batch)
    finally:
        sys.setprofile(before)
    files = {file.relative_to(PACKAGE).as_posix() for file in ran if file.is_relative_to(PACKAGE)}
    section = PAGE.split("## The forward pass")[1].split("\n## ")[0]
    listed, mask = {*re.findall(r"^\d+\. `scaling/(\S+)`", section, re.M)}, {"model/patterns.py"}
    # Our kernels do without the mask.
    assert {file for file in files if not file.startswith("kernels/")} | mask == listed | mask


@torch.no_grad()
def test_activations_come_by_name_in_their_order_as_they_were_changed_and_nothing_stays() -> None:
    model, batch = build("decoder", ""), Batch(tokens(2, 10), tokens(2, 10))
    given = "decoder.stack.blocks.0.branches.mixer.piece.out.input"
    before = model.logits(batch)
    patterns = ("decoder.stack.blocks.*.branches.mixer", "*.branches.channel", given)
    with model.watch(*patterns, change={given: lambda x: 2 * x}) as seen:
        changed = model.logits(batch)
    with model.watch(given) as plain:
        assert torch.equal(model.logits(batch), before)
    assert not torch.allclose(changed, before)
    assert torch.equal(seen.pop(given)[0], 2 * plain[given][0])
    assert list(seen) == [f"decoder.stack.blocks.{n}.branches.{part}" for n in (0, 1) for part in ("mixer", "channel")]
    assert all(len(each) == 1 and each[0].shape[:2] == (2, 10) for each in seen.values())
    with pytest.raises(ScalingError, match="no such activation"), model.watch("decoder.stak"):
        pass
