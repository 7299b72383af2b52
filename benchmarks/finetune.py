"""A finetuning step beside the plain loop of transformers, and of transformers with peft's LoRA.

    OMP_NUM_THREADS=1 python benchmarks/finetune.py [--steps 30] [--rounds 5] [--width 256] [--layers 4]

The same BERT classifier from the same folder, the same batches, AdamW and clip. Ours is the whole of `scaling finetune`
between its first and its last logged step; theirs has no log, no evaluation and no checkpoint. Rounds alternate, and
the least of each counts, since a busy machine only adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import LoraConfig, get_peft_model
from train import framed

from scaling.ledger import Ledger
from scaling.training.experiment import Experiment, assemble
from scaling.training.finetune import compose
from scaling.training.machine import flushed, keep_freed

RANK = 8
TUNING = {"full": [], "LoRA": [f"tuning={{kind: LoRA, rank: {RANK}, targets: [query, value]}}"]}


def base(folder: Path, width: int, layers: int, length: int) -> None:
    config = transformers.BertConfig(
        vocab_size=4096,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


def experiment(folder: Path, tuning: str, length: int, rows: int, steps: int, seed: int) -> Experiment:
    words = [
        f"data.length={length - 2}",
        f"size.length={length}",
        f"train.batch={rows}",
        f"trainer.max_steps={steps}",
        "model.head.dropout=0",
        "evaluate.points=1",
        "log.every=1",
        "log.wandb=disabled",
        "train.checkpoint_every=1000000",
        f"seed={seed}",
    ]
    return assemble(compose(str(folder / "base"), "which_language", [*words, *TUNING[tuning]], runs=folder / "runs"))


def theirs(folder: Path, tuning: str, one: Experiment) -> float:
    """Milliseconds of a step of the plain loop."""
    keep_freed()
    model: Any = transformers.BertForSequenceClassification.from_pretrained(folder / "base", num_labels=2)
    model.resize_token_embeddings(one.config["size.vocabulary"])
    if tuning == "LoRA":
        lora = LoraConfig(r=RANK, lora_alpha=16, target_modules=["query", "value"], task_type="SEQ_CLS")
        model = get_peft_model(model, lora)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    batches = [one.batches.batch(step) for step in range(one.steps)]
    started = 0.0
    for step, batch in enumerate(batches):
        if step == 1:
            started = time.perf_counter()
        assert batch.labels is not None
        mask = torch.ones_like(batch.tokens) if batch.documents is None else (batch.documents > 0).long()
        loss = model(input_ids=batch.tokens, attention_mask=mask, labels=batch.labels.flatten()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return 1000 * (time.perf_counter() - started) / (len(batches) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=16)
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base(folder / "base", given.width, given.layers, given.length)
        ledger = Ledger.create(folder / "runs")
        for tuning in TUNING:
            own, other = [], []
            for seed in range(given.rounds):
                one = experiment(folder, tuning, given.length, given.rows, given.steps, seed)
                with flushed():
                    other.append(theirs(folder, tuning, one))
                own.append(framed(one, ledger))
            print(f"{tuning}: {min(own):.1f} ms a step, theirs {min(other):.1f} ms: {min(other) / min(own):.2f} times")


if __name__ == "__main__":
    main()
