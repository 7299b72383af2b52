"""Time and peak memory of each token mixer by the length of the text, at equal tokens, and how both grow.

    python benchmarks/length.py [--forms] [--lengths 512 … 16384] [--methods NAME …] [--write docs/results/long]

One mixer with its projections, float32, one thread. Each measurement is a process of its own: CPU time is the minimum
of the turns, memory is the peak of one pass above what the process held before. Forward and backward (training),
and forward alone (inference). Exponents are those of one text: the slope of log cost at equal tokens on log length,
plus one, from 1,024 tokens on, with a 95% interval. --write makes length.json, length.md and length.png there; --read
takes what was measured before. --forms measures one window's attention, without projections, in the forms of
Longformer's Figure 1 (a loop over diagonals, chunks, a fused kernel) and over the whole square, and writes forms.json
and so on.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import stats
from torch.nn import functional

from scaling.base.batch import Batch
from scaling.config.schema import build
from scaling.config.shape import Shape
from scaling.model.context import Context, Mask, Notes, Places
from scaling.model.mixer.attention import WAYS, attend
from scaling.training.machine import processor

WIDTH, HEADS = 256, 4
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
FIRST = 1024  # of the lengths that exponents are fitted to
DENSE = {"Causal": "dense, looks back", "Bidirectional": "dense, sees all"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    DENSE["Causal"]: ("Causal", {"kind": "Attention"}),
    "block-local 256": ("Causal", {"kind": "BlockLocal", "size": 256}),
    "Longformer 256": ("Causal", {"kind": "Longformer", "window": 256}),
    "BigBird 64": ("Causal", {"kind": "BigBird", "seed": 0, "block": 64, "blocks": 1, "random": 2}),
    "linear attention": ("Causal", {"kind": "LinearAttention"}),
    "Performer 128": ("Causal", {"kind": "Performer", "features": 128}),
    "memory-compressed 3": ("Causal", {"kind": "MemoryCompressed", "stride": 3}),
    DENSE["Bidirectional"]: ("Bidirectional", {"kind": "Attention"}),
    "Longformer 256, 1 global": ("Bidirectional", {"kind": "Longformer", "window": 256, "tokens": 1}),
    "BigBird 64, both sides": ("Bidirectional", {"kind": "BigBird", "seed": 0, "block": 64, "blocks": 1, "random": 2}),
    "linear attention, both sides": ("Bidirectional", {"kind": "LinearAttention"}),
    "Performer 128, both sides": ("Bidirectional", {"kind": "Performer", "features": 128}),
    "Linformer 128": ("Bidirectional", {"kind": "Linformer", "projected": 128}),
}
MMAP_THRESHOLD = -3  # of glibc's malloc.h
SCALE = (WIDTH // HEADS) ** -0.5
WINDOW, SQUARE = 256, 8192  # beyond so many tokens the whole square is not tried
PUBLISHED = {  # Wang et al. 2020, Table 3, k = 128: times less time and memory at inference than the dense one
    512: (1.5, 1.7),
    1024: (1.7, 3.0),
    2048: (2.6, 6.1),
    4096: (3.4, 14),
    8192: (5.5, 28),
    16384: (8.6, 56),
    32768: (13, 56),
}


def measure(method: str, length: int, tokens: int, turns: int) -> dict[str, Any]:
    """CPU seconds and bytes of training and of inference, in processes of their own."""
    row: dict[str, Any] = {"method": method, "length": length, "tokens": max(tokens, length)}
    for way in ("inference",) if method == "fused" else ("training", "inference"):
        for figure, of in (("seconds", _seconds), ("bytes", _peak)):
            # Each begins as a copy of this one, which holds no tensors.
            context = get_context("fork")
            here, there = context.Pipe(False)
            words = (there, of, method, length, max(1, tokens // length), way == "training", turns)
            process = context.Process(target=_measure, args=words)
            process.start()
            there.close()
            row[f"{way}_{figure}"] = here.recv()
            process.join()
    return row


def _measure(answer: Any, of: Any, method: str, length: int, rows: int, trains: bool, turns: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if of is _peak:  # tensors go back as they are freed: the heap would keep holes between them
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 20)
    run = (_form if method in FORMS else _mixer)(method, length, rows, trains)
    with torch.set_grad_enabled(trains):
        answer.send(of(run, turns))


def _seconds(run: Callable[[], None], turns: int) -> float:
    seconds = []
    for _ in range(turns):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def _peak(run: Callable[[], None], _: int) -> int:
    """The most bytes that the process holds in a pass, above those before it."""
    Path("/proc/self/clear_refs").write_text("5")  # its peak counts anew
    before = _bytes("VmRSS")
    run()
    return _bytes("VmHWM") - before


def _bytes(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def _shape(length: int) -> Shape:
    return Shape.of({"width": WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": length})


def _mixer(method: str, length: int, rows: int, trains: bool) -> Callable[[], None]:
    """One pass of a mixer."""
    pattern, line = METHODS[method]
    shape, sees = _shape(length), build("pattern", pattern)
    mixer, position = build("mixer", line, shape), build("position", "NoPosition", shape, sees)
    x = torch.randn(rows, length, WIDTH, requires_grad=trains)

    def run() -> None:
        places = Places.of(Batch(x, x))
        y = mixer(x, Context(Mask(sees, places, places), position, Notes()))
        if trains:
            y.backward(y.detach())
            x.grad = None

    _small(mixer, position, sees)
    return run


def _form(form: str, length: int, rows: int, trains: bool) -> Callable[[], None]:
    """One pass of a window's attention in one of its forms, without projections."""
    window = build("pattern", {"kind": "Window", "size": WINDOW, "pattern": "Causal"})
    q, k, v = (torch.randn(rows, length, HEADS, WIDTH // HEADS, requires_grad=trains) for _ in range(3))
    places = Places.of(Batch(q[:, :, 0], q[:, :, 0]))
    position = build("position", "NoPosition", _shape(length), window)
    context = Context(Mask(window, places, places), position, Notes())

    def run() -> None:
        y = FORMS[form](q, k, v, context)
        if trains:
            y.backward(y.detach())

    if form == "fused":
        run()  # compiles
    return run


def _square(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: Context) -> torch.Tensor:
    outside = ~torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril().triu(1 - WINDOW)
    scores = torch.einsum("bthd,bshd->bhts", q, k).mul(SCALE).masked_fill(outside, -math.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def _loop(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: Context) -> torch.Tensor:
    """A diagonal after another."""
    length = q.shape[1]
    keys, values = (functional.pad(x, (0, 0, 0, 0, WINDOW - 1, 0)) for x in (k, v))
    outside = torch.arange(length)[:, None] + torch.arange(WINDOW) < WINDOW - 1
    diagonals = [(q * keys[:, place : place + length]).sum(-1) for place in range(WINDOW)]
    weights = torch.stack(diagonals, -1).mul(SCALE).masked_fill(outside[:, None], -math.inf).softmax(-1)
    mixed = torch.zeros_like(v)
    for place, weight in enumerate(weights.unbind(-1)):
        mixed = torch.addcmul(mixed, weight[..., None], values[:, place : place + length])
    return mixed


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Context], torch.Tensor]] = {
    "whole square": _square,
    "loop": _loop,
    "chunks": partial(attend, scale=SCALE, dropout=0.0),  # as the package computes it on a CPU
    # As on CUDA, by FlexAttention, which has no backward pass on a CPU.
    "fused": lambda q, k, v, context: WAYS["flex"](q, k, v, context, SCALE, 0.0),
}
WHOLE = "whole square"


