"""Tasks of lm-evaluation-harness: the numbers of its own `hf` on the exported run, and mistakes in one line."""

import json
import random
import sys
from textwrap import dedent
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

import scaling
from scaling.cli import main
from scaling.data.codec import Codec
from scaling.data.tokenizer import ByteBPE
from tests.evaluation.conftest import jsonl, refused, sentence, untrained

pytest.importorskip("lm_eval")

WINDOW = 48
COMMON = "dataset_path: json\ndataset_kwargs: {data_files: {test: ROWS, train: ROWS}}\ntest_split: test\n"
TASKS = {
    "choice": """
        output_type: multiple_choice
        doc_to_text: "{{text}}"
        doc_to_choice: "{{options}}"
        doc_to_target: label
        fewshot_split: train
        metric_list: [{metric: acc}, {metric: acc_norm}]
    """,
    "rolling": """
        output_type: loglikelihood_rolling
        num_fewshot: 0
        doc_to_text: ""
        doc_to_target: "{{document}}"
        metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
    """,
    "writing": """
        output_type: generate_until
        doc_to_text: "{{text}}"
        doc_to_target: "{{written}}"
        generation_kwargs: {until: [" go", "a k"], max_gen_toks: 12}
        metric_list: [{metric: exact_match}]
    """,
}
"""Three tasks; a document of the second is longer than the window."""


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A folder with models of random weights, as folders of ours, and the three tasks."""
    folder, draw = tmp_path_factory.mktemp("harness"), random.Random(2)
    tokenizer, framed = folder / "tokenizer.json", folder / "framed.json"
    Codec(ByteBPE(vocabulary=300).fit(" ".join(sentence(draw, 20)) for _ in range(200))).save(tokenizer)
    framing = Codec.load(tokenizer).tokenizer
    framing.post_processor = TemplateProcessing("<bos> $A", "<bos> $A $B", [("<bos>", 1)])
    Codec(framing).save(framed)
    size = {"width": 32, "layers": 2, "length": WINDOW, "vocabulary": Codec.load(tokenizer).size}
    for name, ids in (("gpt2", {"start": 2}), ("llama", {"start": 1}), ("t5", {"start": 1}), ("bert", {})):
        own = framed if name == "llama" else tokenizer
        untrained(folder / name, name, {"pad": 0, "bos": 1, "eos": 2, **ids}, own, **size)
    rows = []
    for _ in range(12):
        words, label = sentence(draw, 12), draw.randrange(3)
        options = [words[6:9], words[9:], draw.sample(words, 4)]
        document = " ".join(sentence(draw, draw.randrange(5, 90)))
        text = " ".join(words[: draw.randrange(1, 7)]) + draw.choice(["", " "])  # a space that the harness moves
        each = {"text": text, "options": [" ".join(option) for option in options], "label": label}
        rows.append({**each, "document": document, "written": "la"})
    file = jsonl(folder / "rows.jsonl", rows)
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: own_{name}\n{COMMON.replace('ROWS', file)}{dedent(text)}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
        patched.chdir(folder)
        yield folder


def theirs(folder, names, shots) -> Any:
    """What the harness's own model of transformers finds."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    settings = {"device": "cpu", "dtype": "float32", "batch_size": 4, "max_length": WINDOW}
    model = HFLM.create_from_arg_obj({"pretrained": str(folder), **settings})
    manager = TaskManager(include_defaults=False)
    results = simple_evaluate(model, tasks=[*names], task_manager=manager, num_fewshot=shots, bootstrap_iters=100)
    return {**(results or {})}


