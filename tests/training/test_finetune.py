"""A finetuning run is composed of a run and a task, trained, scored and asked for predictions, in every family."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from scaling import Predictions, config, evaluate, predict
from scaling.cli import main
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.training.finetune import compose
from scaling.training.run import train
from tests.training.conftest import Child, done, same
from tests.training.test_resume import in_save

FAMILIES = ("encoder", "decoder", "encoder_decoder")
SMALL = ["train.batch=8", "train.epochs=2", "train.checkpoint_every=3", "log.wandb=disabled", "optimizer.lr=0.01"]
ANIMALS, CITIES = ["cat", "dog", "fox", "hen"], ["rome", "oslo", "bern", "lima"]

TASKS: dict[str, dict[str, Any]] = {
    "class": {"text": "{text}", "labels": ["animal", "city"], "metric": "F1AndAccuracy"},
    "classes": {"text": "{text}", "labels": ["animal", "city"], "metric": {"kind": "F1", "average": "micro"}},
    "number": {"text": "{text}", "metric": "Correlation"},
    "tags": {"text": "{words}", "labels": ["O", "B-CITY"], "metric": "EntityF1"},
    "span": {"text": "{question}", "second": "{text}", "metric": "SQuAD2", "none": "allowed"},
    "options": {"text": "{text}", "options": ["{first}", "{second}"], "metric": "Accuracy"},
    "text": {"text": "{text}", "metric": "ExactMatch"},
}


def row(answer: str, index: int) -> dict[str, Any]:
    """An example whose answer is easy to see."""
    animal, city = ANIMALS[index % 4], CITIES[index // 4 % 4]
    text = f"the {animal} went to {city}"
    word = animal if index % 2 else city
    match answer:
        case "class":
            return {"text": f"a {word}", "label": "animal" if index % 2 else "city"}
        case "classes":
            return {
                "text": text if index % 3 else f"the {animal}",
                "label": ["animal", "city"] if index % 3 else ["animal"],
            }
        case "number":
            return {"text": animal * (index % 5 + 1), "label": index % 5 + 1}
        case "tags":
            return {"words": text.split(), "label": ["O"] * 4 + ["B-CITY"]}
        case "span":
            spans = (
                {"text": [city], "answer_start": [text.index(city)]} if index % 4 else {"text": [], "answer_start": []}
            )
            return {"question": "where?" if index % 4 else "when?", "text": text, "label": spans}
        case "options":
            return {"text": f"a {word} is", "first": "an animal", "second": "a city", "label": 1 - index % 2}
    return {"text": f"where is the {animal}?", "label": [animal]}


def written_task(folder: Path, answer: str, **changes: Any) -> str:
    """A task of that kind of answer, with its files; the path of its YAML."""
    for split, first, count in (("train", 0, 24), ("validation", 5, 12), ("test", 40, 8)):
        lines = (json.dumps(row(answer, index)) for index in range(first, first + count))
        (folder / f"{answer}.{split}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    files = {split: str(folder / f"{answer}.{split}.jsonl") for split in ("train", "validation", "test")}
    data = {"kind": "Task", "answer": answer, "tokenizer": "Byte", "files": files, **TASKS[answer], **changes}
    path = folder / f"{answer}.yaml"
    path.write_text(json.dumps({"data": data}))
    return str(path)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A ledger with a run of each family."""
    folder = tmp_path_factory.mktemp("pretrained")
    lines = (json.dumps({"text": f"the {a} went to {c} and the {a} came back. " * 3}) for a in ANIMALS for c in CITIES)
    (folder / "texts.jsonl").write_text("".join(f"{line}\n" for line in lines))
    data = [f"data={folder / 'texts.jsonl'}", "data.tokenizer=Byte", "data.validation=0.2", f"runs={folder / 'runs'}"]
    assert main(["data", "prepare", *data]) == 0
    size = ["size=tiny", "size.width=16", "size.layers=1", "size.length=96", "size.vocabulary=null"]
    budget = ["trainer.max_steps=3", "train.batch=4", "schedule.warmup=1", "log.wandb=disabled", "evaluate.points=1"]
    objectives = {"encoder_decoder": ["objective=SpanCorruption"]}
    runs = {}
    for family in FAMILIES:
        runs[family] = train(config.load(family, [*size, *data, *budget, *objectives.get(family, [])]))["run"]
    return folder / "runs", runs


