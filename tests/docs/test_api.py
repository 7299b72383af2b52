"""The page of the Python API names every public function and class, in the module that defines it."""

import importlib
import re

import pytest

import scaling
import scaling.laws
from tests.docs.blocks import ROOT

DIRECTIVE = re.compile(r"^::: (\S+)\n    options:\n      members: \[(.*)\]$", re.MULTILINE)


@pytest.mark.parametrize(
    ("part", "package", "elsewhere"), [(0, scaling, {"laws", "__version__"}), (1, scaling.laws, {"Fit"})]
)
def test_the_page_describes_every_public_name(part, package, elsewhere):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").split("## `scaling.laws`")[part]
    named = [(module, name) for module, members in DIRECTIVE.findall(text) for name in members.split(", ")]
    assert sorted(name for _, name in named) == sorted({*package.__all__} - elsewhere)
    for module, name in named:
        assert getattr(importlib.import_module(module), name) is getattr(package, name), (module, name)
