"""Packages that take long to import, and of which a process of the command line needs little or nothing.

Building torch's optimizers, each of their steps, and shapes on the meta device import torch's compiler, to keep their
own code out of what is compiled. That takes nearly as long as torch itself (docs/performance.md), in each command and
in each worker of a study.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"


class StandIn(type):
    """A class whose instances are those of the real one of its name, once its module has been imported."""

    def __instancecheck__(cls, instance: object) -> bool:
        real = vars(sys.modules.get(cls.__module__, sys)).get(cls.__name__, cls)
        return real is not cls and isinstance(instance, real)


def defer_compiler() -> None:
    """Import torch's compiler where something is compiled, and not before."""
    if COMPILER not in sys.modules:
        sys.modules[COMPILER] = _Compiler(COMPILER)
        sys.meta_path.insert(0, _Parts())


class _Compiler(ModuleType):
    """What torch and Lightning ask where nothing is compiled. For all else the real one is imported in its place."""

    __path__: Sequence[str] = ()  # Python asks for it before it takes a name from a package
    OptimizedModule = StandIn("OptimizedModule", (), {"__module__": COMPILER})

    def graph_break(self, msg: str = "") -> None:
        """There is no graph."""

    def disable(self, fn: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        return fn

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # whoever goes through all modules, as `inspect` does, asks for these
            raise AttributeError(name)
        return getattr(_compiler(), name)


def _compiler() -> ModuleType:
    if isinstance(sys.modules.get(COMPILER), _Compiler):
        del sys.modules[COMPILER]
    return import_module(COMPILER)


class _Parts:
    """A module of the compiler is imported with the whole of it, as it would be without a substitute."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{COMPILER}.") or not isinstance(sys.modules.get(COMPILER), _Compiler):
            return None
        whole = _compiler()
        if fullname not in sys.modules:
            return PathFinder.find_spec(fullname, whole.__path__)
        module = sys.modules[fullname]  # already executed: the import goes by its spec, which must not do so again
        module.__spec__ = ModuleSpec(fullname, self, loader_state=module.__spec__)  # type: ignore[arg-type]
        return module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
