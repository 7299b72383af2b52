"""W&B's settings for a run of the ledger: whether to send, how long to wait, and what not to send."""

from __future__ import annotations

import logging
import netrc
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scaling.base.json_lines import mapped
from scaling.config.document import Config

if TYPE_CHECKING:
    import wandb

SWEEP = "WANDB_SWEEP_ID"  # set by W&B's agent
# What W&B's client may take, unless WANDB_INIT_TIMEOUT and WANDB_FINISH_TIMEOUT set other times.
SECONDS = {"init_timeout": 10.0, "finish_timeout": 15.0}

# No facts of the host, the user, the code or its arguments. Empty text takes the place of what W&B's variables and
# settings files hold: a null would leave it.
TEXTS = ("host", "program", "username", "email", "run_notes", "git_commit", "git_remote_url", "x_sync_dir_suffix")
SILENT: dict[str, Any] = {
    "console": "off",
    "silent": True,
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "save_code": False,
    "launch": False,
    "sagemaker_disable": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    **dict.fromkeys(TEXTS, ""),
}

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


def settings(**further: Any) -> wandb.Settings:
    """Settings of one W&B run beside whatever other runs the process has. W&B's client keeps to the times by itself."""
    import wandb

    seconds = {key: os.environ.get(f"WANDB_{key.upper()}", default) for key, default in SECONDS.items()}
    return wandb.Settings(**{**SILENT, **seconds, "reinit": "create_new", **further})


def mode(config: Config) -> str:
    """`log.wandb`, or what WANDB_MODE or a missing key make of `auto`."""
    setting = config["log.wandb"]
    if setting != "auto":
        return setting
    named = os.environ.get("WANDB_MODE", "")
    if named in ("online", "offline", "disabled"):
        return named
    return "online" if os.environ.get("WANDB_API_KEY") or has_login() else "offline"


def has_login() -> bool:
    """Whether `wandb login` has left a key in ~/.netrc."""
    try:
        return any("wandb" in host for host in netrc.netrc().hosts)
    except (OSError, netrc.NetrcParseError):
        return False


def shown(value: Any) -> Any:
    """The part of a spec that W&B may see: of a file its name alone, of an address neither user nor password."""

    def public(leaf: Any) -> Any:
        if not isinstance(leaf, str):
            return leaf
        return Path(leaf).name if leaf.startswith(("/", "~")) else re.sub(r"(?<=://)[^/@]*@", "", leaf)

    return mapped(value, public)


def tried(call: Callable[[], Value], otherwise: str = "the run goes on without it") -> Value | None:
    """The answer of a call of W&B; None where it fails, which is one warning."""
    try:
        return call()
    except Exception as error:
        logger.warning("W&B: %s; %s", " ".join(str(error).split())[:200], otherwise)
        return None