@pytest.mark.parametrize("name", ["llama", "t5"])  # the tokenizer of the first puts <bos> before a text
def test_the_numbers_are_those_of_hf_on_the_exported_run(name, local):
    assert main(["export", str(local / name), "--to", str(local / f"{name}-hf")]) == 0
    names, shots = [f"{task}.yaml" for task in TASKS], None if name == "t5" else 2
    hf = theirs(local / f"{name}-hf", names, shots)
    ours = scaling.evaluate_harness(local / name, *names, shots=shots)
    found = {(one["task"], one["index"]): one["responses"] for one in ours.scored}
    expected = {(task, one["doc_id"]): one["filtered_resps"] for task, each in hf["samples"].items() for one in each}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        if key[0] == "own_choice":
            assert [greedy for _, greedy in found[key]] == [greedy for _, greedy in values]
            assert [nats for nats, _ in found[key]] == pytest.approx([nats for nats, _ in values], abs=1e-4)
        elif key[0] == "own_rolling":
            assert found[key] == pytest.approx(values, abs=1e-4)
        elif name != "t5":
            assert found[key] == values
        else:  # hf's encoder-decoder writes more tokens than it is asked for, as many as its source has
            assert values[0].startswith(found[key][0])
    assert len({str(value) for key, value in found.items() if key[0] == "own_writing"}) > 3
    for task, values in hf["results"].items():
        for metric, value in values.items():
            exact = isinstance(value, str) or metric.startswith(("acc", "exact_match"))
            assert ours.results[task][metric] == (value if exact else pytest.approx(value, rel=1e-5)), metric
    assert ours.n_shot == hf["n-shot"]
    assert 0 < ours.results["own_choice"]["acc,none"] < 1


def test_the_command_prints_the_harness_own_table_and_nothing_else(local, tmp_path, capsys):
    from lm_eval.utils import make_table

    (tmp_path / "choice.yaml").write_text((local / "choice.yaml").read_text())
    (tmp_path / "twice.yaml").write_text("include: choice.yaml\ntask: twice\n")
    group = "group: both\ntask: [own_choice, twice]\naggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    (tmp_path / "group.yaml").write_text(group)
    words = ["evaluate-harness", "gpt2", str(tmp_path / "group.yaml"), "rolling.yaml", "--limit=5"]
    assert main(words) == 0
    printed, leaked = capsys.readouterr()
    assert main([*words, "--json", "--to", str(tmp_path / "each.jsonl")]) == 0
    written, also = capsys.readouterr()
    assert leaked == also == ""
    document = json.loads(written)
    parts = (({**document, "n-shot": document["n_shot"]}, column) for column in ("results", "groups"))
    tables = "\n".join(make_table(*part).rstrip() for part in parts)
    assert printed == f"run gpt2, lm_eval {document['lm_eval_version']}\n{tables}\n"
    assert document["n_samples"]["own_choice"] == {"original": 12, "effective": 5}
    rows = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().splitlines()]
    right = [row["metrics"]["acc"] for row in rows if row["task"] == "own_choice"]
    accuracies = {task: document["results"][task]["acc,none"] for task in ("both", "own_choice", "twice")}
    assert accuracies == dict.fromkeys(accuracies, sum(right) / 5)
    assert {(row["task"], row["index"]) for row in rows} == {
        (task, index) for task in ("own_choice", "twice", "own_rolling") for index in range(5)
    }


def test_what_is_set_replaces_how_a_task_writes(local):
    def written(**settings):
        ours = scaling.evaluate_harness(local / "gpt2", "writing.yaml", limit=6, until=[], **settings)
        return [one["responses"][0] for one in ours.scored]

    greedy, short, sampled = written(), written(max_gen_toks=3), written(do_sample=True, temperature=2.0)
    assert all(len(text) > len(first) and text.startswith(first) for text, first in zip(greedy, short))
    assert sampled == written(do_sample=True, temperature=2.0) != greedy


def test_a_mistake_is_one_line(local, capsys, monkeypatch):
    text = (local / "choice.yaml").read_text()
    (local / "column.yaml").write_text(text.replace("{{text}}", "{{tex}}"))
    (local / "unsafe.yaml").write_text(text + "unsafe_code: true\n")
    for words, message in {
        "bert choice.yaml": "an encoder sees what comes after a token",
        "gpt2 chioce.yaml": "there is no such file",
        "gpt2 choice.yaml max_gen_toks=4": "none of the tasks asks for a text",
        "gpt2 writing.yaml max_gen_toks=48": "write max_gen_toks=23 behind the command",
        "gpt2 writing.yaml num_beams=4": "generation_kwargs.num_beams",
        "gpt2 column.yaml": "the harness stopped: UndefinedError: 'tex' is undefined",
        "gpt2 unsafe.yaml": "which is marked as unsafe",
        # The registry's files are searched before it is read.
        "gpt2 choice.yaml hellaswa": "TASK='hellaswa': the harness has no such task; did you mean 'hellaswag'?",
    }.items():
        assert message in refused(capsys, "evaluate-harness", *words.split())
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    error = refused(capsys, "evaluate-harness", "gpt2", "arc_easy")
    assert error.endswith("it needs the package lm_eval; pip install 'scaling[harness]'")
