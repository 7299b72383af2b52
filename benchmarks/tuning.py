"""What a step of each way of tuning costs: milliseconds, and the memory beside that of the process before it.

    OMP_NUM_THREADS=1 python benchmarks/tuning.py [--steps 40] [--width 256] [--layers 6] [--length 256] [--rows 16]

GPT-2 with a class head (its layers have biases), on rows of the task which_language; each way is a process of its own
and goes through `scaling.train`. The time is the median of the logged steps, the memory the process's peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

WAYS = {
    "full": [],
    "last two layers": ["train.parts={last: 2}"],
    "last layer": ["train.parts={last: 1}"],
    "linear probe": ["train.parts=head"],
    "BitFit": ["tuning=BitFit"],
    "LoRA r=1": ["tuning={kind: LoRA, rank: 1, alpha: 2, targets: [query, value]}"],
    "LoRA r=4": ["tuning={kind: LoRA, rank: 4, alpha: 8, targets: [query, value]}"],
    "LoRA r=16": ["tuning={kind: LoRA, rank: 16, alpha: 32, targets: [query, value]}"],
    "prefix of 16": ["tuning={kind: Prefix, length: 16}"],
    "prompt of 16": ["tuning={kind: Prompt, length: 16}"],
    "adapters of 16": ["tuning={kind: Adapters, bottleneck: 16}"],
}
TINY = ["size={width: 16, layers: 3, heads: 1, length: 32}", "data.length=30", "trainer.max_steps=2"]


def kilobytes(name: str) -> int:
    """A line of what Linux tells of this process's memory."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measured(words: list[str]) -> dict[str, float]:
    """Of this process, which has trained a tiny model before, so that what is loaded once is not counted."""
    import scaling

    scaling.train("gpt2", *words, *TINY, progress=False)
    before = kilobytes("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak from here on
    run = scaling.train("gpt2", *words, progress=False)
    logged = run.log.dropna(subset=["tokens_per_second"])
    seconds = logged["tokens"] / logged["step"] / logged["tokens_per_second"]
    return {"ms": 1e3 * statistics.median(seconds), "mb": (kilobytes("VmHWM") - before) / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 40), ("width", 256), ("layers", 6), ("length", 256), ("rows", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--way", help="of a process that measures one")
    given = parser.parse_args()
    if given.way is None:
        for way in WAYS:
            done = subprocess.run([sys.executable, *sys.argv, "--way", way], check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"| {way} | {found['ms']:.0f} | {found['mb']:,.0f} |", flush=True)
        return
    size = f"{{width: {given.width}, layers: {given.layers}, heads: {given.width // 64}, length: {given.length}}}"
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *(f"size={size}", "data=which_language", f"data.length={given.length - 2}", "objective=Answer"),
            *("model.head={kind: Sequence, classes: 2}", "model.tie=[]", f"trainer.max_steps={given.steps}"),
            *(f"train.batch={given.rows}", "train.checkpoint_every=1000000", "evaluate.points=1", "log.every=5"),
            *("log.wandb=disabled", f"runs={folder}", *WAYS[given.way]),
        ]
        print(json.dumps(measured(words)))


if __name__ == "__main__":
    main()