def _small(mixer: Any, position: Any, sees: Any) -> None:
    """What torch sets up once, on a short text."""
    x = torch.zeros(1, 256, WIDTH, requires_grad=True)
    places = Places.of(Batch(x, x))
    mixer(x, Context(Mask(sees, places, places), position, Notes())).sum().backward()


def exponent(rows: list[dict[str, Any]], figure: str) -> tuple[float, float] | None:
    """By how much a text's cost grows with its length, and the half-width of the 95% interval."""
    points = [(r["length"], r[figure] / r["tokens"]) for r in rows if r["length"] >= FIRST and figure in r]
    if len(points) < 3 or min(cost for _, cost in points) <= 0:
        return None
    x, y = np.log(np.array(points)).T
    slope, start = np.polyfit(x, y, 1)
    error = math.sqrt(((y - start - slope * x) ** 2).sum() / (len(x) - 2) / ((x - x.mean()) ** 2).sum())
    return 1 + float(slope), float(stats.t.ppf(0.975, len(points) - 2)) * error


def crossing(rows: dict[int, dict[str, Any]], dense: dict[int, dict[str, Any]], figure: str) -> str:
    """The first length from which on a method costs less than the dense one."""
    both = [length for length in sorted(rows) if figure in rows[length] and figure in dense.get(length, {})]
    less = [length for length in both if rows[length][figure] < dense[length][figure]]
    for length in less:
        if all(longer in less for longer in both if longer >= length):
            return f"{length:,}"
    return "never" if both else ""


FIGURES = ("training_seconds", "training_bytes", "inference_seconds", "inference_bytes")


