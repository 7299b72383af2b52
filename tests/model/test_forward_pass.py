"""The forward pass of the plain decoder is the files that docs/architecture.md lists, and it is read in few lines."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scaling
from scaling.base.batch import Batch
from tests.model.test_variants import build, tokens

PACKAGE = Path(scaling.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
LINES = 840  # of the longer way, which is that without our kernels


def lines_around(file: str, lines: set[int]) -> int:
    """The length of the classes and functions of a file within which one of these lines is."""
    body = ast.parse((PACKAGE / file).read_text()).body
    spans = [range(n.lineno, n.end_lineno + 1) for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    return sum(len(span) for span in spans if lines & {*span})


def test_a_pass_runs_through_the_listed_files_and_few_lines():
    model, batch = build("decoder", ""), Batch(tokens(2, 24), tokens(2, 24))
    model.loss(batch)  # compiles the kernels, where they are not
    ran: dict[str, set[int]] = {}

    def follow(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            ran.setdefault(file.relative_to(PACKAGE).as_posix(), set()).add(frame.f_code.co_firstlineno)

    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        model.loss(batch)
    finally:
        sys.setprofile(before)
    ran = {file: lines for file, lines in ran.items() if not file.startswith("kernels/")}
    section = PAGE.split("## The forward pass")[1].split("\n## ")[0]
    listed, mask = {*re.findall(r"^\d+\. `scaling/(\S+)`", section, re.M)}, {"model/patterns.py"}
    assert set(ran) | mask == listed | mask  # which our kernels do without
    assert sum(lines_around(file, lines) for file, lines in ran.items()) <= LINES, ran


WHOLE = """
import torch
from scaling.base.batch import Batch
from scaling.config.compose import load
tokens = torch.randint(0, 61, (2, 24))
for name in ("decoder", "encoder", "encoder_decoder"):
    config = load(name, ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"])
    model = config.build("model", config["size"])
    batch = Batch(tokens, tokens, source=tokens if name == "encoder_decoder" else None)
    explained = torch._dynamo.explain(lambda batch: model.loss(batch).total)(batch)
    print(name, explained.graph_count, explained.graph_break_count)
"""


@pytest.mark.slow
def test_a_compiled_loss_is_one_graph_in_every_family():
    """In a process of its own: the compiler cannot follow the functions whose types these tests check."""
    out = subprocess.run([sys.executable, "-c", WHOLE], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [f"{name} 1 0" for name in ("decoder", "encoder", "encoder_decoder")]
