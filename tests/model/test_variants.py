"""Every piece of every slot in every family that can hold it: what must hold of any model, whatever it is made of."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from scaling.batch import IGNORE, Batch
from scaling.build import kinds
from scaling.config import load
from scaling.nn.context import Cache
from scaling.train.parametrization import Standard, initialise

# What a kind asks for beyond its name. A new piece without required keys is tested unasked.
LINES = {
    ("head", "Transform"): {"activation": "GeLU", "norm": "LayerNorm"},
    ("head", "Sequence"): {"classes": 3, "activation": "Tanh"},
    ("head", "NextSentence"): {"activation": "Tanh"},
    ("head", "Tokens"): {"classes": 5},
    ("channel", "Dense"): {"activation": "GeLU"},
    ("channel", "Gated"): {"activation": "Swish"},
    ("position", "Learned"): {"length": 32},
}
PATHS = {
    "activation": "model.block.channel.activation",
    "norm": "model.block.norm",
    "residual": "model.block.residual",
    "channel": "model.block.channel",
    "position": "model.position",
    "head": "model.head",
    "pattern": "model.pattern",
}
FAMILIES = ("decoder", "encoder", "encoder_decoder")
CLASS_HEADS = ("Sequence", "NextSentence", "Span")


def _flow(kind: str, keys: dict) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in {"kind": kind, **keys}.items()) + "}"


def _cases() -> list[tuple[str, str]]:
    cases = [(family, "") for family in FAMILIES]
    for slot, path in PATHS.items():
        for kind in kinds(slot):
            if slot == "pattern" and kind == "Bidirectional":
                continue  # the encoders' default
            for family in FAMILIES:
                if slot == "head" and kind in (*CLASS_HEADS, "Tokens") and family != "encoder":
                    continue
                if slot == "pattern" and family != "decoder":
                    continue
                cases.append((family, f"{path}={_flow(kind, LINES.get((slot, kind), {}))}"))
    cases += [
        ("decoder", "model.tie=[decoder, head]"),
        ("decoder", "size.key_heads=1"),
        ("decoder", "size.value_width=12"),
        ("decoder", "model.block.mixer.bias=true"),
        ("decoder", "model.block.mixer.norm=RMSNorm"),
        ("decoder", "model.position={kind: Rotary, part: 0.5}"),
        ("decoder", "model.stack.distinct=1"),
        ("decoder", "model.stack.order=[0, 1, 0, 1]"),
        ("decoder", "model.embedding.scale=sqrt_width"),
        ("decoder", "model.embedding.norm=LayerNorm"),
        ("decoder", "model.block.branches=[channel, mixer, channel]"),
        ("encoder", "model.embedding.segments=2"),
        ("encoder", "model.sentence={kind: NextSentence, activation: Tanh}"),
        ("encoder", "model.boundary={kind: Boundary, activation: GeLU, norm: LayerNorm}"),
        ("encoder_decoder", "model.tie=[]"),
        ("encoder_decoder", "model.tie=[encoder, decoder]"),
        ("encoder_decoder", "model.tie=[decoder, head]"),
        ("encoder_decoder", "size.encoder.layers=1"),
        ("encoder_decoder", "model.encoder.stack.distinct=1"),
        ("decoder", "model.block.kind=Parallel"),
    ]
    return cases


def build(family: str, change: str):
    overrides = ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"]
    if change.startswith("model.stack.order"):
        overrides.append("size.layers=4")
    if change == "model.block.kind=Parallel":
        change = (
            "model.block={kind: Parallel, branches: [mixer, channel], norm: LayerNorm, residual: Pre, "
            "mixer: Attention, channel: {kind: Dense, activation: GeLU}}"
        )
    config = load(family, [*overrides, *([change] if change else [])])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    return initialise(model, Standard(head="normal"), seed=0)


def _name(case: tuple[str, str]) -> str:
    return " ".join(case).replace("model.", "")


@pytest.fixture(params=_cases(), ids=_name)
def case(request):
    return request.param


@pytest.fixture(params=[case for case in _cases() if case[0] != "encoder"], ids=_name)
def writer(request):
    """A case whose stack looks back only: a decoder, or an encoder-decoder's."""
    return request.param


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


