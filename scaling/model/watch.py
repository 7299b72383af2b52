"""Watching a model: the activations of any of its pieces by name, as they come, and others in their place.

A name is that of the module whose output it is (`decoder.stack.blocks.0.branches.mixer.piece`); `NAME.input` is what
the module is given. Hooks are set within the `with` alone, so that nothing is paid outside of it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from scaling.base.errors import nearest, refuse

INPUT = ".input"

Change = Callable[[Tensor], Tensor]


@contextmanager
def watch(
    model: nn.Module, *patterns: str, change: Mapping[str, Change] | None = None
) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the activations whose names fit one of the patterns, in their order; a piece that runs several times in a
    pass has several. `change` maps names to functions whose result takes the place of the activation.

        with watch(model, "*.mixer.piece") as seen:
            model(batch)

        with watch(model, change={"decoder.stack.blocks.0.branches.mixer.piece.out.input": without_head_3}):
            loss = model.loss(batch)
    """
    change, seen = change or {}, {}
    modules = dict(model.named_modules())
    names = [name for module in modules if module for name in (module, module + INPUT)]
    for name in (*patterns, *change):
        refuse(not fnmatch.filter(names, name), "the model has no such activation", nearest(name, names), value=name)
    with ExitStack() as hooks:
        for name in names:
            is_seen = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            if is_seen or name in change:
                into = seen.setdefault(name, []) if is_seen else []
                hooks.callback(_hook(modules, name, into, change.get(name, lambda activation: activation)).remove)
        yield seen


def _hook(modules: Mapping[str, nn.Module], name: str, into: list[Tensor], change: Change) -> Any:
    def changed(activation: Any) -> Any:
        if isinstance(activation, Tensor):
            activation = change(activation)
            into.append(activation.detach())
        return activation

    if name.endswith(INPUT):
        return modules[name.removesuffix(INPUT)].register_forward_pre_hook(
            lambda _, given: (changed(given[0]), *given[1:]) if given else None
        )
    return modules[name].register_forward_hook(lambda _module, _given, output: changed(output))
