"""One update and one evaluation: losses, precisions, batches, optimizers, schedules, and what is measured."""

import itertools
import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scaling.base.batch import IGNORE
from scaling.config import schema
from scaling.interop import run as interop
from scaling.ledger import run_id
from scaling.model.parameters import Parameter, ParameterSpec
from scaling.training.evaluation import Evaluation
from scaling.training.parametrization import Standard
from scaling.training.schedule import warmup_steps
from tests.command_line import refuses
from tests.training.conftest import PAIRS, STILL, experiment, left, losses, train, words

# Experts drop the same positions however a batch is split; rows of pairs hold different numbers of targets, over all of
# which the loss is the mean.
SPLIT = [
    ("decoder", {"model.block.channel": "{kind: Switch, activation: ReLU, experts: 4, capacity: 0.7}"}),
    ("encoder_decoder", PAIRS),
]


@pytest.mark.parametrize(("name", "changes"), SPLIT)
def test_accumulation_is_the_whole_batch(name, changes, tmp_path):
    train(words(tmp_path / "whole", name, **STILL, **changes))
    train(words(tmp_path / "parts", name, train__micro_batch=1, **STILL, **changes))
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=2e-5)


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(tmp_path):
    """In a process of its own: the tests' checks of shapes cannot be compiled."""
    line = words(tmp_path / "compiled", trainer__max_steps=3, train__compile="true", **STILL)
    subprocess.run([sys.executable, "-m", "scaling", "train", *line], check=True, capture_output=True)
    plain = train(words(tmp_path / "plain", trainer__max_steps=3, **STILL))
    assert left(tmp_path / "compiled").result["loss"] == pytest.approx(plain["loss"], rel=1e-4)


FORCED = """
from scaling.objectives.causal import Causal

class Forced(Causal):
    slot = "objective"

    def __init__(self, *shared, teacher: float = 0.5):
        super().__init__(*shared)
        self.teacher = teacher
"""


def test_a_teacher_counts_unless_it_is_ignored_and_its_weights_make_it(tmp_path):
    """The losses that pieces add stay, as the balance of experts."""
    taught = {**STILL, "parametrization": "{kind: Standard, head: normal}"}
    experts: Any = {"model__block__channel": "{kind: Switch, activation: GeLU, experts: 2, balance: 0.5}"}
    teacher = train(words(tmp_path, trainer__max_steps=20, **taught))["run"]

    def pupil(weight: float, hidden: float = 0.0, **changes: Any) -> list[float]:
        line = f"{{kind: Distil, objective: Causal, teacher: '{teacher}', weight: {weight}, hidden: {hidden}}}"
        return losses(tmp_path, train(words(tmp_path, objective=line, seed=1, **taught, **changes))["run"])

    assert pupil(1.0, hidden=1.0)[0] > pupil(1.0)[0] > 0  # nothing but KL(teacher ‖ pupil)
    alone = train(words(tmp_path, seed=1, **taught, **experts))["run"]
    assert pupil(0.0, **experts) == pytest.approx(losses(tmp_path, alone), rel=1e-5)
    both = train(words(tmp_path, "bert", **STILL))["run"]  # of words and of sentences, whose head learns too
    line = f"{{kind: Distil, objective: NextSentence, teacher: '{both}', weight: 0.0}}"
    same = train(words(tmp_path, "bert", objective=line, **STILL))["run"]
    assert losses(tmp_path, same) == pytest.approx(losses(tmp_path, both), rel=1e-5)
    interop.write(tmp_path / "copy", interop.read(teacher, tmp_path), "here")
    places = (teacher, teacher[:6], tmp_path / "copy", alone)  # weights make the teacher, wherever they are
    line = "{{kind: Distil, objective: Causal, teacher: '{}', weight: 1}}"
    # What an objective of one's own has under this name is its own.
    (tmp_path / "forced.py").write_text(FORCED)
    schema.extend(tmp_path / "forced.py")
    assert experiment(tmp_path, objective="Forced").teacher is None
    ids = [run_id(experiment(tmp_path, objective=line.format(place), **experts).spec) for place in places]
    assert ids[0] == ids[1] == ids[2] != ids[3]


def measure(one: Any, model: Any, batches: list[Any], **changes: Any) -> dict[str, Any]:
    """What a model loses on batches, outside of a Trainer."""
    evaluation = Evaluation(*one.evaluation())
    vars(evaluation).update(changes)
    model.eval()
    for batch in batches:
        evaluation.add(model, batch)
    return evaluation.measured()


