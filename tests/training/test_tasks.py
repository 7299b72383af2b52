"""Runs on tasks: composed of a run and a task, trained, scored, asked for predictions, and taught by a teacher."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import scaling
from scaling import evaluate, predict
from scaling.interop.run import averaged, read
from scaling.ledger import Ledger
from scaling.training.experiment import assemble
from scaling.training.finetune import compose
from scaling.verbs.command_line import main
from tests.command_line import printed, refuses
from tests.data.conftest import jsonl
from tests.evaluation.conftest import refused
from tests.training.conftest import losses, train

Pretrained = tuple[Path, dict[str, str]]
SMALL = ["train.batch=8", "train.epochs=1", "train.checkpoint_every=2", "log.wandb=disabled", "optimizer.lr=0.01"]
ANIMALS, CITIES = ["cat", "dog", "fox", "hen"], ["rome", "oslo", "bern", "lima"]
TASKS: dict[str, dict[str, Any]] = {
    "class": {"text": "{text}", "labels": ["animal", "city"], "metric": "F1AndAccuracy"},
    "classes": {"text": "{text}", "labels": ["animal", "city"], "metric": {"kind": "F1", "average": "micro"}},
    "either": {"answer": "number", "text": "{text}", "second": "{text}", "order": "either", "metric": "Correlation"},
    "tags": {"text": "{words}", "labels": ["O", "B-CITY"], "metric": "EntityF1"},
    "span": {"text": "{question}", "second": "{text}", "metric": "SQuAD2", "none": "allowed"},
    "options": {"text": "{text}", "options": ["{first}", "{second}"], "metric": "Accuracy"},
    "text": {"text": "{text}", "metric": "ExactMatch"},
}


def row(answer: str, index: int) -> dict[str, Any]:
    """An example whose answer is easy to see."""
    animal, city = ANIMALS[index % 4], CITIES[index // 4 % 4]
    text, word, found = f"the {animal} went to {city}", animal if index % 2 else city, [city] if index % 4 else []
    span = {"text": found, "answer_start": [text.index(one) for one in found]}
    return {
        "class": {"text": f"a {word}", "label": "animal" if index % 2 else "city"},
        "classes": {"text": text, "label": ["animal", "city"] if index % 3 else ["animal"]},
        "either": {"text": animal * (index % 5 + 1), "label": index % 5 + 1},
        "tags": {"words": text.split(), "label": ["O"] * 4 + ["B-CITY"]},
        "span": {"question": "where?" if found else "when?", "text": text, "label": span},
        "options": {"text": f"a {word} is", "first": "an animal", "second": "a city", "label": 1 - index % 2},
        "text": {"text": f"where is the {animal}?", "label": [animal]},
    }[answer]


def written(folder: Path, name: str, **changes: Any) -> str:
    """A task with its files; the path of its YAML."""
    files = {
        split: str(jsonl(folder / f"{name}.{split}.jsonl", (row(name, index) for index in range(start, start + count))))
        for split, start, count in (("train", 0, 24), ("validation", 5, 12), ("test", 40, 8))
    }
    data = {"kind": "Task", "answer": name, "tokenizer": "Byte", "files": files, **TASKS[name], **changes}
    (folder / f"{name}.yaml").write_text(json.dumps({"data": data}))
    return str(folder / f"{name}.yaml")


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    """A ledger with a run of each family."""
    folder = tmp_path_factory.mktemp("pretrained")
    texts = jsonl(folder / "texts.jsonl", ({"text": f"the {a} went to {c}. " * 6} for a in ANIMALS for c in CITIES))
    data = [f"data={texts}", "data.tokenizer=Byte", "data.validation=0.2", f"runs={folder / 'runs'}"]
    assert main(["data", "prepare", *data]) == 0
    size = ["size=tiny", "size.width=16", "size.layers=1", "size.length=96", "size.vocabulary=null"]
    size += ["trainer.max_steps=3", "train.batch=4", "schedule.warmup=1", "log.wandb=disabled", "evaluate.points=1"]
    own = {"encoder": [], "decoder": [], "encoder_decoder": ["objective=SpanCorruption"]}
    return folder / "runs", {name: train([name, *size, *data, *more])["run"] for name, more in own.items()}


def finetuned(pretrained: Pretrained, family: str, task: str, *line: str) -> dict[str, Any]:
    runs, ids = pretrained
    return dict(scaling.finetune(ids[family], task, *SMALL, *line, runs=runs, progress=False).result.items())


PAIRS = [("encoder", answer) for answer in ("classes", "tags", "span", "options")]
PAIRS += [("decoder", "either"), ("decoder", "text"), ("encoder_decoder", "text")]


@pytest.mark.parametrize(("family", "answer"), PAIRS)
def test_a_run_is_finetuned_scored_and_predicts(family, answer, pretrained, tmp_path):
    result = finetuned(pretrained, family, written(tmp_path, answer))
    assert result["score"] == next(iter(result["metrics"].values()))
    for name, value in result["metrics"].items():
        low, high = result["intervals"][name]
        assert low - 1e-9 <= value <= high + 1e-9
    assert ("invalid" in result) == (answer == "text")
    again = evaluate(result["run"], runs=pretrained[0])
    assert (again.metrics, again.intervals, again.examples) == (result["metrics"], result["intervals"], 12)
    file = tmp_path / f"{answer}.test.jsonl"
    predictions = predict(result["run"], file, runs=pretrained[0])
    assert len(predictions.values) == 8
    if answer == "text":  # which are written by the task's strategy
        drawn = predict(result["run"], file, "data.decode={kind: Sample, temperature: 99}", runs=pretrained[0])
        assert drawn.values != predictions.values


@pytest.mark.slow
def test_two_ranks_score_as_one_does(pretrained, tmp_path):
    result = finetuned(pretrained, "decoder", written(tmp_path, "text"), "trainer.devices=2", "seed=5")
    alone = evaluate(result["run"], runs=pretrained[0])
    assert (alone.metrics, alone.intervals) == (result["metrics"], result["intervals"])


def test_a_file_is_a_task_without_a_yaml_and_what_can_be_learned_is_learned(pretrained, tmp_path, capsys):
    (runs, ids), file, words = pretrained, tmp_path / "my.csv", ("cat", "dog", "rome")
    lines = [f"the {word} {number},{word}" for number in range(30) for word in words]
    file.write_text("\n".join(["review,verdict", *lines]) + "\n")
    result = finetuned(pretrained, "encoder", str(file), "text={review}", "label={verdict}", "train.epochs=6")
    spec = Ledger.open(runs).spec(result["run"])["data"]
    assert (spec["answer"], spec["labels"], spec["metric"]) == ("class", [*words], "Accuracy")
    assert result["metrics"]["accuracy"] == 1
    found = predict(result["run"], jsonl(tmp_path / "bare.jsonl", ({"review": f"the {w} 7"} for w in words)), runs=runs)
    assert found.values == [*words]
    assert [max(each, key=lambda label: each[label]) for each in found.probabilities] == found.values
    assert all(sum(each.values()) == pytest.approx(1) for each in found.probabilities)
    found.save(tmp_path / "out.jsonl")
    saved = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["index"], line["prediction"]) for line in saved] == list(enumerate(words))
    entries = [entry for entry in Ledger.open(runs).history(result["run"]) if entry["kind"] == "evaluate"]
    assert all({"score", "metrics", "intervals"} <= entry.keys() for entry in entries)
    (line,) = (line for line in printed(capsys, "runs", f"runs={runs}").splitlines() if line.startswith(result["run"]))
    assert f"{result['score']:.4f}" in line
    line = ["finetune", ids["encoder"], file, "text={review}", f"runs={runs}"]
    assert "did you mean 'verdict'?" in refused(capsys, *line, "label={verdct}")
    assert "choose from review, verdict" in refused(capsys, *line)


def test_what_is_filled_in_is_told_and_can_be_set_otherwise(pretrained, tmp_path):
    (runs, ids), task = pretrained, written(tmp_path, "class")
    filled = compose(ids["encoder"], task, runs=runs)
    head = "filled in model.head={kind: Sequence, classes: 2, activation: Tanh, dropout: 0.1}"
    assert {"filled in train.epochs=3", head} <= set(filled.remarks)
    other = compose(ids["encoder_decoder"], task, ["train.epochs=1"], runs=runs)
    assert (other["train.epochs"], other["optimizer"]) == (1, {"kind": "Adafactor", "lr": 0.03})
    assert not any(one.startswith("filled in train.epochs") for one in other.remarks)
    assert compose(ids["encoder_decoder"], task, ["tuning=LoRA"], runs=runs)["optimizer.kind"] == "AdamW"
    three = str(jsonl(tmp_path / "three.jsonl", (row("class", n) for n in range(3))))
    uneven = written(tmp_path, "class", files=dict.fromkeys(("train", "validation"), three))
    balanced = assemble(compose(ids["encoder"], uneven, ["model.head.weights=balanced"], runs=runs))
    assert balanced.config["model.head.weights"] == pytest.approx([1.5, 0.75])  # examples / (classes · those of each)


def test_a_mistake_is_one_line(pretrained, tmp_path, capsys):
    bad = {
        "finetune zz class": "there is no such run",
        "finetune encoder synthetic": "it is not a task",
        "finetune decoder text model.head=Span": "a head of next tokens",
        "finetune decoder class model.head=Span --extend BARE": "take {kind: Sequence, …}",
        "finetune encoder text": "an encoder cannot write",
        "finetune encoder class data.text={sentence}": "the data have no field 'sentence'",
        "finetune encoder tags data.labels=[O,CITY]": "there is no such label 'B-CITY'",
        "evaluate encoder": "it was not trained on a task",
        "generate RUN --prompt a": "its head Sequence predicts no tokens",
        "evaluate RUN OTHER": "finetune a run on this task",
        "predict RUN FILE": "new.jsonl",
    }
    runs, ids = pretrained
    names = {**ids, **{name: written(tmp_path, name) for name in TASKS}, "FILE": tmp_path / "new.jsonl"}
    names["RUN"] = finetuned(pretrained, "encoder", names["class"])["run"]
    (other := tmp_path / "other").mkdir()
    names["OTHER"] = written(other, "class", labels=["animal", "town"])
    names["FILE"].write_text('{"text": "a cat"}\n1\n')
    (bare := tmp_path / "bare.py").write_text("class Bare:\n    slot = 'head'\n")
    names["BARE"] = bare
    for case, message in bad.items():
        assert message in refused(capsys, *(names.get(word, word) for word in case.split()), f"runs={runs}"), case


def test_a_student_learns_from_its_teacher_and_from_examples_without_labels(pretrained, tmp_path):
    """With the teacher's part alone, the distance to its predictions falls."""

    def taught(family: str, name: str, *line: str) -> dict[str, Any]:
        teacher = {"kind": "Distil", "objective": "Answer", "teacher": run, "weight": 1.0, "hidden": 1.0}
        return finetuned(pretrained, family, tasks[name], f"objective={json.dumps(teacher)}", "log.every=1", *line)

    tasks, bare = {name: written(tmp_path, name) for name in ("class", "tags")}, tmp_path / "bare.jsonl"
    run = finetuned(pretrained, "encoder", tasks["class"], "train.epochs=6")["run"]
    plain = taught("encoder", "class", "train.epochs=6", "seed=3")
    distances = losses(pretrained[0], plain["run"])
    assert sum(distances[-3:]) < sum(distances[:3])
    jsonl(bare, ({"text": f"a {word}s and more"} for word in (*ANIMALS, *CITIES)))
    more = taught("encoder", "class", "train.epochs=6", f"data.unlabelled={bare}")
    assert more["step"] > plain["step"]
    assert more["targets"] == plain["targets"]
    refuses("teacher", taught, "encoder", "tags")
    refuses("the teacher, of the kind Encoder, reads 96 tokens; take one of", taught, "decoder", "class")