def finetuned(pretrained: tuple[Path, dict[str, str]], family: str, task: str, *words: str) -> dict[str, Any]:
    runs, ids = pretrained
    return train(compose(ids[family], task, [*SMALL, *words], runs=runs))


# A span and a text are not for every family: an encoder cannot write.
PAIRS = [(family, answer) for family in FAMILIES for answer in TASKS if (family, answer) != ("encoder", "text")]


@pytest.mark.parametrize(("family", "answer"), PAIRS)
def test_a_run_is_finetuned_scored_and_predicts(family, answer, pretrained, tmp_path):
    runs, task = pretrained[0], written_task(tmp_path, answer)
    result = finetuned(pretrained, family, task, "train.epochs=1")
    assert result["score"] == next(iter(result["metrics"].values()))
    for name, value in result["metrics"].items():
        low, high = result["intervals"][name]
        assert low <= value + 1e-9
        assert high >= value - 1e-9
    assert ("invalid" in result) == (family == "encoder_decoder" or answer == "text")
    again = evaluate(result["run"], runs=runs)
    assert again.metrics == result["metrics"]
    assert again.intervals == result["intervals"]
    assert again.examples == 12
    predictions = predict(result["run"], tmp_path / f"{answer}.test.jsonl", runs=runs)
    assert len(predictions) == 8


def test_a_decoder_may_write_the_name_of_a_class(pretrained, tmp_path):
    result = finetuned(pretrained, "decoder", written_task(tmp_path, "class"), "train.epochs=1", "objective.form=text")
    assert 0 <= result["invalid"] <= 1
    assert Ledger.open(pretrained[0]).spec(result["run"])["model"]["head"] == "Linear"


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_answers_are_written_by_the_strategy_of_the_task(family, pretrained, tmp_path):
    written = {}
    for name, decode in (
        ("greedy", None),
        ("one", {"kind": "Beam", "beams": 1}),
        ("four", {"kind": "Beam", "beams": 4}),
    ):
        (tmp_path / name).mkdir()
        task = written_task(tmp_path / name, "text", **({} if decode is None else {"decode": decode}))
        result = finetuned(pretrained, family, task, "train.epochs=4")
        written[name] = predict(result["run"], tmp_path / name / "text.test.jsonl", runs=pretrained[0]).values
    assert written["one"] == written["greedy"]
    assert len(written["four"]) == 8


def test_what_can_be_learned_is_learned(pretrained, tmp_path):
    result = finetuned(pretrained, "encoder", written_task(tmp_path, "class"), "train.epochs=30")
    assert result["metrics"]["accuracy"] == 1
    predictions = predict(result["run"], tmp_path / "class.test.jsonl", runs=pretrained[0])
    assert list(predictions.values) == ["animal" if index % 2 else "city" for index in range(8)]


def test_the_log_and_the_list_of_runs_have_the_score(pretrained, tmp_path, capsys):
    runs = pretrained[0]
    result = finetuned(pretrained, "encoder", written_task(tmp_path, "tags"))
    entries = [entry for entry in Ledger.open(runs).history(result["run"]) if entry["kind"] == "evaluate"]
    assert entries
    assert all({"score", "metrics", "intervals"} <= entry.keys() for entry in entries)
    capsys.readouterr()
    assert main(["runs", f"runs={runs}"]) == 0
    told = capsys.readouterr().out
    assert " score " in told
    assert f"{result['score']:.4f}" in next(line for line in told.splitlines() if line.startswith(result["run"]))


def test_a_killed_finetuning_ends_as_one_that_was_not(pretrained, tmp_path):
    (runs, ids), task = pretrained, written_task(tmp_path, "class")
    shutil.copytree(runs.parent, tmp_path / "copy")
    words = [*SMALL, "log.every=1", "seed=7"]
    whole = train(compose(ids["encoder"], task, words, runs=runs))

    def killed() -> int:
        in_save()  # of the second checkpoint
        return main(["finetune", ids["encoder"], task, *words, f"runs={tmp_path / 'copy' / 'runs'}"])

    assert Child(killed).wait() == -signal.SIGKILL
    resumed = train(compose(ids["encoder"], task, words, runs=tmp_path / "copy" / "runs"))
    assert resumed["circumstances"]["from_step"] > 0
    assert resumed["run"] == whole["run"]
    ledgers = Ledger.open(tmp_path / "copy" / "runs"), Ledger.open(runs)
    same(*(done(ledger, whole["run"]) for ledger in ledgers))


