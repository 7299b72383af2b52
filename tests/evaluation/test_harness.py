"""Tasks of lm-evaluation-harness: the numbers of its own `hf` on the exported run, and mistakes in one line."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

import scaling
from scaling.data.codec import Codec
from scaling.data.tokenizer import ByteBPE
from scaling.verbs.command_line import main
from tests.data.conftest import jsonl
from tests.evaluation.conftest import refused, untrained

pytest.importorskip("lm_eval")

WINDOW = 48  # which each report is longer than
TASKS: list[Any] = ["tasks/choose.yaml", "tasks/read.yaml", "tasks/write.yaml"]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A folder with models of random weights, as folders of ours, and the tasks of examples/harness."""
    folder = tmp_path_factory.mktemp("harness")
    shutil.copytree(Path(__file__).parents[2] / "examples" / "harness" / "tasks", folder / "tasks")
    reports, tokenizer, framed = folder / "tasks" / "reports.jsonl", folder / "tokenizer.json", folder / "framed.json"
    rows = [json.loads(line) for line in reports.read_text().splitlines()[:12]]
    jsonl(reports, [{**row, "report": row["report"] + " " * (n % 2)} for n, row in enumerate(rows)])
    Codec(ByteBPE(vocabulary=300).fit(row["report"] for row in rows)).save(tokenizer)
    framing = Codec.load(tokenizer).tokenizer
    framing.post_processor = TemplateProcessing("<bos> $A", "<bos> $A $B", [("<bos>", 1)])
    Codec(framing).save(framed)
    size = {"width": 32, "layers": 2, "length": WINDOW, "vocabulary": Codec.load(tokenizer).size}
    for name, ids in (("gpt2", {"start": 2}), ("llama", {"start": 1}), ("t5", {"start": 1}), ("bert", {})):
        own = framed if name == "llama" else tokenizer
        untrained(folder / name, name, {"pad": 0, "bos": 1, "eos": 2, **ids}, own, **size)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
        patched.chdir(folder)
        yield folder


@pytest.mark.parametrize("name", ["llama", "t5"])  # the tokenizer of the first puts <bos> before a text
def test_the_numbers_are_those_of_hf_on_the_exported_run(name, local):
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    assert main(["export", str(local / name), "--to", str(local / f"{name}-hf")]) == 0
    shots = None if name == "t5" else 2
    settings = {"device": "cpu", "dtype": "float32", "batch_size": 4, "max_length": WINDOW}
    model = HFLM.create_from_arg_obj({"pretrained": str(local / f"{name}-hf"), **settings})
    manager = TaskManager(include_defaults=False)
    hf: Any = simple_evaluate(model, tasks=TASKS, task_manager=manager, num_fewshot=shots, bootstrap_iters=100)
    ours = scaling.evaluate_harness(local / name, *TASKS, shots=shots)
    found = {(one["task"], one["index"]): one["responses"] for one in ours.scored}
    expected = {(task, one["doc_id"]): one["filtered_resps"] for task, each in hf["samples"].items() for one in each}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if key[0] == "weather_choose":
            assert [greedy for _, greedy in found[key]] == [greedy for _, greedy in values]
            assert [nats for nats, _ in found[key]] == pytest.approx([nats for nats, _ in values], abs=1e-4)
        elif key[0] == "weather_read":
            assert found[key] == pytest.approx(values, abs=1e-4)
        elif name != "t5":
            assert found[key] == values
        else:  # hf's encoder-decoder writes more tokens than it is asked for, as many as its source has
            assert values[0].startswith(found[key][0])
    assert len({str(value) for key, value in found.items() if key[0] == "weather_write"}) > 3
    for task, values in hf["results"].items():
        for metric, value in values.items():
            exact = isinstance(value, str) or metric.startswith(("acc", "exact_match"))
            assert ours.results[task][metric] == (value if exact else pytest.approx(value, rel=1e-5)), metric
    assert ours.n_shot == hf["n-shot"]
    assert 0 < ours.results["weather_choose"]["acc,none"] < 1


def test_the_command_prints_the_harness_own_table_and_nothing_else(local, tmp_path, capsys):
    from lm_eval.utils import make_table

    (local / "tasks" / "twice.yaml").write_text("include: choose.yaml\ntask: twice\n")
    group = "group: both\ntask: [weather_choose, twice]\naggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    (local / "tasks" / "group.yaml").write_text(group)
    words = ["evaluate-harness", "gpt2", "tasks/group.yaml", "tasks/read.yaml", "--limit=5"]
    assert main(words) == 0
    printed, leaked = capsys.readouterr()
    assert main([*words, "--json", "--to", str(tmp_path / "each.jsonl")]) == 0
    written, also = capsys.readouterr()
    assert leaked == also == ""
    document = json.loads(written)
    parts = (({**document, "n-shot": document["n_shot"]}, column) for column in ("results", "groups"))
    tables = "\n".join(make_table(*part).rstrip() for part in parts)
    assert printed == f"run gpt2, lm_eval {document['lm_eval_version']}\n{tables}\n"
    rows = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    right = [row["metrics"]["acc"] for row in rows if row["task"] == "weather_choose"]
    for task in ("both", "weather_choose", "twice"):
        assert document["results"][task]["acc,none"] == sum(right) / 5


def test_what_is_set_replaces_how_a_task_writes(local):
    def written(**settings):
        ours = scaling.evaluate_harness(local / "gpt2", TASKS[2], limit=6, until=[], **settings)
        return [one["responses"][0] for one in ours.scored]

    greedy, short, sampled = written(), written(max_gen_toks=3), written(do_sample=True, temperature=2.0)
    assert all(len(text) > len(first) for text, first in zip(greedy, short))
    assert sampled == written(do_sample=True, temperature=2.0) != greedy


def test_a_mistake_is_one_line(local, capsys, monkeypatch):
    (local / "column.yaml").write_text("include: tasks/choose.yaml\ntask: column\ndoc_to_text: '{{tex}}'\n")
    (local / "unsafe.yaml").write_text("include: tasks/choose.yaml\ntask: unsafe\nunsafe_code: true\n")
    for words, message in {
        "bert tasks/choose.yaml": "an encoder sees what comes after a token",
        "gpt2 tasks/write.yaml max_gen_toks=48": "write max_gen_toks=23 behind the command",
        "gpt2 tasks/write.yaml num_beams=4": "generation_kwargs.num_beams",
        "gpt2 column.yaml": "the harness stopped: UndefinedError: 'tex' is undefined",
        "gpt2 unsafe.yaml": "which is marked as unsafe",
        # The registry's files are searched before it is read.
        "gpt2 tasks/choose.yaml hellaswa": "TASK='hellaswa': the harness has no such task; did you mean 'hellaswag'?",
    }.items():
        assert message in refused(capsys, "evaluate-harness", *words.split())
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    error = refused(capsys, "evaluate-harness", "gpt2", "arc_easy")
    assert error.endswith("it needs the package lm_eval; pip install 'scaling[harness]'")
