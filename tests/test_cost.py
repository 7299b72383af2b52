"""Parameters against published counts; FLOPs against torch's counter on real tensors and Kaplan's arithmetic."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scaling.base.batch import Batch
from scaling.config.compose import document, load, shipped
from scaling.model.cost import cost, count, inspected
from scaling.model.parameters import parameters
from scaling.model.tuned import blank

HERE = Path(__file__).parent
MODELS = sorted(path.stem for path in (shipped() / "model").glob("*.yaml"))
OF_RECORD = [name for name in MODELS if (shipped() / "size" / f"{name}.yaml").exists()]


def published(name: str) -> list[dict[str, str]]:
    with open(HERE / "published" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def count_of(model: str, size: str, *overrides: str) -> int:
    config = load(model, [f"size={size}", *overrides])
    with blank():
        return sum(p.numel() for p in config.build("model", config["size"]).parameters())


@pytest.mark.parametrize("row", published("bert_gpt_t5_sizes"), ids=lambda row: row["model"])
def test_exact_counts_of_bert_gpt_and_t5(row):
    name = {"BERT-base": "bert base", "BERT-large": "bert large", "GPT-1": "gpt1 base"}.get(row["model"], row["model"])
    model, size = name.lower().replace("gpt-2", "gpt2").split()
    found = count_of(model, f"{model}/{size}")
    if model == "bert":
        # The published count is the stack with its pooler, without the two heads' own parameters.
        width, vocabulary = int(row["d_model"]), int(row["vocab"])
        found -= width * width + 3 * width + vocabulary + 2 * width + 2
    assert found == int(row["params_computed"])


def test_a_longformer_has_what_its_released_weights_have():
    """RoBERTa, 3,584 more positions, and three more maps for the global token in each layer."""
    found = count_of("longformer", "longformer/base")
    more = 3584 * 768 + 12 * 3 * (768 * 768 + 768)
    assert found == count_of("roberta", "roberta/base") + more


@pytest.mark.parametrize("row", published("pythia_sizes"), ids=lambda row: row["model"])
def test_exact_counts_of_pythia(row):
    config = load("pythia", [f"size=pythia/{row['model'].lower()}"])
    with blank():
        model = config.build("model", config["size"])
    small = sum(p.numel() for spec, p in parameters(model) if not spec.looks_up and not spec.predicts)
    assert small == int(row["non_embedding_params"])
    assert sum(p.numel() for p in model.parameters()) == int(row["total_params"])


@pytest.mark.parametrize("row", published("brown2020_table2_1"), ids=lambda row: row["model"])
def test_gpt3_within_its_printed_rounding(row):
    name = row["model"].replace("GPT-3 ", "").lower()
    found = count_of("gpt3", f"gpt3/{name}") / 1e6
    computed = float(row["params_m_if_heads_times_dhead_equals_dmodel"])
    if name == "xl":
        # 24 heads of 128 are wider than the model, as printed: four maps of 2048 × 1024 more in each of 24 layers.
        computed += 24 * 4 * (24 * 128 - 2048) * 2048 / 1e6
    if name == "13b":
        # Printed with width 5140, of which 40 heads of 128 use 5120.
        computed -= 40 * 4 * 20 * 5140 / 1e6
    assert found == pytest.approx(computed, rel=1e-3)


@pytest.mark.parametrize("row", published("hoffmann2022_tableA9"), ids=lambda row: row["params_millions"])
def test_chinchilla_within_its_printed_rounding(row):
    found = count_of("chinchilla", f"chinchilla/{row['params_millions']}m") / 1e6
    assert found == pytest.approx(float(row["computed_m_5maps_V32000"]), rel=2.5e-3)
    assert found == pytest.approx(float(row["params_millions"]), abs=0.5, rel=2.5e-3)


VASWANI = ["base", "a1", "a2", "a3", "a4", "b1", "b2", "c1", "c2", "c3", "c4", "c5", "c6", "c7"]


@pytest.mark.parametrize(
    ("row", "size"),
    [
        pytest.param(row, size, id=size)
        for row, size in zip(
            [*published("vaswani2017_table3")[:14], published("vaswani2017_table3")[-1]], [*VASWANI, "big"], strict=True
        )
    ],
)
@pytest.mark.parametrize("vocabulary", [37000, 41100])
def test_every_variation_of_vaswani(row, size, vocabulary):
    found = count_of("vaswani", f"vaswani/{size}", f"size.vocabulary={vocabulary}") / 1e6
    assert found == pytest.approx(float(row[f"params_m_computed_V{vocabulary}"]), abs=0.006)
    # `big` alone does not fit the vocabulary that the other ten published counts need (about 41,100).
    if row["params_m_published"] and vocabulary == 41100 and size != "big":
        assert found == pytest.approx(float(row["params_m_published"]), abs=0.51)


FAMILIES = ("decoder", "encoder", "encoder_decoder")
SMALL = "size={width: 32, layers: 2, heads: 4, vocabulary: 96, length: 16}"
FITTED = {  # to the length
    "longformer": ["model.block.mixer.window=3"],
    "bigbird": ["model.block.mixer.block=1"],
    "t_dmca": ["model.block.mixer.size=4"],
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_torchs_counter_on_real_tensors(name):
    key_heads = ["size.key_heads=2"] if load(name)["size"].get("key_heads") else []
    config = load(name, [SMALL, *key_heads, *FITTED.get(name, [])])
    found = cost(config)
    model = config.build("model", config["size"])
    x = torch.randint(0, 96, (1, 16))
    labels = x if model.learns_previous else torch.zeros(1, dtype=torch.long)
    batch = Batch(x, x, labels=labels, source=x if hasattr(model, "encode") else None)
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        model.losses(batch)
    with FlopCounterMode(display=False) as train:
        model.loss(batch).total.backward()
    assert found.flops_forward == forward.get_total_flops()
    assert found.flops_train == train.get_total_flops()
    assert sum(found.flops_forward_by_slot.values()) == found.flops_forward
    real = count(model, batch)
    assert (real.flops_forward, real.flops_train) == (found.flops_forward, found.flops_train)


@pytest.mark.parametrize("size", ["gpt2/small", "ladder/1M"])
def test_flops_equal_kaplans_arithmetic(size):
    config = load("gpt2", [f"size={size}"])
    found, shape = cost(config), config["size"]
    w, layers, n, v = shape["width"], shape["layers"], shape["length"], shape["vocabulary"]
    matrices = 12 * layers * w * w + v * w
    forward = 2 * matrices + 4 * layers * n * w
    assert found.flops_forward_per_token == forward
    assert found.flops_train_per_token == 3 * forward
    # Backward, every product comes again twice, in the slot that it is in forwards.
    assert found.flops_train_by_slot == {slot: 3 * number for slot, number in found.flops_forward_by_slot.items()}
    assert found.parameters_non_embedding == layers * (12 * w * w + 13 * w) + 2 * w
    assert found.approximations["with_attention_and_last_layer"] == pytest.approx(3 * forward, rel=0.02)


def test_a_shared_block_counts_once_and_runs_often():
    whole, shared = cost(load("decoder", [SMALL])), cost(load("decoder", [SMALL, "model.stack.distinct=1"]))
    assert shared.flops_train == whole.flops_train
    assert shared.parameters_by_slot["mixer"] * 2 == whole.parameters_by_slot["mixer"]


def test_activation_memory_is_what_autograd_keeps():
    short, long = (cost(load("decoder", [SMALL, f"size.length={n}"])).activation_bytes for n in (64, 128))
    # Twice the tokens keep more than twice as much, for attention's weights are square.
    assert 2 * short < long < 4 * short


def sizes_of(name: str) -> list[str]:
    return list(document(shipped() / "size" / f"{name}.yaml").tree)


LONG = ("gnmt", "chinchilla")  # read token by token; many sizes
EACH = [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in OF_RECORD]


@pytest.mark.parametrize("name", EACH)
def test_golden(name, request):
    """The model's truth as a text to review; `pytest --golden` writes it anew."""
    first, found = sizes_of(name)[0], {}
    for size in sizes_of(name):
        found[size] = {"parameters": count_of(name, f"{name}/{size}")}
    exact = cost(load(name, [f"size={name}/{first}"]))
    found[first] |= {
        "by_slot": {slot: number for slot, number in exact.parameters_by_slot.items() if number},
        "non_embedding": exact.parameters_non_embedding,
        "flops_forward": exact.flops_forward,
        "flops_train": exact.flops_train,
    }
    path = HERE / "golden" / f"{name}.json"
    if request.config.getoption("--golden"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert json.loads(path.read_text()) == found


@pytest.mark.parametrize(
    ("change", "shares"),
    [
        ("model.position=TransformerXL", True),
        ("model.block.mixer={kind: FactorizedSynthesizer}", True),
        ("model.position=RelativeBias", False),
        ("model.position=Rotary", False),
    ],
)
def test_work_that_the_rows_of_a_batch_share_is_known_exactly(change, shares):
    """Five windows cost five times one, less four times what they share, on real tensors too."""
    config = load("decoder", ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}", change])
    model = config.build("model", config["size"])
    tokens = torch.zeros(5, 24, dtype=torch.long)
    five = count(model, Batch(tokens, tokens, labels=tokens[:, 0])).flops_train
    shared = inspected(config).flops_train_shared
    assert shared is not None
    assert (shared > 0) == shares
    assert five == 5 * cost(config).flops_train - 4 * shared
