"""What documents cost: each token once, with the context that the rule states."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.cli import main
from scaling.data.codec import Codec
from scaling.evaluation.corpus import windows
from scaling.evaluation.generate import prompt
from tests.evaluation.conftest import WORDS, Ledger, sentence

IDS = {"start": 1, "bos": 1, "eos": 2}


def test_windows_score_each_token_once() -> None:
    text = list(range(10, 21))
    asked = [tuple(map(list, one)) for one in windows("decoder", IDS, text, None, 6, 3)]
    assert asked == [
        ([1], [10, 11, 12, 13, 14, 15]),
        ([12, 13, 14, 15], [16, 17, 18]),
        ([14, 15, 16, 17, 18], [19, 20]),
    ]
    assert all(len(context) + len(part) - 1 <= 6 for context, part in asked)
    asked = [tuple(map(list, one)) for one in windows("encoder_decoder", IDS, text[:5], None, 4, 2)]
    assert asked == [([2], [10, 11]), ([10, 11, 2], [12, 13]), ([11, 12, 13, 2], [14])]
    assert list(windows("encoder_decoder", IDS, [5, 2], [7, 2], 4, 2)) == [((7, 2), (5, 2))]
    assert list(windows("decoder", IDS, [5, 2], [7, 2], 4, 2)) == [((7, 2, 1), (5, 2))]


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_corpus_costs_what_its_documents_do(family: str, language: Ledger, tmp_path: Path) -> None:
    found = scaling.evaluate_corpus(language.ids[family], runs=language.runs)
    assert isinstance(found, scaling.Evaluation)
    manifest = json.loads(next((language.runs.parent / "data").glob("*/manifest.json")).read_text())
    (shard,) = manifest["splits"]["validation"]["text"]
    assert (found.documents, found.tokens, found.bytes) == (shard["documents"], shard["tokens"], shard["bytes"])
    assert found.nats == pytest.approx(sum(one["nats"] for one in found.scored))
    assert found.metrics["bits_per_byte"] == pytest.approx(found.nats / math.log(2) / found.bytes)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.nats / found.tokens))
    assert all(low < found.metrics[name] < high for name, (low, high) in found.intervals.items())
    if family == "decoder":  # no document sees another one, and each begins behind the start token
        model = scaling.load(language.ids[family], runs=language.runs)
        assert isinstance(model.tokenizer, Codec)
        eos, costs = model.tokenizer.specials["eos"], []
        for line in Path(language.data[0]).read_text().splitlines():
            ids = [*model.tokenizer.encode([json.loads(line)["text"]])[0], eos]
            if len(ids) in {one["tokens"] for one in found.scored[:3]}:
                with torch.no_grad():
                    logits = model.module.logits(prompt(torch.tensor([[eos, *ids[:-1]]])))
                costs.append(-float(logits.log_softmax(-1)[0].gather(-1, torch.tensor(ids)[:, None]).double().sum()))
        assert all(np.abs(np.array(costs) - one["nats"]).min() < 1e-3 for one in found.scored[:3])
        assert found.metrics["nats_per_token"] < 0.8 * math.log(len(WORDS))  # it knows the language


def test_a_long_document_is_read_in_windows_and_written_to_a_file(
    language: Ledger, tmp_path: Path, capsys: Any
) -> None:
    draw = random.Random(2)
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"text": " ".join(sentence(draw, n))}) + "\n" for n in (150, 5, 90, 70)))
    tokenizer = next((language.runs.parent / "data").glob("*/tokenizer.json"))
    words = ["data.validation=0.5", f"runs={language.runs}"]
    run, to = language.ids["decoder"], tmp_path / "each.csv"
    capsys.readouterr()
    assert main(["evaluate-corpus", run, str(long), *words]) == 2
    told = capsys.readouterr().err
    assert "not been prepared with the run's tokenizer" in told
    assert f"data.tokenizer='{{kind: File, path: {tokenizer}}}'" in told
    assert main(["data", "prepare", str(long), f"data.tokenizer={{kind: File, path: {tokenizer}}}", *words]) == 0
    capsys.readouterr()
    scored = ["evaluate-corpus", run, str(long), *words, "--stride", "20", "--split", "train"]
    assert main([*scored, "--to", str(to)]) == 0
    assert "bits_per_byte" in capsys.readouterr().out
    rows = list(csv.DictReader(to.open()))
    assert main([*scored, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nats"] == pytest.approx(sum(float(row["nats"]) for row in rows))
    assert max(int(row["tokens"]) for row in rows) > 64
    for row in rows:
        assert float(row["bits_per_byte"]) == pytest.approx(float(row["nats"]) / math.log(2) / int(row["bytes"]))
    own = scaling.evaluate_corpus(run, str(long), *words[:1], stride=64, split="train", runs=language.runs)
    assert own.tokens == document["tokens"]
    assert own.nats != document["nats"]  # another context


BAD = {
    "another tokenizer": (["OWN", "data.tokenizer={kind: ByteBPE, vocabulary: 290}"], "prepared with the run"),
    "no text": (["synthetic"], "it is no corpus of texts"),
    "a test split": (["--split", "test"], "split='test': expected one of validation, train"),
    "a stride beyond the window": (["--stride", "65"], "it is from 1 to the window of 64"),
    "masking of a decoder": (["--masking", "word"], "does not apply to a run of the family decoder"),
    "no document": (["--limit", "0"], "expected a positive whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line(case: str, language: Ledger, capsys: Any) -> None:
    words, told = BAD[case]
    words = [language.data[0] if word == "OWN" else word for word in words]
    capsys.readouterr()
    assert main(["evaluate-corpus", language.ids["decoder"], *words, f"runs={language.runs}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
