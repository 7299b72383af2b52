"""What the documents say can be done: their links lead somewhere and their commands are understood."""

import functools
import re
from typing import Any

import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import named, parsed
from scaling.verbs import function_name
from scaling.verbs.verb import verb
from tests.docs.blocks import DOCUMENTS, EXAMPLES, ROOT, blocks, spelled, words

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
EVERY = [*DOCUMENTS, *EXAMPLES]
COMMANDS = [(path, command) for path in EVERY for block in blocks(path) for command in block.commands]
SPELLED = [(path, command) for path in EVERY for command in spelled(path)]


def cases(commands):
    ours = [(path, command) for path, command in commands if command.startswith("scaling ")]
    return [pytest.param(command, id=f"{path.relative_to(ROOT)}: {command[:60]}") for path, command in ours]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


def test_commands_are_found_in_every_kind_of_block():
    every = [command for _, command in COMMANDS]
    assert "scaling data show python --verify" in every, "an indented block"
    assert "scaling plan quickstart" in every, "a block whose remarks are a column"
    assert "scaling pull me/scaling/abcd1234 --to pulled" in every, "a fenced block with a language"
    assert any(command.endswith("< sentences.txt") for command in every)


def understand(name, rest):
    """Read the words of a command as the command line does, up to the call of the verb."""
    function = getattr(scaling, function_name(name))
    arguments, options, _ = parsed(name, function, rest)
    unrun: Any = functools.wraps(function)(lambda *_, **__: None)
    verb(unrun)(*arguments, **options)


@pytest.mark.parametrize("command", cases(COMMANDS))
def test_commands_of_blocks_are_understood(command):
    understand(*named(words(re.split(r" [<>] ", command)[0])[1:]))


@pytest.mark.parametrize("command", cases(SPELLED))
def test_commands_in_sentences_are_understood(command):
    """They may leave out what the sentence is not about, as `scaling fit --format` does."""
    name, rest = named(words(command)[1:])
    try:
        understand(name, [word for word in rest if word != "…"])
    except ScalingError as error:
        if "expected " not in error.what or "one more" in error.what:
            raise
