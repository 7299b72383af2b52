"""The laws, a file a paper. A law is found by its name: its class in snake case, then its column if it has a choice."""

from __future__ import annotations

from scaling import schema
from scaling.errors import ScalingError, nearest
from scaling.law.forms.bhagia import DirectBits, DirectSigmoid, TaskLinear, TaskPower, TaskSigmoid
from scaling.law.forms.brandfonbrener import LossToLoss
from scaling.law.forms.caballero import Broken
from scaling.law.forms.chen import ParallelStreams
from scaling.law.forms.chinchilla import Chinchilla
from scaling.law.forms.clark import RoutedExperts, RoutedExpertsFloor
from scaling.law.forms.farseer import Farseer
from scaling.law.forms.form import Columns, Form, Parameter
from scaling.law.forms.frantar import SparseWeights
from scaling.law.forms.gadre import OverTraining, TaskExponential
from scaling.law.forms.kaplan import CriticalBatch, Kaplan, KaplanND, KaplanNS
from scaling.law.forms.kumar import Precision
from scaling.law.forms.li import LearningRateBatch
from scaling.law.forms.liew import SparseExperts
from scaling.law.forms.ludziejewski import ActiveExperts, Granularity
from scaling.law.forms.mcleish import Shape
from scaling.law.forms.mixture import BiMix, Mixture, MixtureExponential, MixtureJoint
from scaling.law.forms.muennighoff import DataConstrained
from scaling.law.forms.power import PowerLaw, PowerLawFloor
from scaling.law.forms.tao import Vocabulary
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
    Farseer(),
    DataConstrained(),
    OverTraining(),
    Shape(),
    *(Broken(x, breaks) for x in ("C", "N", "D") for breaks in (1, 2, 3)),
    Annealing(),
    *(BatchSize(axes) for axes in (("C",), ("D",), ("N", "D"))),
    *(LearningRate(axes) for axes in (("C",), ("N",), ("N", "D"))),
    LearningRateBatch(),
    Vocabulary(),
    RoutedExperts(),
    RoutedExpertsFloor(),
    Granularity(),
    ActiveExperts(),
    SparseExperts(),
    SparseWeights(),
    ParallelStreams(),
    Precision(),
    BiMix(),
    MixtureExponential(),
    MixtureJoint(),
    TaskSigmoid(),
    TaskExponential(),
    TaskLinear(),
    TaskPower(),
    DirectSigmoid(),
    DirectBits(),
    LossToLoss(),
)

MOST_DOMAINS = 100

__all__ = ["LAWS", "Columns", "Form", "Parameter", "laws", "named"]


def laws() -> dict[str, Form]:
    """Every law by its name: those of the papers, and those that joined by `--extend`."""
    by_name = {law.name: law for law in LAWS}
    for kind in schema.joined(schema.LAW).values():
        law = _instance(kind)
        if law.name in by_name:
            raise ScalingError(f"there is a law {law.name} already", key="slot", fix="give your class another name")
        by_name[law.name] = law
    return by_name


def _instance(kind: type) -> Form:
    """The law of a person's class, refused where it lacks what a law states."""
    fix = "it is a subclass of scaling.law.Form with formula, citation, inputs, parameters and curve (docs/laws.md)"
    if not issubclass(kind, Form):
        raise ScalingError(f"{kind.__name__} is no law", key="slot", value=schema.LAW, fix=fix)
    lacking = [name for name in ("formula", "citation", "inputs", "parameters") if not hasattr(kind, name)]
    if lacking:
        raise ScalingError(f"the law {kind.__name__} has no {lacking[0]}", key="slot", value=schema.LAW, fix=fix)
    try:
        return kind()
    except TypeError as error:
        raise ScalingError(f"the law {kind.__name__} cannot be made: {error}", key="slot", fix=fix) from None


def named(name: str, *others: str) -> Form:
    """The law of that name; an error proposes `others` too, the names that a caller takes besides."""
    by_name = laws()
    if (mixture := _of_domains(name)) is not None:
        return mixture
    if name not in by_name:
        raise ScalingError(f"there is no law {name!r}", fix=nearest(name, [*by_name, *others]))
    return by_name[name]


def _of_domains(name: str) -> Mixture | None:
    """A law of a mixture of as many domains as its name ends with: `mixture_joint_5`."""
    stem, _, count = name.rpartition("_")
    kinds: dict[str, type[Mixture]] = {"mixture_exponential": MixtureExponential, "mixture_joint": MixtureJoint}
    return kinds[stem](int(count)) if stem in kinds and count.isdecimal() and 2 <= int(count) <= MOST_DOMAINS else None
