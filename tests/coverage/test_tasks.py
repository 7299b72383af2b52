"""Task laws on the shipped sets: the OLMo ladder's held-out sizes, and losses of Gadre et al. from another loss."""

import numpy as np
import pytest

from scaling.coverage.tasks import ladder, ladder_tasks, loss_to_loss


def inside(tests):
    return np.mean([test.prediction.run.covers(test.observed) for test in tests])


def test_the_ladder_has_its_tasks():
    tasks = ladder_tasks()
    assert len(tasks) == len(set(tasks)) == 20
    assert "arc_easy_val" in tasks


@pytest.mark.slow
def test_held_out_sizes_of_the_ladder_are_inside():
    tested = ladder()
    for (law, part), tests in tested.items():
        assert len(tests) == (120 if part == "largest size" else 480)
        assert inside(tests) >= 0.93, (law, part)
    assert np.mean([test.error for test in tested["chinchilla,task_power", "largest size"]]) < 0.025
    assert np.mean([test.error for test in tested["direct_bits", "largest size"]]) < 0.02


@pytest.mark.slow
def test_losses_on_other_sets_are_inside():
    tested = loss_to_loss()
    assert {corpus: len(tests) for corpus, tests in tested.items()} == {"c4_original": 49, "rpj": 49, "rw_original": 49}
    assert inside([test for tests in tested.values() for test in tests]) >= 0.9
