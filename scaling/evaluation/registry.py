"""Words that name tasks of lm-evaluation-harness, checked before it is imported and its registry read, which takes ten
times as long. lm_eval is not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config.files import SUFFIXES

NEAR = 12  # names of the registry, of which there are more than ten thousand, that an error lists at most
_NAMES = re.compile(r"^(?:task|group): *['\"]?([^\s'\"#]+)", re.MULTILINE)


def check_tasks(words: Sequence[str]) -> None:
    """Refuse files that are not there, and names that the registry's files do not contain. Wildcards are left to the
    registry.
    """
    spec = find_spec("lm_eval")
    if spec is None or spec.origin is None:
        fix = "pip install 'scaling[harness]'"
        raise ScalingError("it needs the package lm_eval", key="TASK", fix=fix)
    refuse(not any(words), "no task is named", "name tasks or YAML files", key="TASK")
    for word in words:
        is_absent = word.endswith(SUFFIXES) and not Path(os.path.expanduser(word)).is_file()
        refuse(is_absent, "there is no such file", key="TASK", value=word)
    names = [word for word in words if not word.endswith(SUFFIXES) and not set(word) & set("*?[")]
    if not names:
        return
    # Templates have no ending.
    files = (path for path in (Path(spec.origin).parent / "tasks").rglob("*") if path.suffix in ("", *SUFFIXES))
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
    for name in names:
        if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text):
            raise unknown(name, set(_NAMES.findall(text)))


def unknown(name: str, names: Collection[str]) -> ScalingError:
    """A name that the registry does not have, with those that are near."""
    near = get_close_matches(name, names, n=NEAR, cutoff=0.5)
    fix = nearest(name, near) if near else "`lm_eval ls tasks` lists the names"
    return ScalingError("the harness has no such task", key="TASK", value=name, fix=fix)
