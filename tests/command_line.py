"""Commands given in this process: what they print, and the one line with which they and functions refuse."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.verbs.command_line import main


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """What a command prints: the document if `--json` is among its words, and the text if not."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0, words
    out = capsys.readouterr().out
    return json.loads(out) if "--json" in words else out


def refused(capsys: pytest.CaptureFixture[str], *words: object, but: str = "^$") -> str:
    """The one line with which a command refuses its words. Lines that match `but` do not count."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == BAD_INPUT, words
    out, err = capsys.readouterr()
    (line,) = (line for line in err.splitlines() if not re.search(but, line))
    assert (out, line.startswith("scaling: ")) == ("", True), words
    return line


def refuses(pattern: str | None, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> ScalingError:
    """A function refuses its arguments in one line that a terminal may print, with code 2."""
    with pytest.raises(ScalingError, match=pattern) as raised:
        call(*arguments, **keywords)
    assert (str(raised.value).isprintable(), raised.value.code) == (True, BAD_INPUT)
    return raised.value