def test_a_precision_of_training_and_one_of_evaluation(tmp_path):
    """A low one is near float32; a checkpoint's float32 weights give the result's loss in the precision asked."""
    still = train(words(tmp_path, **STILL))["loss"]
    for training, evaluation in itertools.pairwise(("32-true", "bf16-mixed", "bf16-true", "32-true")):
        line = {"trainer__precision": training, "evaluate__precision": evaluation, **STILL}
        result = train(words(tmp_path, **line))
        assert result["evaluation_precision"] == evaluation
        saved = interop.read(result["run"], tmp_path).tensors
        assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
        one = experiment(**line)
        model = one.model().to_empty(device="cpu")
        model.load_state_dict(saved)
        model = model.to(torch.bfloat16) if evaluation == "bf16-true" else model
        batches, count = one.evaluation()
        with torch.autocast("cpu", torch.bfloat16, enabled=evaluation == "bf16-mixed"):
            alone = measure(one, model, [batches.batch(step) for step in range(count)])
        assert result["loss"] == pytest.approx(alone["loss"], rel=1e-9)
        assert still != result["loss"] == pytest.approx(still, rel=5e-3)
        default = "bf16-true" if training == "bf16-true" else "32-true"  # of the time before the key
        assert ("precision" in one.spec["evaluate"]) == (evaluation != default)


