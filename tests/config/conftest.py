from pathlib import Path
from textwrap import dedent

import pytest

SHIPPED = {
    "defaults": """
        size: tiny
        data: toy
        objective: {kind: Causal}
        optimizer: {kind: AdamW, lr: 1e-3, betas: [0.9, 0.95]}
        trainer: {max_steps: null, gradient_clip_val: 1.0}
        train: {tokens: 1M, batch: 8, compile: false}
        log: {tags: [], name: null}
        seed: 0
        runs: runs
        """,
    "model/plain": """
        model:
          kind: Decoder
          norm: {kind: LayerNorm, bias: true}
          position: {kind: Rotary, base: 10000}
          block: {channel: {kind: Dense, activation: ReLU}}
          block.norm: ${model.norm}
          stack.norm: ${model.norm}
        """,
    "model/gated": """
        base: plain
        size: big/one
        model.block.channel: {kind: Gated}
        """,
    "size/ladder": "tiny: {width: 16, heads: 2}\n1M: {width: 128, heads: 4}\n",
    "size/big": "one: {width: 512, heads: 8}\nshared: {width: 1}\n",
    "size/huge": "two: {width: 1024, heads: 8, head_width: 64}\nshared: {width: 2}\n",
    "data/toy": "data: {kind: Synthetic, order: 2}\n",
    "data/text": "base: toy\ndata: {kind: Python}\nsize: {vocabulary: 512}\n",
    "table/paper": """
        base: model/gated
        table: {paper: a paper, columns: [Params]}
        rows:
          Vanilla: {}
          GeLU 0.5:
            model.block.channel.activation: GeLU
            table: {published: 1.5}
          Based: {base: plain}
          Bare: 5
        """,
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write files into an empty working folder, so that errors name them by their short paths."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return Path(name)

    return write


@pytest.fixture
def shelf(write, monkeypatch):
    """Write files next to a small set of shipped configs."""
    for name, text in SHIPPED.items():
        write(f"configs/{name}.yaml", text)
    monkeypatch.setattr("scaling.config.shipped", lambda: Path("configs"))
    return write
