"""What the documents say can be done: their links lead somewhere and their commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from scaling.cli import VERBS, parsed

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
COMMAND = re.compile(r"(?:^|\|\s*`|^\$ )(?:\.venv/bin/)?(scaling [a-z][^`|\n]*)", re.MULTILINE)
COMMANDS = [
    pytest.param(found[1], id=f"{path.name}: {found[1][:50]}")
    for path in DOCUMENTS
    for found in COMMAND.finditer(path.read_text())
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command):
    _, verb, *words = shlex.split(command, comments=True)
    assert verb in VERBS
    parsed(verb, words)
