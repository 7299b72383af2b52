"""Requests: the tokens that are scored, and those that are read before them. torch is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scaling.data.codec import Codec


class Request(NamedTuple):
    """Token ids: a decoder reads the context before the continuation, an encoder-decoder as its source."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


def requests(codec: Codec, start: Sequence[int], joins: bool, pairs: Sequence[tuple[str, str]]) -> list[Request]:
    """A context and a continuation each, `start` before the context.

    Where both are read as one text (`joins`), they are tokenized as one, and the continuation has the tokens behind
    those that the context has by itself. Otherwise each is tokenized by itself, and `start` ends the context.
    """
    texts = list(dict.fromkeys(context for context, _ in pairs))
    contexts = {text: tuple(ids) for text, ids in zip(texts, codec.encode(texts))}
    if not joins:
        seconds = codec.encode([continuation for _, continuation in pairs])
        return [Request((*contexts[context], *start), tuple(ids)) for (context, _), ids in zip(pairs, seconds)]
    tails = _tails(codec, contexts)
    ends = list(dict.fromkeys(tails[context][0] + continuation for context, continuation in pairs))
    joined = {text: tuple(ids) for text, ids in zip(ends, codec.encode(ends))}
    listed = []
    for context, continuation in pairs:
        tail, count = tails[context]
        before, ids = contexts[context][: len(contexts[context]) - count], joined[tail + continuation]
        cut = max(0, min(count, len(ids) - 1))
        listed.append(Request((*start, *before, *ids[:cut]), ids[cut:]))
    return listed


def _tails(codec: Codec, contexts: Mapping[str, Sequence[int]]) -> dict[str, tuple[str, int]]:
    """The end of each context that is tokenized together with its continuations, and its number of tokens: its last
    line, where that has the same tokens by itself, or else all of it. So long contexts are tokenized once.
    """
    lines = {text: text[max(0, text.rfind("\n")) :] for text in contexts}
    alone = list(dict.fromkeys(lines.values()))
    ids = {line: tuple(own) for line, own in zip(alone, codec.encode(alone))}
    return {
        text: (line, len(ids[line])) if ids[line] and whole[-len(ids[line]) :] == ids[line] else (text, len(whole))
        for (text, whole), line in zip(contexts.items(), lines.values())
    }
