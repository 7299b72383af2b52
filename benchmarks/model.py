"""Forward and backward of a decoder against GPT-2 as nanoGPT, transformers, litgpt and x-transformers write it.

python benchmarks/model.py [--shapes 64 128 256 512] [--rounds 15] [--threads N] [--json FILE]

The peers live in an environment of their own, .venv-peers, which the first run makes (TORCH_INDEX names a package index
to take torch from); all is measured there, in one process. Contestants take turns, one step each a round, so that what
disturbs the machine disturbs all; a figure is the median of the rounds. Each is given float32 and bfloat16 weights, no
dropout, and the loss its own project trains with. `products` are the matrix products of GPT-2's step and nothing else:
what no implementation of this shape can beat on these kernels.
"""

# pyright: reportMissingImports=false
# The peers live in an environment of their own.

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers"
READY = PEERS / "ready"

Step = Callable[[], None]


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    length: int
    rows: int
    vocabulary: int


SIZES = [
    Size(width=64, layers=3, heads=4, length=128, rows=64, vocabulary=512),
    Size(width=128, layers=4, heads=4, length=128, rows=64, vocabulary=1024),
    Size(width=256, layers=6, heads=4, length=256, rows=32, vocabulary=4096),
    Size(width=512, layers=8, heads=8, length=256, rows=16, vocabulary=8192),
]


@dataclass(frozen=True)
class Figure:
    """One contestant at one size and precision."""

    width: int
    contestant: str
    precision: str
    median_ms: float
    least_ms: float
    parameters: int


def peers() -> Path:
    """The interpreter of the peers' environment, which is made first if need be."""
    python = PEERS / "bin" / "python"
    if not READY.exists():
        venv.create(PEERS, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        if index := os.environ.get("TORCH_INDEX"):
            subprocess.run([*install, "--no-deps", "--index-url", index, "torch"], check=True)
        needs, pinned = (str(ROOT / "benchmarks" / name) for name in ("peers-needs.txt", "peers.txt"))
        subprocess.run([*install, "--requirement", needs], check=True)
        subprocess.run([*install, "--no-deps", "--requirement", pinned], check=True)
        READY.touch()
    return python


def enter_peers() -> None:
    """Go on in the peers' environment."""
    if Path(sys.prefix).resolve() != PEERS.resolve():
        python = peers()
        os.execv(python, [str(python), *sys.argv])


def ours(size: Size, name: str) -> tuple[Any, Callable[[Any], Any]]:
    from scaling.base.batch import Batch
    from scaling.config.compose import load

    shape = {**asdict(size)}
    del shape["rows"]
    config = load(name, [f"size={json.dumps(shape)}"])
    model = config.build("model", config["size"])
    for piece in model.modules():
        if hasattr(piece, "dropout"):
            piece.dropout = 0.0
    return model, lambda tokens: model.loss(Batch(tokens[:, :-1], tokens[:, 1:])).total


def nanogpt(size: Size, flash: bool) -> tuple[Any, Callable[[Any], Any]]:
    from plain_gpt import PlainGPT

    shape = asdict(size)
    del shape["rows"]
    model = PlainGPT(**shape, flash=flash)
    return model, model.loss


def transformers_gpt2(size: Size, attention: str) -> tuple[Any, Callable[[Any], Any]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_embd": size.width, "n_layer": size.layers, "n_head": size.heads, "n_positions": size.length}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "loss_type": "ForCausalLM"}
    ends["attn_implementation"] = attention
    config = GPT2Config(vocab_size=size.vocabulary, **shape, **still, **ends)
    model = GPT2LMHeadModel(config)
    return model, lambda tokens: model(input_ids=tokens[:, :-1], labels=tokens[:, 1:].contiguous()).loss


def litgpt(size: Size) -> tuple[Any, Callable[[Any], Any]]:
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    shape = {"n_embd": size.width, "n_layer": size.layers, "n_head": size.heads, "block_size": size.length}
    kinds = {"norm_class_name": "LayerNorm", "mlp_class_name": "GptNeoxMLP", "gelu_approximate": "tanh"}
    rest = {"padded_vocab_size": size.vocabulary, "bias": True, "parallel_residual": False, "rotary_percentage": 1.0}
    model = GPT(Config(vocab_size=size.vocabulary, **shape, **kinds, **rest))
    return model, lambda tokens: chunked_cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], chunk_size=0)


def x_transformers(size: Size, flash: bool) -> tuple[Any, Callable[[Any], Any]]:
    import torch.nn.functional as F
    from x_transformers import Decoder, TransformerWrapper

    head = size.width // size.heads
    layers = Decoder(dim=size.width, depth=size.layers, heads=size.heads, attn_dim_head=head, attn_flash=flash)
    model = TransformerWrapper(num_tokens=size.vocabulary, max_seq_len=size.length, attn_layers=layers)
    return model, lambda tokens: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


