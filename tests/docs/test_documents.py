"""What the documents say is there: their links, the commands in them, the names of the API, the table of costs."""

import functools
import importlib
import importlib.util
import re
from typing import Any

import pytest

import scaling
import scaling.laws
from scaling.base.errors import ScalingError
from scaling.cli import named, parsed
from scaling.verbs import function_name
from scaling.verbs.verb import verb
from tests.docs.blocks import DOCUMENTS, EXAMPLES, ROOT, blocks, spelled, words

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
DIRECTIVE = re.compile(r"^::: (\S+)\n    options:\n      members: \[(.*)\]$", re.MULTILINE)
EVERY = [*DOCUMENTS, *EXAMPLES]


def understand(line: str, told: Any = ()) -> None:
    """Read the words of a command as the command line does, up to the call of the verb."""
    name, rest = named(words(line)[1:])
    function = getattr(scaling, function_name(name))
    arguments, options, _ = parsed(name, function, [word for word in rest if word not in told])
    unrun: Any = functools.wraps(function)(lambda *_, **__: None)
    verb(unrun)(*arguments, **options)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere_and_its_commands_are_understood(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing
    for block in blocks(path):
        for command in block.commands:
            if command.startswith("scaling "):
                understand(re.split(r" [<>] ", command)[0])
    for command in spelled(path):
        try:
            understand(command, {"…"})
        except ScalingError as error:  # a sentence may leave out what it is not about, as `scaling fit --format` does
            if "expected " not in error.what or "one more" in error.what:
                raise


@pytest.mark.parametrize(
    ("part", "package", "elsewhere"), [(0, scaling, {"laws", "__version__"}), (1, scaling.laws, {"Fit"})]
)
def test_the_page_of_the_api_describes_every_public_name(part, package, elsewhere):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").split("## `scaling.laws`")[part]
    described = [(module, name) for module, members in DIRECTIVE.findall(text) for name in members.split(", ")]
    assert sorted(name for _, name in described) == sorted({*package.__all__} - elsewhere)
    for module, name in described:
        assert getattr(importlib.import_module(module), name) is getattr(package, name), (module, name)


@pytest.mark.parametrize(("size", "lengths"), [("small", [512, 131072]), ("175b", [2048])])
def test_the_table_of_attentions_share_is_what_is_counted(size, lengths):
    spec: Any = importlib.util.spec_from_file_location("build_cost", ROOT / "docs" / "build_cost.py")
    build_cost = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_cost)
    table = (ROOT / "docs" / "cost.md").read_text().split(build_cost.BEGIN)[1].split(build_cost.END)[0]
    written = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in table.splitlines()}
    (counted,) = build_cost.rows([size], lengths)
    cells = counted.strip("| ").split(" | ")[1:]
    assert cells == [written[size][build_cost.LENGTHS.index(length)] for length in lengths]
    assert [name for name in written if name in build_cost.SIZES] == build_cost.SIZES