def test_relative_steps_go_on_as_relative_steps(pretrained, tmp_path):
    runs, ids = pretrained
    task = written_task(tmp_path, "class")
    assert compose(ids["encoder_decoder"], task, runs=runs)["optimizer"] == {"kind": "Adafactor", "lr": 0.03}
    assert compose(ids["encoder_decoder"], task, ["tuning=LoRA"], runs=runs)["optimizer.kind"] == "AdamW"
    assert compose(ids["encoder"], task, runs=runs)["optimizer.kind"] == "AdamW"


def test_what_is_filled_in_is_told_and_can_be_said_otherwise(pretrained, tmp_path, capsys):
    runs, ids = pretrained
    task = written_task(tmp_path, "class")
    told = compose(ids["encoder"], task, runs=runs).remarks
    assert any(word.startswith("filled in model.head={kind: Sequence, classes: 2, activation: Tanh") for word in told)
    assert "filled in train.epochs=3" in told
    other = compose(ids["encoder"], task, ["train.epochs=1", "optimizer.lr=0.5"], runs=runs)
    assert other["train.epochs"] == 1
    assert other["optimizer.lr"] == 0.5
    assert not any(word.startswith("filled in train.epochs") for word in other.remarks)
    # The head of the start leaves nothing behind.
    assert set(other["model.head"]) == {"kind", "classes", "activation", "dropout"}


def test_a_score_of_bleu_is_printed_with_its_signature(pretrained, tmp_path, capsys):
    task = written_task(tmp_path, "text", metric="BLEU")
    run = finetuned(pretrained, "encoder_decoder", task, "train.epochs=1")["run"]
    capsys.readouterr()
    assert main(["evaluate", run, f"runs={pretrained[0]}"]) == 0
    printed = capsys.readouterr().out
    assert main(["evaluate", run, "--json", f"runs={pretrained[0]}"]) == 0
    signature = json.loads(capsys.readouterr().out)["signature"]
    assert signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version('sacrebleu')}"
    assert signature in printed.splitlines()


def test_the_commands_print_json(pretrained, tmp_path, capsys):
    runs, ids = pretrained
    task = written_task(tmp_path, "class")

    def told(*words: str) -> Any:
        capsys.readouterr()
        assert main([*words, "--json", f"runs={runs}"]) == 0
        return json.loads(capsys.readouterr().out)

    result = told("finetune", ids["decoder"], task, *SMALL)
    assert result["outcome"] == "finished"
    assert result["metrics"].keys() >= {"f1", "accuracy", "mean"}
    score = told("evaluate", result["run"], "--split", "test")
    assert score["examples"] == 8
    assert score["counts"].keys() == {"animal", "city"}
    assert sum(one["references"] for one in score["counts"].values()) == 8
    output = tmp_path / "answers.csv"
    written = told("predict", result["run"], str(tmp_path / "class.test.jsonl"), "--to", str(output))
    assert written["predictions"] == 8
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["index"] for row in rows] == [str(index) for index in range(8)]
    assert {row["prediction"] for row in rows} <= {"animal", "city"}
    tasks = told("tasks")
    assert {"cola", "rte", "squad2", "conll2003"} <= {one["task"] for one in tasks}


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_a_classifier_writes_nothing_and_has_no_corpus(family, pretrained, tmp_path, capsys):
    run = finetuned(pretrained, family, written_task(tmp_path, "class"), "train.epochs=0.5")["run"]
    commands = {
        "its head Sequence predicts no tokens": ["generate", run, "--prompt", "a [MASK]"],
        "it is no corpus of texts": ["evaluate-corpus", run],
    }
    for told, words in commands.items():
        capsys.readouterr()
        assert main([*words, f"runs={pretrained[0]}"]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
        assert told in line


def test_predictions_need_no_labels(pretrained, tmp_path):
    result = finetuned(pretrained, "encoder", written_task(tmp_path, "class"))
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"text": "a cat"}\n{"text": "a rome"}\n')
    predictions = predict(result["run"], bare, runs=pretrained[0])
    assert len(predictions) == 2
    assert [json.loads(line)["prediction"] for line in str(predictions).splitlines()] == predictions.values
    predictions.save(tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1]


