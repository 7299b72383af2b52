"""A room imports only rooms that stand before it; a slot of the model no sibling slot but patterns; the whole wheel."""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from scaling.config.schema import SLOTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "scaling"
FLOORS = """
    base kernels metrics config executors model data objectives laws ledger evaluation interop training
    inside studies sweeps tables reports verbs __init__ __main__
"""
ROOMS: Sequence[str] = FLOORS.split()
ALONE = {
    "config": {"omegaconf", "yaml"},
    "metrics": {"numpy"},
    "laws": {"numpy", "scipy", "pandas", "pyarrow", "matplotlib"},
    "ledger": set(),
}
SLOTS_OF_MODEL = {module.split(".")[2] for module in SLOTS.values() if module.startswith("scaling.model.")}
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
MODULES = {".".join(("scaling", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES}


@cache
def imports(path: Path) -> set[tuple[str, ...]]:
    """Every dotted name that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {tuple(name.split(".")) for name in found}


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


def test_no_files_import_each_other():
    imported = {}
    for module, path in MODULES.items():
        names = {".".join(name) for name in imports(path)}
        names = {name if name in MODULES else name.rpartition(".")[0] for name in names}
        imported[module] = (names & MODULES.keys()) - {module}
    TopologicalSorter(imported).prepare()


def test_the_wheel_has_code_and_configs(tmp_path):
    pytest.importorskip("hatchling")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.check_output(["git", "ls-files", "scaling", "configs"], cwd=ROOT, text=True).splitlines()
    assert names == {re.sub("^configs/", "scaling/_configs/", name) for name in tracked}
