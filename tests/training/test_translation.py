"""A small translation, end to end: two files, a run, its BLEU, the mean of its checkpoints, several runs together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import scaling
from scaling.cli import main
from scaling.config import load
from scaling.errors import ScalingError
from scaling.interop.run import averaged, read
from scaling.training.run import train

SMALL = [
    *("size={width: 16, layers: 1, heads: 2, length: 32, vocabulary: null}", "objective=Answer", "log.wandb=disabled"),
    *(
        "train.batch={tokens: 256}",
        "trainer.max_steps=12",
        "train.checkpoint_every=3",
        "train.keep=3",
        "evaluate.points=1",
    ),
    *("evaluate.windows=null", "schedule.warmup=2", "optimizer={kind: Adam, lr: 1e-2}"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A ledger with a Transformer and a GRU with attention, trained on sixty pairs."""
    folder = tmp_path_factory.mktemp("translation")
    words = {"ein": "one", "hund": "dog", "haus": "house", "rot": "red", "gross": "big"}
    pairs = [[list(words)[(n * step) % 5] for step in range(1, 3 + n % 4)] for n in range(60)]
    (folder / "a.de").write_text("".join(f"{' '.join(pair)} {n}\n" for n, pair in enumerate(pairs)))
    (folder / "a.en").write_text("".join(f"{' '.join(words[w] for w in pair)} {n}\n" for n, pair in enumerate(pairs)))
    data = [
        *("data=translate_multi30k_de_en", "data.layout=parallel", "data.columns=[de, en]", "data.validation=0.3"),
        *(
            f"data.files={{train: [{folder / 'a.de'}, {folder / 'a.en'}]}}",
            "data.tokenizer=Byte",
            f"runs={folder / 'r'}",
        ),
    ]
    return folder / "r", [train(load(model, [*SMALL, *data]))["run"] for model in ("vaswani", "gru_attention")]


def test_a_run_is_scored_by_beam_search_as_it_was_at_its_end(runs):
    for run in runs[1]:
        scored = scaling.evaluate(run, runs=runs[0])
        assert scored.signature is not None
        assert "tok:13a" in scored.signature
        assert (scored.average, list(scored.ensemble), scored.paired) == (None, [], None)
        assert scored.examples > 10


def test_the_mean_of_checkpoints_is_scored(runs):
    folder, (run, _) = runs
    mean = averaged(run, folder, 3).described.tensors
    each = [read(run, folder, step).described.tensors for step in (6, 9, 12)]
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, sum(own[name] for own in each) / 3)
    assert scaling.evaluate(run, runs=folder, average=3).average == 3
    with pytest.raises(ScalingError, match=r"average=50: the run has \d checkpoints"):
        scaling.evaluate(run, runs=folder, average=50)


def test_two_runs_write_together_and_are_compared(runs, capsys):
    folder, (one, two) = runs
    words = ["evaluate", one, "--ensemble", two, "--paired-bootstrap", two, "--json", f"runs={folder}"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ensemble"] == [two]
    paired = document["paired"]
    assert paired["against"] == two
    assert paired["difference"] == pytest.approx(document["score"] - paired["score_against"], abs=1e-9)
    assert paired["interval"][0] <= paired["difference"] <= paired["interval"][1]
    assert main(["evaluate", one, "--paired-bootstrap", two, f"runs={folder}"]) == 0
    assert "on the same examples" in capsys.readouterr().out


def test_sentences_of_one_file_are_translated(runs):
    folder, (run, _) = runs
    source = folder.parent / "a.de"
    written = scaling.predict(run, source, runs=folder).values
    assert len(written) == 60
    table = folder.parent / "new.jsonl"
    table.write_text("".join(f"{json.dumps({'de': line})}\n" for line in source.read_text().splitlines()))
    assert scaling.predict(run, table, runs=folder).values == written
    one = folder.parent / "one.txt"
    one.write_text(source.read_text().splitlines()[0])
    assert len(scaling.predict(run, one, runs=folder)) == 1
