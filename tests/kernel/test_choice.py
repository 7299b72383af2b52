"""Whether a kernel of ours or torch computes is decided in one file."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "scaling"
KERNEL = PACKAGE / "kernel"


def names(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    aliases = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return aliases | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_only_the_operations_ask_whether_a_kernel_takes_tensors():
    asking = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "serves" in names(path)}
    assert asking == {"kernel/operations.py"}
