"""A study through this pipeline beside the same runs by a script of the usual kind, and two workers beside one.

    python benchmarks/study.py [--study quickstart] [--rounds 1] [--sizes 0] [--shrink 1]

The usual script: one process with all threads, transformers' GPT-2 of the same width, depth, heads and vocabulary, a
plain loop with AdamW, and one full run for each budget. Both take the same tokens, and read the same held-out windows.
`--shrink 20` takes a twentieth of each budget, to try it out; figures want an idle machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scaling.config.strict_yaml import quantity
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import read
from scaling.studies.scheduler import train
from scaling.training.experiment import Experiment

QUIET = ("log.wandb=disabled",)


def planned(study: str, shrink: int, sizes: int, folder: Path) -> Plan:
    """The study's plan with a share of its tokens, and its first sizes alone where that is asked."""
    question = read(study)
    both = (question.grid, question.held_out)
    parts = [dict(part) for one in both for part in ([one] if isinstance(one, Mapping) else one) if part]
    if sizes:
        parts = [{**parts[0], "size": parts[0]["size"][:sizes]}]
    for part in parts:
        part["train.tokens"] = [int(quantity(str(tokens)) or tokens) // shrink for tokens in part["train.tokens"]]
    warmup = [] if shrink == 1 else ["schedule.warmup=2"]
    return plan(replace(question, grid=parts, held_out={}, laws=()), [f"runs={folder}", *QUIET, *warmup])


def ours(study: str, shrink: int, sizes: int, workers: int | None) -> tuple[float, Plan]:
    """Seconds from the plan to the last result, the workers' imports among them."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = planned(study, shrink, sizes, Path(folder))
        ledger = found.ledger()
        enter(ledger, found)
        train(ledger, found, lambda _: None, workers=workers)
        seconds = time.perf_counter() - started
        assert all(ledger.result(one.run) is not None for one in found.runs)
        return seconds, found


def usual(study: str, shrink: int, sizes: int) -> float:
    """Seconds of the usual script, its imports among them: a process of its own, with all threads."""
    started = time.perf_counter()
    told = [study, str(shrink), str(sizes)]
    subprocess.run([sys.executable, __file__, "--usual", *told], check=True, env=dict(os.environ))
    return time.perf_counter() - started


def script(study: str, shrink: int, sizes: int) -> None:
    """What the usual script does."""
    with tempfile.TemporaryDirectory() as folder:
        for one in planned(study, shrink, sizes, Path(folder)).runs:
            _run(one.experiment)


def _run(one: Experiment) -> float:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    size = one.cost.shape
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=size.length,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=one.optimizer.lr)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: one.schedule.factor(step, one.steps))
    for step in range(one.steps):
        tokens = one.batches.batch(step).tokens
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    losses = []
    with torch.no_grad():
        batches, count = one.evaluation()
        for index in range(count):
            tokens = batches.batch(index).tokens
            losses.append(model(input_ids=tokens, labels=tokens).loss.item())
    return sum(losses) / len(losses)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="quickstart")
    parser.add_argument("--shrink", type=int, default=1, help="a share of each budget")
    parser.add_argument("--sizes", type=int, default=0, help="the first sizes alone; 0: all, and the held-out runs")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--usual", nargs=3, metavar=("STUDY", "SHRINK", "SIZES"), help=argparse.SUPPRESS)
    told = parser.parse_args(words)
    if told.usual:
        script(told.usual[0], int(told.usual[1]), int(told.usual[2]))
        return
    asked = (told.study, told.shrink, told.sizes)
    for number in range(told.rounds):
        seconds, found = ours(*asked, None)
        plain = usual(*asked)
        print(f"round {number}: {len(found.runs)} runs here {seconds:.1f} s, by the usual script {plain:.1f} s")
        print(f"  {plain / seconds:.2f} times as fast")
    small = (told.study, told.shrink, told.sizes or 2)
    one, two = ours(*small, 1)[0], ours(*small, 2)[0]
    print(f"the smallest {small[2]} sizes: one worker {one:.1f} s, two workers {two:.1f} s: {one / two:.2f} times")


if __name__ == "__main__":
    main()
