"""The laws, a file a paper. A law is found by its name: its class in snake case, then its column if it has a choice."""

from __future__ import annotations

from scaling.errors import ScalingError, nearest
from scaling.law.forms.bhagia import TaskSigmoid
from scaling.law.forms.caballero import Broken
from scaling.law.forms.chinchilla import Chinchilla
from scaling.law.forms.form import Columns, Form, Parameter
from scaling.law.forms.gadre import OverTraining, TaskExponential
from scaling.law.forms.kaplan import CriticalBatch, Kaplan, KaplanND, KaplanNS
from scaling.law.forms.mcleish import Shape
from scaling.law.forms.muennighoff import DataConstrained
from scaling.law.forms.power import PowerLaw, PowerLawFloor
from scaling.law.forms.tissue import Annealing
from scaling.law.forms.tuning import BatchSize, LearningRate

LAWS: tuple[Form, ...] = (
    *(PowerLaw(x) for x in ("C", "N", "D")),
    *(PowerLawFloor(x) for x in ("C", "N", "D")),
    *(Kaplan(x) for x in ("N", "D", "C", "C_min")),
    KaplanND(),
    KaplanNS(),
    CriticalBatch(),
    Chinchilla(),
    DataConstrained(),
    OverTraining(),
    Shape(),
    *(Broken(x, breaks) for x in ("C", "N", "D") for breaks in (1, 2, 3)),
    Annealing(),
    *(BatchSize(axes) for axes in (("C",), ("D",), ("N", "D"))),
    *(LearningRate(axes) for axes in (("C",), ("N",), ("N", "D"))),
    TaskSigmoid(),
    TaskExponential(),
)

__all__ = ["LAWS", "Columns", "Form", "Parameter", "named"]


def named(name: str) -> Form:
    """The law of that name."""
    laws = {law.name: law for law in LAWS}
    if name not in laws:
        raise ScalingError(f"there is no law {name!r}", mend=nearest(name, laws))
    return laws[name]
