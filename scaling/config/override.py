"""`key=value` and `--key=value`, as people and W&B agents type them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from scaling.config.node import COMMAND_LINE, Node
from scaling.config.overlay import gather
from scaling.config.reader import parse, whole
from scaling.config.scalar import scalar
from scaling.errors import ScalingError

_OVERRIDE = re.compile(r"(?:--)?([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_FLOW = ("[", "{", '"', "'")
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')"""
_QUOTED = re.compile(rf"(?<=[\[{{,:\s]){_STRING}", re.DOTALL)


def override(word: str) -> tuple[str, Node]:
    """The dotted key and the value of one `key=value`."""
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        node = Node(word, COMMAND_LINE)
        raise node.error("expected key=value", key="override", fix="as in train.steps=100")
    key, text = match[1], match[2].strip()
    try:
        if text.startswith(_FLOW) and not _is_template(text):
            return key, parse(text, COMMAND_LINE.file, line=None)
        return key, Node(scalar(whole(text, COMMAND_LINE.file)), COMMAND_LINE, text)
    except ScalingError as error:
        raise error.at(key=key, value=text) from None


def _is_template(text: str) -> bool:
    """Whether a value that begins with a bracket or a quote is text: a bracket closes before the end, as in
    `{title}: {body}` and `[ab].txt`, and the quotes are not around all of it.
    """
    if re.fullmatch(_STRING, text, re.DOTALL):
        return False
    depth = 0
    for place, letter in enumerate(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)):
        depth += (letter in "[{") - (letter in "]}")
        if letter in "]}" and depth == 0:
            rest = text[place + 1 :].lstrip()
            return rest != "" and not rest.startswith("#")
    return False


def overrides(words: Iterable[str], named: Sequence[str]) -> tuple[dict[str, Node], Node]:
    """The names given to `named` keys (`size=tiny`), and the rest as one layer; the later of two equal keys counts."""
    pairs = [override(word) for word in words]
    names = {key: node for key, node in pairs if key in named and node.mapping is None}
    rest = ((key, node) for key, node in pairs if key not in named or node.mapping is not None)
    return names, gather(rest, COMMAND_LINE, later_wins=True)