def test_what_is_written_is_as_long_without_its_label(pretrained, tmp_path):
    task = written_task(tmp_path, "text")
    for path in tmp_path.glob("text.*.jsonl"):
        path.write_text(path.read_text().replace('"label": ["', '"label": ["it is not the same as the '))
    result = finetuned(pretrained, "decoder", task)
    labelled = tmp_path / "text.test.jsonl"
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(f"{json.dumps({'text': json.loads(line)['text']})}\n" for line in labelled.open()))
    answers = predict(result["run"], bare, runs=pretrained[0])
    assert max(map(len, answers.values)) > 8  # what an answer of no letter has room for
    assert answers.values == predict(result["run"], labelled, runs=pretrained[0]).values


@pytest.mark.parametrize(
    ("task", "answer", "labels", "values", "rows"),
    [
        ("cola", "class", ("unacceptable", "acceptable"), ["acceptable", "unacceptable"], "0\t1\n1\t0\n"),
        ("rte", "class", ("entailment", "not_entailment"), ["entailment", None], "0\tentailment\n1\tentailment\n"),
        ("stsb", "number", (), [5.7, -1.0, 2.34567], "0\t5.000\n1\t0.000\n2\t2.346\n"),
    ],
)
def test_a_submission_to_glue_has_its_layout(tmp_path, task, answer, labels, values, rows):
    predictions = Predictions({}, values=values, answer=answer, labels=labels)
    predictions.save_submission(tmp_path / "file.tsv", task)
    assert (tmp_path / "file.tsv").read_text() == f"index\tprediction\n{rows}"
    with pytest.raises(ScalingError, match="no task of GLUE"):
        predictions.save_submission(tmp_path / "file.tsv", "trec")


