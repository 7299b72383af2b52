"""Look at configs: what a model costs, and what two runs or configs differ in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scaling import config
from scaling.api.runs import RUNS
from scaling.api.words import resolved, words
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.config import Config
    from scaling.cost import Cost
    from scaling.ledger import Ledger

_BEGINNING = re.compile(r"[0-9a-f]{4,16}")


def inspect(
    model: str | None = None,
    *overrides: str,
    overlays: Sequence[str] = (),
    extend: str | None = None,
    **settings: Any,
) -> Cost:
    """Parameters, FLOPs and memory of a model, counted without allocating it.

    scaling.inspect("gpt2", "size=gpt2/xl").parameters
    """
    return inspect_config(resolved(model, overrides, settings, overlays, extend).check())


def inspect_config(checked: Config) -> Cost:
    """As `inspect`, of a config that was checked: only then is torch imported."""
    from scaling.training.experiment import counted

    return counted(checked)


def diff(one: Any, other: Any, *overrides: str, runs: str | None = None, **settings: Any) -> dict[str, tuple[Any, Any]]:
    """The keys in which two runs or configs differ, with both values; results of finished runs are compared as well.

    scaling.diff("gpt2", "llama", size="tiny")
    """
    from scaling.ledger.result import differences

    ledger, given = _ledger(runs), words(overrides, settings)
    documents = (_document(getattr(source, "id", source), ledger, given) for source in (one, other))
    return {key: tuple(pair) for key, pair in differences(*documents).items()}


def _ledger(folder: str | None) -> Ledger | None:
    """The ledger, where there is one; two configs are compared without."""
    from scaling.ledger import Ledger

    try:
        return Ledger.open(RUNS if folder is None else folder)
    except ScalingError:
        if folder is not None:
            raise
        return None


def _document(name: str, ledger: Ledger | None, overrides: Sequence[str]) -> Mapping[str, Any]:
    """The spec of a run, and its result under `result` where it is done; else the resolved config of that name."""
    if ledger is not None and _BEGINNING.fullmatch(name):
        run = ledger.find(name)
        result = ledger.result(run)
        return {**ledger.spec(run), **({} if result is None else {"result": _claims(result)})}
    try:
        return config.load(name, overrides).tree
    except ScalingError as error:
        if error.file is None and _BEGINNING.fullmatch(name):
            raise ScalingError("there is no ledger with such a run", key="run", value=name) from None
        raise


def _claims(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("run", "attempt", "circumstances")}
