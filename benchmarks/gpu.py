"""What a GPU makes of this package, in one command: the tests that need one, then training beside a plain loop.

    python benchmarks/gpu.py [--out FOLDER] [--seconds 500] [--dry]

`make gpu` runs it and writes FOLDER/DATE.md (docs/results/gpu). Where there is no CUDA device it prints one line and
ends with code 2. What the time does not suffice for is named as not run. Sections:

- the tests marked `gpu`, in a process of their own;
- the highest rate of a bfloat16 product, to which all fractions below refer;
- small runs (`scaling train`, 1M parameters) side by side on one device: 1, 2, 4 and 8, the last with MPS too;
- one `scaling train` at 125M: the fraction of its time that evaluations take;
- training at 125M and 350M parameters (GPT-2's small and medium, windows of 1,024): this package's model with its own
  optimizer, clip and precision, and a plain loop over torch's own layers, in one process, as they are and compiled;
- attention alone: torch's fused kernel, and FlexAttention where the pattern is a window;
- steps of the small table's rows at 3M parameters;
- where there are several devices, one `scaling train` under DDP and one under FSDP2.

`--skip tests` leaves a section out.

`--dry` does the same on the CPU with the smallest sizes and no tests: what it prints is no measurement.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scaling.base.atomic import write
from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.training.experiment import Experiment, assemble
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights

ROOT = Path(__file__).resolve().parents[1]
STILL = [f"model.{piece}.dropout=0" for piece in ("embedding", "block.residual", "block.mixer")]
PRECISIONS = ("bf16-true", "bf16-mixed")
TABLE = "narang2021_cpu"

Step = Callable[[], object]


@dataclass(frozen=True)
class Scale:
    """What is measured, and how long: full on a device, dry on the CPU."""

    device: str
    models: tuple[tuple[str, str, int], ...]  # title, size, rows a batch
    product: int
    attention: tuple[int, int, int, int, int]  # rows, heads, length, head width, window
    table: tuple[str, ...]  # words of the table's rows
    rows: int  # of the table
    warm: int
    steps: int
    compiler: str
    side_by_side: tuple[str, int, tuple[int, ...]]  # size, steps, how many runs at once
    evaluated: tuple[str, int, int]  # size, rows a batch, steps


FULL = Scale(
    device="cuda",
    models=(("125M", "gpt2/small", 16), ("350M", "gpt2/medium", 8)),
    product=8192,
    attention=(8, 16, 4096, 64, 512),
    table=("size=ladder/3M",),
    rows=4,
    warm=3,
    steps=10,
    compiler="inductor",
    side_by_side=("ladder/1M", 400, (1, 2, 4, 8)),
    evaluated=("gpt2/small", 16, 100),
)
DRY = Scale(
    device="cpu",
    models=(("tiny", "ladder/tiny", 2),),
    product=64,
    attention=(1, 2, 32, 16, 8),
    table=("size=ladder/tiny",),
    rows=1,
    warm=1,
    steps=2,
    compiler="eager",
    side_by_side=("ladder/tiny", 20, (1, 2)),
    evaluated=("ladder/tiny", 2, 20),
)


class Clock:
    """How much of the command's time is left."""

    def __init__(self, seconds: float):
        self.ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.ends - time.monotonic()


def timed(scale: Scale, step: Step) -> float:
    """Median seconds of a step, after a few that are not counted."""

    def once() -> float:
        started = time.perf_counter()
        step()
        if scale.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    for _ in range(scale.warm):
        once()
    return statistics.median(once() for _ in range(scale.steps))


@contextmanager
def emptied(scale: Scale) -> Iterator[None]:
    """Free what a contestant leaves on the device, and forget what was compiled of it, before the next begins."""
    try:
        yield
    finally:
        gc.collect()
        torch.compiler.reset()
        if scale.device == "cuda":
            torch.cuda.empty_cache()


# Training