BAD = {
    "a run that is not there": (["finetune", "zz", "TASK"], "there is no such run"),
    "a task that is not there": (["finetune", "RUN", "colla"], "there is no such task"),
    "data that are no task": (["finetune", "RUN", "synthetic"], "it is no task"),
    "another tokenizer": (
        ["finetune", "RUN", "TASK", "data.tokenizer={kind: ByteBPE, vocabulary: 300}"],
        "another tokenizer",
    ),
    "a head of another answer": (["finetune", "RUN", "TASK", "model.head=Span"], "Span"),
    "a head of fewer classes": (["finetune", "RUN", "TASK", "model.head.classes=1"], "classes"),
    "a column that is not there": (
        ["finetune", "RUN", "TASK", "data.text={sentence}"],
        "the data have no field 'sentence'",
    ),
    "an encoder that is to write": (["finetune", "RUN", "TEXT"], "an encoder cannot write"),
    "a file that is a number": (["finetune", "RUN", "TASK", "data.files.train=0"], "data.files.train=0"),
    "a run without a task": (["evaluate", "RUN"], "it was not trained on a task"),
    "a study that is not there": (["finetune", "nothing:row", "TASK"], "there is no such study"),
    "a file that is not there": (["predict", "RUN", "nothing.jsonl"], "it was not trained on a task"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line(case, pretrained, tmp_path, capsys):
    runs, ids = pretrained
    given = {"RUN": ids["encoder"], "TASK": written_task(tmp_path, "class"), "TEXT": written_task(tmp_path, "text")}
    words, told = BAD[case]
    capsys.readouterr()
    assert main([*(given.get(word, word) for word in words), f"runs={runs}"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(said) == 1
    assert told in said[0]


def test_lines_that_are_no_records_are_one_line(pretrained, tmp_path, capsys):
    runs, file = pretrained[0], tmp_path / "new.jsonl"
    result = finetuned(pretrained, "encoder", written_task(tmp_path, "class"), "train.epochs=0.5")
    words = ["predict", result["run"], str(file), f"runs={runs}"]
    rows = [b"null\n", b'{"text": "a cat"}\n1\n', b'"text"\n', b"[]\n", b"[1]\n", b"\x00", b"{}\n", b"", b"[" * 100_000]
    for content in (*rows, '{"text": "a cat"}\n'.encode("utf-16"), b'{"text": ' + b"1" * 5000 + b"}\n"):
        file.write_bytes(content)
        capsys.readouterr()
        assert main(words) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert "new.jsonl" in told
    file.unlink()
    os.mkfifo(file)
    assert main(words) == 2
    assert "is no regular file" in capsys.readouterr().err


def test_a_task_with_other_labels_is_refused(pretrained, tmp_path, capsys):
    runs = pretrained[0]
    result = finetuned(pretrained, "encoder", written_task(tmp_path, "class"))
    other = written_task(tmp_path, "class", labels=["animal", "town"])
    assert main(["evaluate", result["run"], other, f"runs={runs}"]) == 2
    assert "finetune a run on this task" in capsys.readouterr().err


def test_what_is_asked_is_checked_without_torch(tmp_path):
    """In a process of its own: mistakes are told before torch is imported."""
    import subprocess
    import sys

    code = "import sys; from scaling.training import finetune; import scaling.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("family", "answer"), [("encoder", "span"), ("encoder_decoder", "class"), ("decoder", "text")])
def test_two_ranks_score_as_one_does(family, answer, pretrained, tmp_path):
    task, words = written_task(tmp_path, answer), ["trainer.devices=2", "train.threads=1", "train.epochs=1", "seed=5"]
    result = finetuned(pretrained, family, task, *words)
    assert result["circumstances"]["ranks"] == 2
    alone = evaluate(result["run"], runs=pretrained[0])
    assert alone.metrics == result["metrics"]
    assert alone.intervals == result["intervals"]


@pytest.mark.parametrize(
    ("student", "teacher", "answer", "hidden"),
    [
        ("encoder", "encoder", "class", 1.0),
        ("encoder", "encoder", "tags", 0.0),
        ("decoder", "encoder", "class", 0.0),
        ("encoder", "decoder", "number", 0.0),
        ("encoder", "encoder", "classes", 0.0),
        ("decoder", "decoder", "options", 1.0),
        ("encoder", "encoder", "span", 0.0),
    ],
)
def test_a_student_learns_a_task_from_its_teacher(student, teacher, answer, hidden, pretrained, tmp_path):
    """With the teacher's part alone, the distance to its predictions falls."""
    task = written_task(tmp_path, answer)
    taught = finetuned(pretrained, teacher, task, "train.epochs=10")
    line = f"{{kind: Distil, objective: Answer, teacher: '{taught['run']}', weight: 1.0, hidden: {hidden}}}"
    result = finetuned(pretrained, student, task, f"objective={line}", "train.epochs=10", "log.every=1", "seed=3")
    losses = [one["loss"] for one in Ledger.open(pretrained[0]).history(result["run"]) if one["kind"] == "train"]
    assert sum(losses[-3:]) < sum(losses[:3])
    assert "score" in result


def test_a_student_learns_from_examples_without_labels(pretrained, tmp_path):
    task = written_task(tmp_path, "class")
    taught = finetuned(pretrained, "encoder", task, "train.epochs=30")
    words = [f"{word}s and more" for word in (*ANIMALS, *CITIES)]
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(json.dumps({"text": f"a {word}"}) + "\n" for word in words))
    line = f"{{kind: Distil, objective: Answer, teacher: '{taught['run']}', weight: 1.0}}"
    plain = finetuned(pretrained, "encoder", task, f"objective={line}")
    more = finetuned(pretrained, "encoder", task, f"objective={line}", f"data.unlabelled={bare}")
    assert more["run"] != plain["run"]
    assert more["step"] > plain["step"]
    assert more["targets"] == plain["targets"]


def test_a_teacher_of_another_task_is_refused(pretrained, tmp_path):
    tags, task = written_task(tmp_path, "tags"), written_task(tmp_path, "class")
    taught = finetuned(pretrained, "encoder", tags)
    line = f"{{kind: Distil, objective: Answer, teacher: '{taught['run']}'}}"
    with pytest.raises(ScalingError, match="teacher"):
        finetuned(pretrained, "encoder", task, f"objective={line}")
