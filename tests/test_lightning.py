"""What importing Lightning brings along, in a process of its own."""

import subprocess
import sys

import pytest


def told(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_metrics_are_loaded():
    heavy = ("torchmetrics", "matplotlib", "scipy", "transformers")
    assert told(f"import sys, scaling.train.run; print([name for name in {heavy} if name in sys.modules])") == "[]"


@pytest.mark.parametrize("first", ["torchmetrics", "scaling.lightning"])
def test_a_metric_is_known_as_one_whoever_comes_first(first):
    program = f"""
import {first}
import scaling.lightning, torchmetrics
from lightning.pytorch.core import module
metric = torchmetrics.MeanMetric()
collection = torchmetrics.MetricCollection([metric])
print(isinstance(metric, module.Metric), isinstance(collection, module.MetricCollection))
print(isinstance(1.0, module.Metric))
"""
    assert told(program).split() == ["True", "True", "False"]


def test_before_there_are_metrics_nothing_is_one():
    program = (
        "import scaling.lightning; from lightning.pytorch.core import module; print(isinstance(1.0, module.Metric))"
    )
    assert told(program) == "False"
