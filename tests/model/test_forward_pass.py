"""The forward pass of the plain decoder is the files that docs/architecture.md lists: 15, of at most 1,660 lines."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

import scaling
from scaling.batch import Batch
from scaling.config import load

ROOT = Path(__file__).parents[2]
PACKAGE = Path(scaling.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def listed() -> list[str]:
    section = PAGE.split("## The forward pass")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `scaling/(\S+)`", section, re.M)


def test_the_listed_files_are_those_that_a_pass_runs_through():
    config = load("decoder", ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"])
    model = config.build("model", config["size"])
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, tokens)
    model.loss(batch)  # compiles the kernels, where they are not
    ran: set[str] = set()

    def follow(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            ran.add(file.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        model.loss(batch)
    finally:
        sys.setprofile(before)
    assert {file for file in ran if not file.startswith("kernel/")} == set(listed())


def test_it_is_read_in_fifteen_files_and_1660_lines():
    files = listed()
    assert len(files) <= 15
    assert sum(len((PACKAGE / file).read_text().splitlines()) for file in files) <= 1660