def test_translations_are_scored_by_bleu_and_compared_also_by_the_mean_of_checkpoints(pretrained, tmp_path, capsys):
    """Two files whose lines answer one another, in batches of so many tokens."""
    runs, files = pretrained[0], [str(tmp_path / "a.de"), str(tmp_path / "a.en")]
    for file, words in zip(files, ("haus hund rot", "house dog red"), strict=True):
        Path(file).write_text("".join(f"{words.split()[n % 3]} {n}\n" for n in range(60)))
    how = {"files": {"train": files}, "layout": "parallel", "columns": ["text", "label"], "validation": 0.2}
    task, line = written(tmp_path, "text", metric="BLEU", **how), ["train.batch={tokens: 256}", "train.keep=3"]
    one, two = (finetuned(pretrained, "decoder", task, f"seed={seed}", *line)["run"] for seed in (7, 8))
    words = ["evaluate", one, "--paired-bootstrap", runs / "store" / two, f"runs={runs}", "--json"]
    document = printed(capsys, *words)
    assert document["signature"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version('sacrebleu')}"
    paired = document["paired"]
    assert paired["against"] == two
    assert paired["difference"] == pytest.approx(document["score"] - paired["score_against"], abs=1e-9)
    assert paired["interval"][0] <= paired["difference"] <= paired["interval"][1]
    kept = sorted(int(path.name) for path in runs.glob(f"store/{one}/checkpoints/[0-9]*"))
    each = [read(one, runs, step).tensors for step in kept[-2:]]  # of three that are kept
    for name, tensor in averaged(runs / "store" / one, 2).tensors.items():
        torch.testing.assert_close(tensor, sum(one[name] for one in each) / 2)
    assert evaluate(runs / "store" / one, average=3).average == len(kept) == 3
    refuses("average=50: the run has 3 checkpoints", evaluate, one, runs=runs, average=50)


def test_a_run_on_a_drawn_task_is_scored_and_compared_as_one_on_files_is(tmp_path, capsys):
    words = ["size=tiny", "size.width=16", "size.layers=1", "size.heads=2", "size.vocabulary=null", "data=synthetic"]
    words += ["trainer.max_steps=1", "train.batch=8", "evaluate.windows=8", f"runs={tmp_path}", "log.wandb=disabled"]
    run = train(["encoder", *words])["run"]
    budget = ["trainer.max_steps=1", "schedule.warmup=0", "log.wandb=disabled"]
    tuned = scaling.finetune(run, "rank_tags", *budget, runs=tmp_path, progress=False).id
    document = printed(capsys, "evaluate", tuned, "--paired-bootstrap", tuned, f"runs={tmp_path}", "--json")
    assert document["paired"]["difference"] == 0