def words(size: str, rows: int, precision: str) -> list[str]:
    quiet = ["log.wandb=disabled", "evaluate.windows=16", "evaluate.points=1", "trainer.max_steps=100"]
    return [*STILL, f"size={size}", "data=synthetic", f"train.batch={rows}", f"trainer.precision={precision}", *quiet]


def optimised(loss: Callable[[], Tensor], weights: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
    loss().backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    optimizer.zero_grad()


def ours(scale: Scale, experiment: Experiment, tokens: Tensor, precision: str, compiled: bool) -> Step:
    """One update as training makes it, less its loader and log."""
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed).to(scale.device)
    weights = Weights(model, precision)  # type: ignore[arg-type]
    (optimizer,) = experiment.optimizer.make(weights.parameters, experiment.rate)
    trained = weights.trained
    if compiled:
        trained.compile(backend=scale.compiler)
    batch = Batch(tokens[:, :-1], tokens[:, 1:])

    def step() -> None:
        with torch.autocast(scale.device, torch.bfloat16, enabled=precision == "bf16-mixed"):
            loss = trained.loss(batch).total
        loss.backward()
        weights.gather()
        torch.nn.utils.clip_grad_norm_(weights.masters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        weights.round()

    return step


class Plain(nn.Module):
    """A decoder of torch's own layers: pre-norm blocks, learned positions, GeLU, head tied to the embedding."""

    def __init__(self, width: int, layers: int, heads: int, vocabulary: int, length: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1), targets.flatten())


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


def plain(scale: Scale, experiment: Experiment, tokens: Tensor, compiled: bool) -> Step:
    """The usual script: float32 weights, autocast, fused AdamW, clip."""
    size = experiment.config["size"]
    model = Plain(size["width"], size["layers"], size["heads"], size["vocabulary"], size["length"]).to(scale.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    call = torch.compile(model, backend=scale.compiler) if compiled else model

    def loss() -> Tensor:
        with torch.autocast(scale.device, torch.bfloat16):
            return call(tokens[:, :-1], tokens[:, 1:])

    return lambda: optimised(loss, list(model.parameters()), optimizer)


def training(scale: Scale, peak: float, clock: Clock) -> Iterator[str]:
    for title, size, rows in scale.models:
        yield from _of_one_size(scale, title, size, rows, peak, clock)


def _of_one_size(scale: Scale, title: str, size: str, rows: int, peak: float, clock: Clock) -> Iterator[str]:
    experiments = {precision: assemble(load("gpt2", words(size, rows, precision))) for precision in PRECISIONS}
    first = experiments[PRECISIONS[0]]
    length, vocabulary = first.config["size.length"], first.config["size.vocabulary"]
    tokens = torch.randint(vocabulary, (rows, length + 1), device=scale.device)
    yield f"### {title}: {size}, {rows} windows of {length}, vocabulary {vocabulary:,}\n"
    yield "| | compiled | ms a step | tokens per second | of the peak | GB |\n|---|---|---:|---:|---:|---:|"
    contestants: dict[str, Callable[[bool], Step]] = {
        f"scaling, {precision}": partial(ours, scale, experiment, tokens, precision)
        for precision, experiment in experiments.items()
    }
    contestants["plain torch, autocast"] = partial(plain, scale, first, tokens)
    for compiled in (False, True):
        for name, make in contestants.items():
            with emptied(scale):
                flops = first.cost.flops_train_per_token
                yield _row(scale, name, compiled, make, rows * length, flops, peak, clock)
    yield ""


def _row(
    scale: Scale,
    name: str,
    compiled: bool,
    make: Callable[[bool], Step],
    tokens: int,
    flops: float,
    peak: float,
    clock: Clock,
) -> str:
    word = "yes" if compiled else "no"
    if clock.left < 0:
        return f"| {name} | {word} | not run: out of time | | | |"
    if scale.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        seconds = timed(scale, make(compiled))
    except Exception as error:  # a compiler fails in many ways: what it says is the row
        return f"| {name} | {word} | failed: {_line(error)} | | | |"
    memory = torch.cuda.max_memory_allocated() / 1e9 if scale.device == "cuda" else 0.0
    rate = tokens / seconds
    return f"| {name} | {word} | {1e3 * seconds:.1f} | {rate:,.0f} | {rate * flops / peak:.1%} | {memory:.1f} |"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).replace("|", "/")[:160]


