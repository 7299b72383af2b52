"""What importing Lightning brings along, in a process of its own."""

import subprocess
import sys

import pytest


def told(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_metrics_are_loaded():
    heavy = ("torchmetrics", "matplotlib", "scipy", "transformers", "sympy", "torch._dynamo.eval_frame")
    own = "from scaling import process; process.take()"
    assert (
        told(f"{own}; import sys, scaling.training.run; print(*[name for name in {heavy} if name in sys.modules])")
        == []
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "torch.compile(torch.nn.Linear(2, 2), backend='eager')(torch.ones(1, 2))",
        "import torch._dynamo.variables.base",
        "from torch._dynamo import eval_frame",
        "from torch._dynamo.eval_frame import OptimizedModule",
    ],
)
def test_the_compiler_is_there_for_whoever_asks_for_it(first):
    program = f"""
from scaling import process
process.take()
import sys
import torch
from lightning.fabric import wrappers
model = torch.nn.Linear(2, 2)
torch.optim.Adam(model.parameters()).step()
print("torch._dynamo.eval_frame" in sys.modules, isinstance(model, wrappers.OptimizedModule))
{first}
real = sys.modules["torch._dynamo"]
frame = sys.modules["torch._dynamo.eval_frame"]
print(real is torch._dynamo, real.eval_frame is frame, frame.__spec__.origin[-13:])
compiled = torch.compile(model, backend="eager")
print(compiled(torch.ones(1, 2)).shape == (1, 2), isinstance(compiled, wrappers.OptimizedModule))
print(isinstance(model, wrappers.OptimizedModule), torch._dynamo.variables.base.__name__)
"""
    assert told(program) == [
        *("False", "False", "True", "True", "eval_frame.py"),
        *("True", "True", "False", "torch._dynamo.variables.base"),
    ]


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