def tables(measured: list[dict[str, Any]], note: str) -> str:
    by = {name: {row["length"]: row for row in measured if row["method"] == name} for name in (*METHODS, *FORMS)}
    by = {method: rows for method, rows in by.items() if rows}
    lengths = sorted({row["length"] for row in measured})
    lines, kind = [note, ""], "form" if by.keys() & set(FORMS) else "mixer"
    for way, title in (("training", "forward and backward"), ("inference", "forward alone")):
        for figure, unit in ((f"{way}_seconds", "CPU seconds"), (f"{way}_bytes", "peak MB")):
            tokens = min(row["tokens"] for row in measured)
            lines += [f"{unit} of {tokens:,} tokens, or of one text where that is longer, {title}:", ""]
            lines += [_row([kind, *(f"{n:,}" for n in lengths)]), _row(["---", *("--:" for _ in lengths)])]
            scale = 1 if figure.endswith("seconds") else 1e-6
            digits = 2 if scale == 1 else 0
            for method, rows in by.items():
                cells = [f"{rows[n][figure] * scale:.{digits}f}" if figure in rows.get(n, {}) else "" for n in lengths]
                lines += [_row([method, *cells])] if any(cells) else []
            lines.append("")
    lines += ["How cost grows with the length of a text, and where it falls below that of dense attention:", ""]
    titles = [f"{way} {what}" for way in ("training", "inference") for what in ("time", "memory")]
    lines += [_row([kind, *titles, "faster from", "smaller from"]), _row(["---", *("--:" for _ in range(6))])]
    for method, rows in by.items():
        fits = (exponent(list(rows.values()), figure) for figure in FIGURES)
        cells = ["" if fit is None else f"{fit[0]:.2f} ± {fit[1]:.2f}" for fit in fits]
        own = _dense(method)
        dense = by.get(own, {}) if own != method else {}
        cells += [crossing(rows, dense, figure) if dense else "" for figure in ("training_seconds", "training_bytes")]
        lines.append(_row([method, *cells]))
    lines += ["", *_linformer(by)]
    return "\n".join(lines).rstrip() + "\n"


def _dense(method: str) -> str:
    """What a method is cheaper than: dense attention that sees the same side, or the whole square."""
    return WHOLE if method in FORMS else DENSE[METHODS[method][0]]


def _linformer(by: dict[str, dict[int, dict[str, Any]]]) -> Iterable[str]:
    own, dense = by.get("Linformer 128", {}), by.get(DENSE["Bidirectional"], {})
    if not own or not dense:
        return
    yield from ("Linformer's inference beside the published ratios (Wang et al. 2020, Table 3, k = 128):", "")
    yield from (_row(["length", "less time", "published", "less memory", "published"]), _row(["--:"] * 5))
    for length in sorted(own.keys() & dense.keys()):
        ratios = [dense[length][figure] / max(1, own[length][figure]) for figure in FIGURES[3:]]
        seconds = dense[length]["inference_seconds"] / own[length]["inference_seconds"]
        published = PUBLISHED.get(length, (math.nan, math.nan))
        yield _row([f"{length:,}", f"{seconds:.1f}", f"{published[0]}", f"{ratios[0]:.1f}", f"{published[1]}"])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, key, title in zip(axes, FIGURES[:2], ("CPU seconds", "peak MB"), strict=True):
        for method in (*METHODS, *FORMS):
            rows = sorted(
                (row for row in measured if row["method"] == method and key in row), key=lambda row: row["length"]
            )
            if not rows:
                continue
            unit = 1 if key.endswith("seconds") else 1e-6
            costs = [row[key] * unit * measured[0]["tokens"] / row["tokens"] for row in rows]
            style = {"linewidth": 2.5 if method == _dense(method) else 1.2}
            dashes = "--" if METHODS.get(method, ("",))[0] == "Bidirectional" else "-"
            x = [row["length"] for row in rows]
            axis.plot(x, costs, dashes, marker=".", label=method, **style)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("length of a text, tokens")
        axis.set_title(f"{title} for each {measured[0]['tokens']:,} tokens, forward and backward")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--forms", action="store_true", help="of a window's attention, in place of mixers")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path)
    arguments = parser.parse_args()
    name = "forms" if arguments.forms else "length"
    if arguments.read is not None:
        document = json.loads(arguments.read.read_text())
        return _write(document["measured"], document["note"], arguments.write, name)
    what = f"A window of {WINDOW} tokens" if arguments.forms else "One mixer"
    note = (
        f"{what} of width {WIDTH} with {HEADS} heads, float32, one thread of {processor()} on a shared machine, "
        f"torch {torch.__version__}, minimum of {arguments.turns} turns, {time.strftime('%Y-%m-%d')}."
    )
    measured = []
    for method in FORMS if arguments.forms else arguments.methods:
        for length in arguments.lengths:
            if method == WHOLE and length > SQUARE:
                continue
            measured.append(measure(method, length, arguments.tokens, arguments.turns))
            print(json.dumps(measured[-1]), flush=True)
    _write(measured, note, arguments.write, name)


def _write(measured: list[dict[str, Any]], note: str, folder: Path | None, name: str) -> None:
    text = tables(measured, note)
    print(text)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({"note": note, "measured": measured}, indent=1) + "\n")
        (folder / f"{name}.md").write_text(text)
        draw(measured, folder / f"{name}.png")


if __name__ == "__main__":
    main()
