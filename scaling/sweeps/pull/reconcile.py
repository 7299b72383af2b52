"""Reconcile: the W&B runs that show one run of the ledger: its attempts, those of a sweep, another machine's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scaling.ledger import RESULTS
from scaling.ledger.document import differences
from scaling.sweeps.pull.wandb_run import WandbRun, result


@dataclass(frozen=True)
class Reconciled:
    """A run's attempts, oldest first, the one whose result is kept (None: not done), and where others found another."""

    run: str
    attempts: tuple[WandbRun, ...]
    stands: WandbRun | None
    differing: tuple[str, ...]

    @property
    def trunk(self) -> bool:
        return all(attempt.trunk for attempt in self.attempts)


def reconciled(runs: Iterable[WandbRun]) -> list[Reconciled]:
    """The runs of the ledger among W&B's, in the order of their first attempts."""
    attempts: dict[str, list[WandbRun]] = {}
    for shown in sorted(runs, key=lambda shown: (shown.created, shown.path)):
        if shown.run is not None:
            attempts.setdefault(shown.run, []).append(shown)
    return [_reconciled(run, every) for run, every in attempts.items()]


def _reconciled(run: str, attempts: Sequence[WandbRun]) -> Reconciled:
    """As in the ledger, the first result is kept, and later ones are compared with it."""
    done = [attempt for attempt in attempts if attempt.outcome in RESULTS]
    if not done:
        return Reconciled(run, tuple(attempts), None, ())
    first, *others = done
    differing = []
    for other in others:
        changed = differences(_claims(first), _claims(other))
        differing += [
            f"{key} is {own!r} in {first.path} and {another!r} in {other.path}"
            for key, (own, another) in changed.items()
        ]
    return Reconciled(run, tuple(attempts), first, tuple(differing))


def _claims(run: WandbRun) -> dict[str, object]:
    """What another attempt has to repeat."""
    claimed = {key: value for key, value in result(run).items() if key != "circumstances"}
    return {"outcome": run.outcome, **claimed}
