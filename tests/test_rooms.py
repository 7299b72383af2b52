"""A room imports only rooms that stand before it, and a slot of the model no sibling slot but patterns."""

import ast
import re
import sys
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from scaling.config.schema import SLOTS

PACKAGE = Path(__file__).parents[1] / "scaling"
FLOORS = """
    base kernels metrics config executors model data objectives laws ledger evaluation interop training
    inside studies sweeps tables reports verbs __init__ cli __main__
"""
ROOMS: Sequence[str] = FLOORS.split()
ALONE = {
    "config": {"omegaconf", "yaml"},
    "metrics": {"numpy", "scipy"},
    "laws": {"numpy", "scipy", "pandas", "pyarrow", "matplotlib"},
    "ledger": set(),
}
SLOTS_OF_MODEL = {module.split(".")[2] for module in SLOTS.values() if module.startswith("scaling.model.")}
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


BY_STRING = {"executors/local.py", "config/schema.py"}  # which name what they start, or import when it is first read
MODULES = {".".join(("scaling", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse((PACKAGE / path).read_text())))


@cache
def imports(path: Path) -> set[tuple[str, ...]]:
    """Every dotted name that a file imports, wherever in it the import stands."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {tuple(name.split(".")) for name in found}


def named(module: str) -> set[str]:
    """The other modules of the package that a file names, in an import wherever it stands, or in a string."""
    path = MODULES[module]
    names = {".".join(name) for name in imports(path)}
    names = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    if str(path) not in BY_STRING:
        texts = {str(node.value) for node in nodes(path) if isinstance(node, ast.Constant)}
        names |= {text for text in texts if "." in text}
        folders = tuple(text for text in texts if re.fullmatch(r"scaling\.(\w+\.)+", text))  # f"scaling.room.{name}"
        names |= {name for name in MODULES if name.startswith(folders) and not name.endswith("__main__")}
    return (names & MODULES.keys()) - {module}


def test_the_import_floor():
    for path in FILES:
        room, *inner = (part.removesuffix(".py") for part in path.parts)
        assert room in ROOMS
        for top, *rest in imports(path):
            if top != "scaling":
                alone = room not in ALONE or top in ALONE[room] | sys.stdlib_module_names
                assert alone, f"{path}: {room} does without {top}"
            elif rest and rest[0] != room:
                assert ROOMS.index(rest[0]) < ROOMS.index(room), f"{path}: {room} stands before {rest[0]}"
            elif room == "model" and inner and inner[0] in SLOTS_OF_MODEL and rest[1] != inner[0]:
                sibling = rest[1] in SLOTS_OF_MODEL - {"patterns"}
                assert not sibling, f"{path}: a piece of {rest[1]} arrives as a built argument"


def test_no_string_names_a_later_room_and_no_files_import_each_other():
    imported = {module: named(module) for module in MODULES}
    for module, others in imported.items():
        room = MODULES[module].parts[0].removesuffix(".py")
        for other in (MODULES[name].parts[0].removesuffix(".py") for name in others):
            assert ROOMS.index(other) <= ROOMS.index(room), f"{module} names {other}: {room} stands before it"
    TopologicalSorter(imported).prepare()
