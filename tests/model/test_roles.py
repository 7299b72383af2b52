"""What a parameter is for is declared where it is made: initialisation, rates and counts do not read names."""

from __future__ import annotations

import pytest
import torch
import yaml
from torch import nn

from scaling import schema
from scaling.batch import Batch
from scaling.config import load
from scaling.cost import cost
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from scaling.nn.contract import CONSTANT, Added, declare, role
from scaling.nn.mixer.attention import attend
from scaling.schema import kinds
from scaling.shape import Shape
from scaling.training.parametrization import BERT, GPT2, T5, Glorot, MuP, Standard, initialise
from tests.model.test_variants import LINES

SIZE = "size={width: 64, layers: 3, heads: 4, vocabulary: 61, length: 24}"
RENAMED = {"query": "ask", "key": "answer", "value": "embedding", "out": "proj"}
BARE = ["model.block.norm=NoNorm", "model.stack.norm=NoNorm"]
PARAMETRIZATIONS = {
    "GPT2": GPT2(),
    "BERT": BERT(),
    "T5": T5(),
    "Glorot": Glorot(),
    "Standard": Standard(head="normal"),
    "MuP": MuP(base=16, head="normal"),
}


class Projections(nn.Module):
    """Attention whose projections have unusual names, those of other slots among them."""

    slot = "mixer"

    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.ask = declare(nn.Linear(shape.width, shape.width, bias=False), weight="query")
        self.answer = declare(nn.Linear(shape.width, shape.width, bias=False), weight="key")
        self.embedding = declare(nn.Linear(shape.width, shape.width, bias=False), weight="value")
        self.proj = declare(nn.Linear(shape.width, shape.width, bias=False), weight="output")

    def forward(self, x, context):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.ask, self.answer, self.embedding))
        here = context.places.positions
        q, k = context.position.rotate(q, k, here, here)
        return self.proj(attend(q, k, v, context, scale=q.shape[-1] ** -0.5, dropout=0.0).flatten(2))


@pytest.fixture(autouse=True)
def joined(monkeypatch):
    monkeypatch.setattr(schema, "_joined", {"mixer": {"Projections": Projections}})


def config(mixer: str, *changes: str):
    return load("decoder", [SIZE, f"model.block.mixer={mixer}", *changes])


def renamed(name: str) -> str:
    """The name of a parameter, or of what tuning adds to a map."""
    parts = name.split(".")
    return ".".join([RENAMED.get(part, part) if ".mixer.piece." in name else part for part in parts])


@pytest.mark.parametrize("residual", ["Pre", "Fixup"])
@pytest.mark.parametrize("kind", PARAMETRIZATIONS)
def test_an_attention_with_unusual_names_starts_and_learns_like_the_shipped_one(kind, residual):
    parametrization = PARAMETRIZATIONS[kind]
    changes = [f"model.block.residual={residual}", *BARE] if residual == "Fixup" else []
    models = [config(mixer, *changes) for mixer in ("Attention", "Projections")]
    shipped, own = (
        {spec.name: (spec, p) for spec, p in parameters(initialise(c.build("model", c["size"]), parametrization, 0))}
        for c in models
    )
    assert [renamed(name) for name in shipped] == list(own)
    for name, (spec, parameter) in shipped.items():
        other, drawn = own[renamed(name)]
        assert (other.role, other.slot, other.start, other.fan_in) == (spec.role, spec.slot, spec.start, spec.fan_in)
        assert parametrization.rate(other) == parametrization.rate(spec)
        if spec.role not in CONSTANT:
            assert parametrization.draw(other) == parametrization.draw(spec)
            # Other names are other draws, of the same deviation: 4,096 numbers give it to 1%.
            torch.testing.assert_close(drawn.std(), parameter.std(), rtol=0.06, atol=1e-6)


def test_an_attention_with_unusual_names_costs_what_the_shipped_one_costs():
    shipped, own = cost(config("Attention")).to_json(), cost(config("Projections")).to_json()
    del shipped["memory_bytes_one_window_float32_adam"], own["memory_bytes_one_window_float32_adam"]
    assert own == shipped


def test_an_attention_with_unusual_names_computes_what_the_shipped_one_does():
    shipped, own = (
        initialise(c.build("model", c["size"]), Standard(head="normal"), 0)
        for c in (config("Attention"), config("Projections"))
    )
    own.load_state_dict({renamed(name): tensor for name, tensor in shipped.state_dict().items()})
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, tokens)
    torch.testing.assert_close(own.loss(batch).total, shipped.loss(batch).total)


SHAPE = Shape.of({"width": 32, "layers": 2, "heads": 4, "vocabulary": 61, "length": 24})
PIECES = [(slot, kind) for slot in ("mixer", "channel") for kind in kinds(slot)]


@pytest.mark.parametrize(("slot", "kind"), PIECES, ids=[kind for _, kind in PIECES])
def test_every_shipped_piece_declares_the_matrix_that_it_ends_with(slot, kind):
    line = {"kind": kind, **{key: yaml.safe_load(str(value)) for key, value in LINES.get((slot, kind), {}).items()}}
    if kind == "Linformer":
        line["projected"] = 8
    piece = schema.build(slot, line, SHAPE)
    roles = {role(module, name) for module in piece.modules() for name, _ in module.named_parameters(recurse=False)}
    assert "output" in roles


def test_a_role_of_a_parameter_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="Linear has no parameter wieght"):
        declare(nn.Linear(2, 2), wieght="output")


def test_what_declares_nothing_is_hidden_a_bias_of_a_map_or_a_gain():
    layer, norm = nn.Linear(2, 2), nn.LayerNorm(2)
    assert (role(layer, "weight"), role(layer, "bias"), role(norm, "weight")) == ("hidden", "bias", "gain")


def test_tunings_find_the_maps_of_an_attention_with_unusual_names():
    for line in ("IA3", "{kind: IA3, targets: [key, value]}", "{kind: LoRA, targets: [query, value]}"):
        shipped, own = (build_model(config(mixer, f"tuning={line}").tree) for mixer in ("Attention", "Projections"))
        added = [[name for name, part in model.named_modules() if isinstance(part, Added)] for model in (shipped, own)]
        assert [renamed(f"{name}.gain").removesuffix(".gain") for name in added[0]] == added[1]