# The other sections


def tests(clock: Clock) -> str:
    """The last line of the tests that need a device."""
    files = sorted(str(file) for file in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in file.read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "gpu", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=max(30.0, 0.5 * clock.left)
        )
    except subprocess.TimeoutExpired:
        return "not finished in half of the time\n"
    lines = done.stdout.strip().splitlines() or ["no output"]
    failed = [f"- `{line}`" for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "\n".join([f"`{lines[-1]}`", "", *failed[:40], ""])


def best_product(scale: Scale) -> float:
    """FLOP/s of a bfloat16 product."""
    n = scale.product
    a, b = (torch.randn(n, n, device=scale.device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / timed(scale, lambda: a @ b)


def attention(scale: Scale, peak: float) -> Iterator[str]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    rows, heads, length, width, window = scale.attention
    shape = (rows, heads, length, width)
    q, k, v = (torch.randn(shape, device=scale.device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    near = torch.ones(length, length, device=scale.device, dtype=torch.bool).tril().triu(1 - window)
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, length, length, scale.device)
    flexible = torch.compile(flex_attention, backend=scale.compiler, dynamic=False) if scale.device == "cuda" else None

    def both(output: Callable[[], Tensor]) -> Step:
        return lambda: output().sum().backward()

    ways: dict[str, Step | None] = {
        "causal, torch's fused kernel": both(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        f"window of {window}, torch with a mask": both(lambda: F.scaled_dot_product_attention(q, k, v, near)),
        f"window of {window}, FlexAttention": None
        if flexible is None
        else both(lambda: flexible(q, k, v, block_mask=mask)),
    }
    yield f"{rows} × {heads} heads × {length} × {width}, bfloat16, forward and backward.\n"
    yield "| | ms | of the peak, were all pairs computed |\n|---|---:|---:|"
    for name, step in ways.items():
        if step is None:
            yield f"| {name} | needs a device | |"
            continue
        try:
            seconds = timed(scale, step)
        except (RuntimeError, NotImplementedError) as error:
            yield f"| {name} | failed: {_line(error)} | |"
            continue
        pairs = 14 * rows * heads * length * length * width  # two products forward, five backward
        yield f"| {name} | {1e3 * seconds:.2f} | {pairs / seconds / peak:.0%} |"
    yield ""


def small_table(scale: Scale, clock: Clock) -> Iterator[str]:
    from scaling.tables.table import read

    table = read(TABLE)
    yield f"Rows of `{TABLE}`, float32, a whole update.\n"
    yield "| row | ms a step |\n|---|---:|"
    for row in [row.name for row in table.rows][: scale.rows]:
        if clock.left < 0:
            yield f"| {row} | not run: out of time |"
            continue
        with emptied(scale):
            try:
                yield f"| {row} | {1e3 * timed(scale, of_table(scale, table, row)):.1f} |"
            except (RuntimeError, NotImplementedError) as error:
                yield f"| {row} | failed: {_line(error)} |"
    yield ""


def of_table(scale: Scale, table, row: str) -> Step:
    experiment = assemble(table.load(row, ["data=synthetic", "data.symbols=499", "data.order=1", *scale.table]))
    batch = experiment.batches.batch(0).to(scale.device)
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed).to(scale.device)
    weights = Weights(model, "32-true")
    optimizers = experiment.optimizer.make(weights.parameters, experiment.rate)

    def step() -> None:
        model.loss(batch).total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def launch(words: Sequence[str], folder: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A `scaling train` of its own, with its ledger in `folder`."""
    command = [sys.executable, "-m", "scaling", "train", *words, f"runs={folder}", "log.wandb=disabled"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **environment})


def results(processes: Sequence[subprocess.Popen[str]], folder: str, seconds: float) -> list[dict] | str:
    """The results of finished runs, or why there are none."""
    ends = time.monotonic() + seconds
    try:
        for process in processes:
            _, messages = process.communicate(timeout=max(1.0, ends - time.monotonic()))
            if process.returncode:
                return "failed: " + (messages.strip().splitlines() or ["no message"])[-1][:160]
    except subprocess.TimeoutExpired:
        return "not finished in time"
    finally:
        for process in processes:
            process.kill()
    return [json.loads(file.read_text()) for file in Path(folder).glob("store/*/result.json")]


def rates(folder: str) -> list[float]:
    """Each run's median tokens per second while it trained, by its log."""
    logs = Path(folder).glob("store/*/log.jsonl")
    lines = ([json.loads(line) for line in log.read_text().splitlines()] for log in logs)
    return [
        statistics.median([line["tokens_per_second"] for line in log if line.get("tokens_per_second")]) for log in lines
    ]


@contextmanager
def shared_by_mps() -> Iterator[dict[str, str] | None]:
    """The environment of processes that share the device through MPS; None where there is no such daemon."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **own}
        started = subprocess.run([control, "-d"], env=environment, capture_output=True, check=False)
        try:
            yield None if started.returncode else own
        finally:
            subprocess.run([control], input="quit\n", text=True, env=environment, capture_output=True, check=False)


def side_by_side(scale: Scale, clock: Clock) -> Iterator[str]:
    """Runs of `scaling train` that share one device."""
    size, steps, counts = scale.side_by_side
    yield f"{size}, {steps} steps of 64 windows, as `scaling train` runs them. Seconds include start and end.\n"
    yield "| runs at once | tokens per second, all | relative to one | seconds |\n|---|---:|---:|---:|"
    first = 0.0
    with shared_by_mps() as mps:
        for name, count, environment in [
            *((f"{count}", count, {}) for count in counts),
            (f"{counts[-1]}, MPS", counts[-1], mps),
        ]:
            if environment is None:
                yield f"| {name} | not run: no MPS daemon could be started | | |"
                continue
            with tempfile.TemporaryDirectory() as folder:
                words = ["decoder", f"size={size}", "data=synthetic", f"trainer.max_steps={steps}", "train.batch=64"]
                words += ["evaluate.windows=64", "evaluate.points=1", "trainer.devices=1", "log.every=50"]
                started = time.monotonic()
                runs = [launch([*words, f"seed={seed}"], folder, environment) for seed in range(count)]
                done = results(runs, folder, clock.left)
                seconds = time.monotonic() - started
                rate = 0.0 if isinstance(done, str) else sum(rates(folder))
            if isinstance(done, str):
                yield f"| {name} | {done} | | |"
                continue
            first = first or rate
            yield f"| {name} | {rate:,.0f} | {rate / first:.2f} | {seconds:.0f} |"
    yield ""


def evaluated(scale: Scale, clock: Clock) -> Iterator[str]:
    """One run under each precision, and the fraction of its time that is not training."""
    size, rows, steps = scale.evaluated
    yield f"`scaling train gpt2 size={size}`, {steps} steps of {rows} windows, evaluations as by default.\n"
    yield "| precision | tokens per second in training | fraction of the time that is no training |\n|---|---:|---:|"
    for precision in ("32-true", "bf16-mixed"):
        with tempfile.TemporaryDirectory() as folder:
            words = ["gpt2", f"size={size}", "data=synthetic", f"trainer.max_steps={steps}", f"train.batch={rows}"]
            words += [f"trainer.precision={precision}", "trainer.devices=1", "log.every=10"]
            done = results([launch(words, folder, {})], folder, clock.left)
            rate = 0.0 if isinstance(done, str) else rates(folder)[0]
        if isinstance(done, str):
            yield f"| {precision} | {done} | |"
            continue
        fraction = 1 - done[0]["tokens"] / rate / done[0]["circumstances"]["seconds"]
        yield f"| {precision} | {rate:,.0f} | {fraction:.0%} |"
    yield ""


def several(clock: Clock) -> Iterator[str]:
    """A run on all devices under each strategy, as a command."""
    count = torch.cuda.device_count()
    if count < 2:
        yield "One device: DDP and FSDP2 were not run.\n"
        return
    yield "| strategy | seconds of 30 steps, with start and end |\n|---|---:|"
    for strategy in ("ddp", "fsdp"):
        with tempfile.TemporaryDirectory() as folder:
            own = ["size=ladder/100M", "data=synthetic", "trainer.max_steps=30", "train.batch=64", "log.wandb=disabled"]
            command = [sys.executable, "-m", "scaling", "train", "decoder", *own, f"trainer.devices={count}"]
            command += [f"trainer.strategy={strategy}", "evaluate.windows=16", f"runs={folder}"]
            started = time.monotonic()
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=max(30.0, clock.left)
                )
            except subprocess.TimeoutExpired:
                yield f"| {strategy} | not finished in time |"
                continue
            seconds = time.monotonic() - started
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            yield f"| {strategy} | {seconds:.1f} |" if not done.returncode else f"| {strategy} | failed: {last[:160]} |"
    yield ""


def report(scale: Scale, clock: Clock, dry: bool, skipped: Sequence[str]) -> Iterator[str]:
    name = torch.cuda.get_device_name() if scale.device == "cuda" else "the CPU: a dry run, no measurement"
    yield f"# {date.today()}: {name}\n"
    command = "python benchmarks/gpu.py --dry" if dry else "make gpu"
    yield f"`{command}`, torch {torch.__version__}, Python {sys.version.split()[0]}.\n"
    peak = best_product(scale)
    table = "## The small table at 3M\n" if not dry else "## The small table\n"
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "tests": lambda: iter(["## Tests\n", tests(clock)]),
        "peak": lambda: iter(["## The peak\n", peak_line(scale, peak)]),
        "side_by_side": lambda: chain(["## Small runs side by side\n"], side_by_side(scale, clock)),
        "evaluated": lambda: chain(["## A run with its evaluations\n"], evaluated(scale, clock)),
        "training": lambda: chain(["## Training\n", WHOLE_UPDATE], training(scale, peak, clock)),
        "attention": lambda: chain(["## Attention\n"], attention(scale, peak)),
        "table": lambda: chain([table], small_table(scale, clock)),
        "several": lambda: chain(["## Several devices\n"], several(clock)),
    }
    for section, lines in sections.items():
        if section not in skipped and not (dry and section == "tests"):
            yield from lines()


WHOLE_UPDATE = "A whole update: forward, backward, clip, optimizer. FLOPs are the model's products.\n"


def peak_line(scale: Scale, peak: float) -> str:
    return f"{peak / 1e12:,.3g} TFLOP/s: a product of {scale.product} × {scale.product} in bfloat16.\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "gpu", help="where DATE.md is written")
    parser.add_argument("--seconds", type=float, default=500, help="after which no further section begins")
    parser.add_argument("--dry", action="store_true", help="on the CPU, at the smallest sizes, without the tests")
    parser.add_argument("--skip", nargs="*", default=[], help="sections that are left out: tests, training, …")
    given = parser.parse_args(words)
    if not given.dry and not torch.cuda.is_available():
        print("gpu: there is no CUDA device on this machine; --dry shows what would be run", file=sys.stderr)
        return 2
    lines = []
    for line in report(DRY if given.dry else FULL, Clock(given.seconds), given.dry, given.skip):
        print(line, flush=True)
        lines.append(line)
    write(given.out / f"{date.today()}.md", "\n".join(lines).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
