"""Bayesian search with no server: Optuna's tree-structured Parzen estimator, over the quantiles of each distribution.
(Bergstra et al. 2011, Algorithms for hyper-parameter optimization)

W&B fits a Gaussian process to the same quantiles; its server's draws are not repeatable, so neither are they copied
here.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from scaling.sweeps.distribution import Choice
from scaling.sweeps.file import Cell, Sweep


class Bayes:
    """Asks Optuna for cells and writes each down: a sweep that was killed draws the same ones again, and then goes on.

    A run that was pruned counts with the value it had reached; one that diverged or failed is worse than all.
    """

    def __init__(self, sweep: Sweep, drawn: Path):
        try:
            import optuna
        except ImportError:
            raise sweep.config.error("method", "bayes needs Optuna here", "install scaling[bayes]") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.sweep, self.drawn = sweep, drawn
        self._states = optuna.trial.TrialState
        # Runs that are under way count as bad ones, so that workers do not all ask for the same place.
        sampler = optuna.samplers.TPESampler(seed=int(sweep.fingerprint[:8], 16), constant_liar=True)
        self._study = optuna.create_study(sampler=sampler)
        self._trials: list[Any] = []
        self._before = 0
        for line in drawn.read_text().splitlines() if drawn.exists() else ():
            self._study.enqueue_trial(json.loads(line))
            self._before += 1

    def draw(self) -> Cell | None:
        if self.sweep.cap is not None and len(self._trials) >= self.sweep.cap:
            return None
        trial = self._study.ask()
        shares = {key: self._share(trial, key) for key in self.sweep.parameters}
        self._trials.append(trial)
        if len(self._trials) > self._before:
            with self.drawn.open("a") as file:
                file.write(json.dumps(trial.params) + "\n")
        return {key: distribution.at(shares[key]) for key, distribution in self.sweep.parameters.items()}

    def _share(self, trial: Any, key: str) -> float:
        distribution = self.sweep.parameters[key]
        if not isinstance(distribution, Choice):
            return trial.suggest_float(key, 0.0, 1.0)
        if len(distribution.values) == 1:
            return 0.0
        ordered = isinstance(distribution.values, range) or (
            distribution.are_numbers and list(distribution.values) == sorted(distribution.values)
        )
        count = len(distribution.values)
        index = trial.suggest_int(key, 0, count - 1) if ordered else trial.suggest_categorical(key, list(range(count)))
        if not distribution.chances:
            return (index + 0.5) / count
        return sum(itertools.islice(distribution.chances, index)) + distribution.chances[index] / 2

    def hear(self, number: int, outcome: str, value: float | None) -> None:
        trial = self._trials[number]
        if value is None:
            self._study.tell(trial, state=self._states.FAIL)
        elif outcome == "pruned":
            trial.report(value, step=1)
            self._study.tell(trial, state=self._states.PRUNED)
        else:
            self._study.tell(trial, value)