def products(size: Size) -> tuple[Any, Callable[[Any], Any]]:
    """GPT-2's matrix products on weights of its shapes; each one's backward is two more, made by autograd."""
    import torch
    from torch import nn

    class Sink(torch.autograd.Function):
        """A loss whose gradient costs nothing: what came in goes back."""

        @staticmethod
        def forward(ctx: Any, *made: Any) -> Any:
            ctx.save_for_backward(*made)
            return made[0].new_zeros(())

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return ctx.saved_tensors

    w, tokens, pairs = size.width, size.rows * size.length, size.rows * size.heads
    shapes = [(3 * w, w), (w, w), (4 * w, w), (w, 4 * w)] * size.layers + [(size.vocabulary, w)]
    model: Any = nn.Module()
    model.weights = nn.ParameterList(torch.empty(shape).normal_(std=0.02) for shape in shapes)
    model.inputs = nn.ParameterList(torch.randn(tokens, shape[1]) for shape in shapes)
    model.queries = nn.Parameter(torch.randn(pairs, size.length, w // size.heads))
    model.chances = nn.Parameter(torch.rand(pairs, size.length, size.length))

    def run(_: Any) -> Any:
        made = [x @ weight.T for x, weight in zip(model.inputs, model.weights)]
        for _ in range(size.layers):
            made += [model.queries @ model.queries.mT, model.chances @ model.queries]
        return Sink.apply(*made)

    return model, run


CONTESTANTS: dict[str, Callable[[Size], tuple[Any, Callable[[Any], Any]]]] = {
    "scaling, gpt2": lambda size: ours(size, "gpt2"),
    "scaling, decoder": lambda size: ours(size, "decoder"),
    "nanoGPT's form": lambda size: nanogpt(size, flash=False),
    "nanoGPT's form, flash": lambda size: nanogpt(size, flash=True),
    "transformers, sdpa": lambda size: transformers_gpt2(size, "sdpa"),
    "transformers, eager": lambda size: transformers_gpt2(size, "eager"),
    "litgpt": litgpt,
    "x-transformers": lambda size: x_transformers(size, flash=False),
    "x-transformers, flash": lambda size: x_transformers(size, flash=True),
    "products": products,
}
OURS, BOUND = "scaling, gpt2", "products"
RIVALS = [name for name in CONTESTANTS if not name.startswith("scaling") and name != BOUND]


def prepare(contestant: str, size: Size, precision: str) -> tuple[Step, int]:
    """One step, forward and backward, of a model drawn anew; and how many parameters it has."""
    import torch

    torch.manual_seed(0)
    model, loss = CONTESTANTS[contestant](size)
    model.to(getattr(torch, precision)).train()
    tokens = torch.randint(size.vocabulary, (size.rows, size.length + 1))

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss(tokens).backward()

    return step, sum(parameter.numel() for parameter in model.parameters())


def measure(size: Size, rounds: int) -> list[Figure]:
    names = [(contestant, precision) for contestant in CONTESTANTS for precision in ("float32", "bfloat16")]
    prepared = {name: prepare(name[0], size, name[1]) for name in names}
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in names}
    for step, _ in prepared.values():
        step()
    for _ in range(rounds):
        for name, (step, _) in prepared.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    return [
        Figure(size.width, *name, 1e3 * statistics.median(taken), 1e3 * min(taken), prepared[name][1])
        for name, taken in seconds.items()
    ]


def best(figures: list[Figure], contestants: list[str]) -> Figure:
    return min((figure for figure in figures if figure.contestant in contestants), key=lambda f: f.median_ms)


def table(size: Size, figures: list[Figure]) -> str:
    """One size's medians in milliseconds, and the ratio of the fastest peer to ours, each at its best precision."""
    fastest, own, bound = (best(figures, names) for names in (RIVALS, [OURS], [BOUND]))
    windows = f"windows of {size.length}, batch {size.rows}, vocabulary {size.vocabulary}"
    lines = [
        f"{size.layers} layers × {size.width}, {windows}",
        "",
        "| | float32, ms | bfloat16, ms |",
        "|---|---:|---:|",
    ]
    for contestant in CONTESTANTS:
        ms = [f"{figure.median_ms:.1f}" for figure in figures if figure.contestant == contestant]
        lines.append(f"| {contestant} | {' | '.join(ms)} |")
    ratio, most = fastest.median_ms / own.median_ms, fastest.median_ms / bound.median_ms
    where = f"{fastest.contestant} in {fastest.precision}"
    lines += ["", f"{ratio:.2f} times the fastest peer ({where}); the products alone would be {most:.2f} times.", ""]
    return "\n".join(lines)


def circumstances() -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpus = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    packages = ("torch", "transformers", "litgpt", "x-transformers")
    return {
        "date": date.today().isoformat(),
        "command": " ".join(["python", "benchmarks/model.py", *sys.argv[1:]]),
        "cpu": f"{cpus[0]}, {len(cpus)} cores" if cpus else platform.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in packages},
        "load_before": os.getloadavg(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, nargs="+", default=[size.width for size in SIZES], help="widths")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, help="torch's own choice unless given")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    enter_peers()

    import torch
    import transformers

    sys.path.insert(0, str(ROOT))
    transformers.logging.set_verbosity_error()
    if given.threads:
        torch.set_num_threads(given.threads)
    facts, figures = circumstances(), []
    for size in SIZES:
        if size.width in given.shapes:
            measured = measure(size, given.rounds)
            figures += measured
            print(table(size, measured), flush=True)
    facts["load_after"] = os.getloadavg()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if given.json:
        given.json.write_text(json.dumps({**facts, "figures": [asdict(figure) for figure in figures]}, indent=1))


if __name__ == "__main__":
    main()
