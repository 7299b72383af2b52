"""Words that name tasks of lm-evaluation-harness, checked before it is imported and its registry read, which takes ten
times as long. lm_eval is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from scaling.errors import ScalingError, nearest

YAML = (".yaml", ".yml")
_NAMES = re.compile(r"^(?:task|group): *['\"]?([^\s'\"#]+)", re.MULTILINE)


def check_tasks(words: Sequence[str]) -> None:
    """Refuse files that are not there, and names that the registry's files do not hold. Wildcards are left to it."""
    spec = find_spec("lm_eval")
    if spec is None or spec.origin is None:
        fix = "pip install 'scaling[harness]'"
        raise ScalingError("it needs the package lm_eval", key="--harness", fix=fix)
    if not words:
        raise ScalingError("no task is named", key="--harness", fix="name tasks, YAML files or folders, by commas")
    names = []
    for word in words:
        path = Path(word).expanduser()
        if word.endswith(YAML) and not path.is_file():
            raise ScalingError("there is no such file", key="--harness", value=word)
        if not word.endswith(YAML) and not path.is_dir() and not set(word) & set("*?["):
            names.append(word)
    if not names:
        return
    files = (Path(spec.origin).parent / "tasks").rglob("*.yaml")
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    for name in names:
        if name not in text:
            fix = nearest(name, _NAMES.findall(text))
            raise ScalingError("the harness has no such task", key="--harness", value=name, fix=fix)
