"""What importing Lightning brings along, in a process of its own."""

import subprocess
import sys

import pytest


def told(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_metrics_are_loaded():
    heavy = ("torchmetrics", "matplotlib", "scipy", "transformers")
    own = "from scaling import process; process.take()"
    assert (
        told(f"{own}; import sys, scaling.training.run; print(*[name for name in {heavy} if name in sys.modules])")
        == []
    )


@pytest.mark.slow
def test_a_metric_is_known_as_one_though_it_came_later():
    program = """
from scaling import process
process.take()
import scaling.lightning
from lightning.pytorch.core import module
print(isinstance(1.0, module.Metric))
import torchmetrics
metric = torchmetrics.MeanMetric()
collection = torchmetrics.MetricCollection([metric])
print(isinstance(metric, module.Metric), isinstance(collection, module.MetricCollection))
print(isinstance(1.0, module.Metric))
"""
    assert told(program) == ["False", "True", "True", "False"]


@pytest.mark.slow
def test_a_person_s_program_has_the_whole_of_lightning():
    program = """
import scaling.lightning
import torchmetrics
from lightning.pytorch.trainer.connectors.logger_connector import result
print(issubclass(result._ResultMetric, torchmetrics.Metric))
"""
    assert told(program) == ["True"]
