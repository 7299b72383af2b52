"""Laying one tree over another.

    a node that names a `kind` replaces what was there;   {kind: RMSNorm}      over {kind: LayerNorm, bias: true}
    one that does not is laid over it, key by key;        {bias: false}        over {kind: LayerNorm, bias: true}
    a bare word is short for a kind.                      RMSNorm              over {kind: LayerNorm, bias: true}

So no key of the old kind is left behind on the new one.
"""

from __future__ import annotations

from collections.abc import Iterable

from scaling.config.node import Node, Origin


def overlay(below: Node | None, above: Node) -> Node:
    """`above` laid over `below`."""
    if below is None or below.value is None:
        return above
    if above.mapping is None:
        bare = isinstance(above.value, str) and below.mapping is not None and "kind" in below.mapping
        return _spelled_out(above) if bare else above
    if "kind" in above.mapping:
        return above
    if isinstance(below.value, str):
        below = _spelled_out(below)
    if below.mapping is None:
        return above
    merged = dict(below.mapping)
    for key, child in above.mapping.items():
        merged[key] = overlay(merged.get(key), child)
    return Node(merged, above.origin)


def gather(pairs: Iterable[tuple[str, Node]], origin: Origin, *, later_wins: bool = False) -> Node:
    """One tree out of dotted keys, `block.channel: X` meaning `block: {channel: X}`.

    What is gathered is one layer, so nothing in it replaces: `optimizer.lr=1 optimizer.kind=SGD` means both, in either
    order. A key given twice is refused, unless the later wins.
    """
    tree = Node({}, origin)
    for key, node in pairs:
        node = undotted(node)
        parts = key.split(".")
        if "" in parts:
            raise node.error("a dotted key has an empty part", key=key, fix="write it as section.key")
        for part in reversed(parts):
            node = Node({part: node}, node.origin)
        tree = _union(tree, node, key, later_wins)
    return tree


def undotted(node: Node) -> Node:
    """The tree with every dotted key spelled out."""
    return node if node.mapping is None else gather(node.mapping.items(), node.origin)


def _union(first: Node, second: Node, key: str, later_wins: bool) -> Node:
    if first.mapping is not None and isinstance(second.value, str):
        second = _spelled_out(second)
    if second.mapping is not None and isinstance(first.value, str):
        first = _spelled_out(first)
    if first.mapping is not None and second.mapping is not None:
        merged = dict(first.mapping)
        for part, child in second.mapping.items():
            merged[part] = _union(merged[part], child, key, later_wins) if part in merged else child
        return Node(merged, first.origin)
    if later_wins:
        return second
    raise second.error(f"the key is there twice, first at {first.origin}", key=key, fix="keep one of them")


def _spelled_out(word: Node) -> Node:
    return Node({"kind": word}, word.origin)