def batch_for(model, rows: int = 3, length: int = 12) -> Batch:
    labels = torch.arange(rows) % 2
    if getattr(model.head, "target", None) == "labels" and type(model.head).__name__ == "Span":
        labels = torch.stack([labels, labels + 1], 1)
    source = tokens(rows, 9, 1) if hasattr(model, "encode") else None
    targets = tokens(rows, length, 2)
    if type(model.head).__name__ == "Tokens":
        targets = targets % 5
    targets[0, :2] = IGNORE
    segments = torch.arange(length).expand(rows, -1).ge(length // 2).long()
    return Batch(tokens(rows, length), targets, labels=labels, source=source, segments=segments)


def hidden(model, batch: Batch) -> torch.Tensor:
    return model(batch).hidden


def test_gradient_reaches_every_parameter(case):
    model = build(*case)
    loss = model.loss(batch_for(model)).total
    assert loss.isfinite()
    loss.backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A key's bias moves all of a query's logits alike, so softmax gives it no gradient in exact arithmetic.
    assert [name for name in untouched if not name.endswith("key.bias")] == []


def test_a_later_token_changes_nothing_before_it(writer):
    model = build(*writer).double()
    before = batch_for(model)
    changed = before.tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 61
    after = Batch(**{**vars(before), "tokens": changed})
    if "Prefix" in writer[1]:
        before, after = (Batch(**{**vars(b), "prefix": torch.tensor([3, 3, 3])}) for b in (before, after))
    difference = (hidden(model, before) - hidden(model, after)).abs().amax((0, 2))
    assert difference[:7].max() == 0
    assert difference[7] > 0


def test_padding_changes_nothing(case):
    model = build(*case).double()
    plain = batch_for(model)
    length, extra = plain.tokens.shape[1], 5
    for left in (False, True):
        width = (extra, 0) if left else (0, extra)

        def pad(tensor, fill=0, width=width):
            return None if tensor is None else torch.nn.functional.pad(tensor, width, value=fill)

        real = pad(torch.ones_like(plain.tokens))
        padded = Batch(pad(plain.tokens, 7), pad(plain.targets, IGNORE), documents=real, segments=pad(plain.segments))
        if plain.source is not None:
            padded = Batch(
                **{
                    **vars(padded),
                    "source": pad(plain.source, 7),
                    "source_documents": pad(torch.ones_like(plain.source)),
                }
            )
        expected, found = hidden(model, plain), hidden(model, padded)
        found = found[:, extra:] if left else found[:, :length]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_packed_documents_do_not_see_one_another(case):
    model = build(*case).double()
    a, b = batch_for(model, 1, 7), Batch(**{**vars(batch_for(model, 1, 5)), "tokens": tokens(1, 5, 9)})
    join = lambda x, y: None if x is None else torch.cat([x, y], 1)  # noqa: E731
    documents = torch.tensor([[1] * 7 + [2] * 5])
    packed = Batch(
        join(a.tokens, b.tokens),
        join(a.targets, b.targets),
        documents=documents,
        segments=join(a.segments, b.segments),
        source=join(a.source, b.source),
        source_documents=None if a.source is None else torch.tensor([[1] * 9 + [2] * 9]),
    )
    expected = torch.cat([hidden(model, a), hidden(model, b)], 1)
    torch.testing.assert_close(hidden(model, packed), expected, rtol=0, atol=1e-10)


def test_incremental_equals_whole(writer):
    model = build(*writer).double().eval()
    batch = batch_for(model)
    whole = hidden(model, batch)
    cache = Cache()
    memory = model.encode(batch) if hasattr(model, "encode") else None
    parts = []
    for start, stop in ((0, 4), (4, 5), (5, 12)):
        piece = Batch(**{**vars(batch), "tokens": batch.tokens[:, start:stop], "segments": None})
        parts.append(model.decode(piece, memory, cache).hidden if memory else model(piece, cache).hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-10)


def test_weights_survive_a_file(case):
    model = build(*case)
    stored = save_tensors({name: p.detach().contiguous() for name, p in model.named_parameters()})
    other = build(*case)
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    own = dict(other.named_parameters())
    for name, tensor in load_tensors(stored).items():
        own[name].data.copy_(tensor)
    batch = batch_for(model)
    assert torch.equal(hidden(model, batch), hidden(other, batch))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_both_devices_agree(case):
    model = build(*case).double()
    batch = batch_for(model)
    here = hidden(model, batch)
    there = hidden(model.cuda(), batch.to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-9)
