"""Memory that runs out ends a run as that, whichever library ran out of it, with the line that says what may fit."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from scaling import cli
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.training.run import train
from tests.training.conftest import words
from tests.training.test_completeness import sabotaged

CAUSES = {
    "torch": "import torch; torch.empty(10**15)",
    "numpy": "import numpy; numpy.empty(10**15)",
    "Python": "bytearray(10**18)",
    "C++": "raise RuntimeError('std::bad_alloc')",
    "the operating system": f"raise OSError({errno.ENOMEM}, {os.strerror(errno.ENOMEM)!r})",
    "CUDA": "raise RuntimeError('CUDA error: out of memory')",
    "another error's cause": "try: bytearray(10**18)\nexcept MemoryError as error: raise ValueError('no') from error",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_whoever_runs_out_of_memory_it_is_out_of_memory(cause: str, tmp_path: Path):
    with pytest.raises(ScalingError) as failed:
        train(sabotaged(tmp_path, CAUSES[cause], 3))
    assert failed.value.code == 1
    assert str(failed.value) == "train.micro_batch=None: out of memory; accumulate: train.micro_batch=2"
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    (attempt,) = ledger.attempts(run)
    assert attempt.end is not None
    assert attempt.end["outcome"] == "out_of_memory"
    assert ledger.result(run) is None


@pytest.mark.parametrize("error", ["ValueError('out of memory')", "RuntimeError('shapes differ')", "OSError(2, 'no')"])
def test_other_errors_are_not(error: str, tmp_path: Path):
    with pytest.raises((ValueError, RuntimeError, OSError)):
        train(sabotaged(tmp_path, f"raise {error}", 3))
    ledger = Ledger.open(tmp_path / "runs")
    (attempt,) = ledger.attempts(ledger.runs()[0])
    assert attempt.end is not None
    assert attempt.end["outcome"] == "failed"


@pytest.mark.parametrize(
    ("batch", "micro", "fitting"),
    [(4, "null", 2), (6, "null", 3), (9, "null", 3), (9, 3, 1), (7, "null", 1), ("{0: 6, 5: 9}", "null", 1)],
)
def test_the_rows_that_are_proposed_divide_the_batch(batch: object, micro: object, fitting: int, tmp_path: Path):
    changes: dict[str, Any] = {"train__batch": batch, "train__micro_batch": micro}
    with pytest.raises(ScalingError, match=f"train.micro_batch={fitting}$"):
        train(sabotaged(tmp_path, CAUSES["torch"], 2, **changes))
    assert train(sabotaged(tmp_path, "pass", 0, **{**changes, "train__micro_batch": fitting}))["outcome"] == "finished"


def test_one_row_has_nothing_to_accumulate(tmp_path: Path):
    with pytest.raises(ScalingError, match=r"take more devices"):
        train(sabotaged(tmp_path, CAUSES["torch"], 2, train__batch=1))


def test_a_rank_that_runs_out_of_memory_says_so_in_one_line(tmp_path: Path):
    with pytest.raises(ScalingError, match=r"out of memory; accumulate: train\.micro_batch=1"):
        train(sabotaged(tmp_path, CAUSES["torch"], 3, trainer__devices=2))


def test_a_model_that_no_memory_holds_ends_with_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Real weights, beyond any machine: they are drawn before the first step."""
    told = words(tmp_path / "runs", size__width=1 << 20, size__heads=1, size__hidden=1 << 20)
    assert cli.main(["train", *told]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("scaling: train.micro_batch=None: out of memory")