def test_an_evaluation_is_the_mean_over_every_target():
    """The excess is paired with the truth, and how the batches are cut does not matter."""
    one = experiment(parametrization__kind="GPT2", data__validation=500)
    validation, count = one.evaluation()
    model, batches, rows = one.initial_model(), [validation.batch(step) for step in range(count)], 500 // 17
    found = measure(one, model, batches)
    assert found["targets"] == rows * 16
    with torch.no_grad():
        logits = model.logits(batches[0]).double()
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batches[0].targets.flatten(), reduction="none")
    assert found["loss_plain"] == pytest.approx(each.mean().item(), rel=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(-1) == batches[0].targets).double().mean().item())
    assert found["loss_by_position"] == pytest.approx(each.reshape(rows, 16).mean(0).tolist(), rel=1e-5)
    truth = torch.cat([batch.truth for batch in batches if batch.truth is not None]).double().mean().item()
    assert found["excess"] == pytest.approx(found["loss_plain"] - truth, rel=1e-6)
    assert found["loss"] == pytest.approx(one.validation.source.entropy + found["excess"])
    cut = [batch.micro(start, start + 3) for batch in batches for start in range(0, batch.rows, 3)]
    again = measure(one, model, cut)
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-7)
    assert again["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("kind", ["encoder_decoder Prefix", "decoder SpanCorruption", "encoder Masked"])
def test_only_losses_that_are_a_code_of_the_text_have_bits_per_byte(kind):
    """The loss of the text leaves out sentinels."""
    name, objective = kind.split()
    one = experiment("/", name, **{"objective": objective, "size.length": 64, "data.validation": 4096})
    source, model, batch = SimpleNamespace(entropy=None, bytes_per_token=2.5), one.initial_model(), one.validation
    found = measure(one, model, [batch := batch.batch(0).micro(0, 4)], source=source)
    bits = found["loss"] / math.log(2) / 2.5 if objective == "Prefix" else None
    assert found.get("bits_per_byte") == pytest.approx(bits)
    if objective == "SpanCorruption":
        with torch.no_grad():
            each = model.losses(batch).double()
        vocabulary: Any = one.batches.objective.vocabulary  # type: ignore[attr-defined]
        text = (batch.targets != IGNORE) & ~torch.isin(batch.targets, torch.tensor([*vocabulary.specials.values()]))
        assert 0 < text.sum() < (batch.targets != IGNORE).sum()
        assert found["loss_text"] == pytest.approx(each[text].mean().item(), rel=1e-6)
    else:
        assert "loss_text" not in found


def test_documents_are_kept_apart():
    """`train.documents=mask` reaches the batches of training and of evaluation, and is part of what a run is."""
    changes: Any = {"size.length": 64, "data.validation": 4096}
    joined, apart = experiment("/", **changes), experiment("/", **changes, train__documents="mask")
    for one, is_joined in ((joined, True), (apart, False)):
        assert all((part.batch(0).documents is None) == is_joined for part in (one.batches, one.validation))
    assert run_id(apart.spec) != run_id(joined.spec)
    changes |= {"objective": "SpanCorruption", "train.documents": "mask"}
    refuses("SpanCorruption does not keep documents apart", experiment, "/", "encoder_decoder", **changes)


ROLES = {("hidden", "channel"): (6, 4), ("table", "embedding"): (10, 4), ("gain", "norm"): (4,)}
# The optimizers of torch's that a kind makes, and of each group its parameters and weight decay.
GROUPS: dict[str, list[Any]] = {
    "AdamW": [(torch.optim.AdamW, "hidden table", 0.1), (torch.optim.AdamW, "gain", 0.0)],
    "Adam": [(torch.optim.AdamW, "hidden table gain", 0.0)],
    "SGD": [(torch.optim.SGD, "hidden table gain", 0.0)],
    "Adafactor": [(torch.optim.Adafactor, "hidden table gain", 0.0)],
    "Muon": [(torch.optim.Muon, "hidden", 0.1), (torch.optim.AdamW, "table", 0.1), (torch.optim.AdamW, "gain", 0.0)],
}
SETTINGS = {"AdamW": {"betas": (0.9, 0.95), "eps": 1e-8}, "Adam": {"betas": (0.9, 0.999)}, "SGD": {"momentum": 0.9}}
SETTINGS |= {"Adafactor": {"beta2_decay": -0.8, "d": 1.0}, "Muon": {"adjust_lr_fn": "match_rms_adamw"}}


@pytest.mark.parametrize("kind", GROUPS)
def test_an_optimizer_is_torchs_holds_each_parameter_once_and_its_weight_decay_spares_vectors(kind):
    parts = [
        Parameter(ParameterSpec(slot, shape, role, slot, 4, 2, 2), torch.zeros(shape))  # type: ignore[arg-type]
        for (role, slot), shape in ROLES.items()
    ]
    roles = {id(part.tensor): part.spec.role for part in parts}
    made = schema.build("optimizer", {"kind": kind, "lr": 0.01}).make(parts, Standard().rate)
    groups = [(type(one), group) for one in made for group in one.param_groups]
    held = [(one, " ".join(roles[id(x)] for x in group["params"]), group["weight_decay"]) for one, group in groups]
    assert held == GROUPS[kind]
    assert {group["lr"] for _, group in groups} == {0.01}
    assert groups[0][1].items() >= SETTINGS[kind].items()


# Steps 0, 4, 9, 10, 30, 55, 80, 99 of 100, with 10 of warmup.
AT = [0, 4, 9, 10, 30, 55, 80, 99]
SHAPES = {
    "Constant": [0.1, 0.5, 1, 1, 1, 1, 1, 1],
    "Cosine": [0.1, 0.5, 1, 1, 0.8947, 0.55, 0.2053, 0.1003],
    "Linear": [0.1, 0.5, 1, 1, 0.7778, 0.5, 0.2222, 0.0111],
    "InverseSquareRoot": [0.1, 0.5, 1, 0.9535, 0.568, 0.4226, 0.3514, 0.3162],
    "WSD": [0.1, 0.5, 1, 1, 1, 1, 0.9524, 0.0476],
    "{kind: WSD, decay: 1000}": [0.1, 0.5, 1, 0.989, 0.7692, 0.4945, 0.2198, 0.011],  # as long as the run allows
    "{kind: WSD, shape: sqrt}": [0.1, 0.5, 1, 1, 1, 1, 0.7818, 0.0241],
    "{kind: InverseSquareRoot, rise: flat}": [1, 1, 1, 0.9535, 0.568, 0.4226, 0.3514, 0.3162],
}


@pytest.mark.parametrize("line", SHAPES)
def test_a_schedule_has_the_shape_of_its_formula(line):
    schedule = experiment(schedule=line, **{"schedule.warmup": 10, "trainer.max_steps": 100}).schedule
    assert [round(schedule.factor(step, 100), 4) for step in AT] == SHAPES[line]
    assert all(schedule.factor(step, 100) >= 0 for step in range(99, 160)), "no rate is negative beyond the end"


def test_a_warmup_is_a_tenth_of_the_run_and_at_most_100_steps_or_a_fraction():
    """Equal warmups are one run, however they are written."""

    def one(steps: int, warmup: str):
        return experiment(**{"trainer.max_steps": steps, "schedule.warmup": warmup})

    cases = [(9, "auto", 0), (500, "auto", 50), (5000, "auto", 100), (200, "0.05", 10), (200, "5%", 10)]
    for steps, line, warmup in cases:
        found = one(steps, line)
        assert warmup_steps(found.schedule, found.steps) == warmup
        assert found.spec["schedule"] == {"kind": "Cosine", "warmup": warmup}
    assert len({run_id(one(1000, line).spec) for line in ("100", "10%", "auto")}) == 1
    assert run_id(one(990, "auto").spec) != run_id(one(990, "100").spec)
