"""The tables and folders that `scaling fit` reads."""

import json

import numpy as np
import pytest

from scaling.cli import main
from tests.command.fit_tables import MAP, TRUTH, columns, fitted, refusal, write


def test_excluded_and_failed_runs_are_counted(tmp_path, capsys):
    runs = columns()
    ends = ["finished"] * 33 + ["diverged", "pruned", "failed"]
    losses = [value if end == "finished" else "" for value, end in zip(runs["final"], ends, strict=True)]
    path = write(tmp_path / "points.csv", {**runs, "final": losses, "status": ends})
    assert main(["fit", path, *MAP, "--intervals", "t"]) == 0
    assert "points.csv: 33 points, 5 parameters, 2 excluded, 1 failed" in capsys.readouterr().out


def test_kinds_of_points_are_never_pooled_in_silence(tmp_path, capsys):
    path = write(tmp_path / "points.csv", {**columns(), "corpus": ["c4", "pile"] * 18})
    assert fitted(capsys, path, *MAP, "--intervals", "none")["points"]["pooled"] == {"corpus": 2}
    assert main(["fit", path, *MAP, "--intervals", "none"]) == 0
    assert "! 2 values of corpus are pooled as if they were one" in capsys.readouterr().out
    one = fitted(capsys, path, *MAP, "--intervals", "none", "--where", "corpus=c4")["points"]
    assert one["pooled"] == {}
    assert one["planned"] == 18


def test_a_wandb_export_is_read_as_it_is(tmp_path, capsys):
    runs = columns()
    states = ["finished", "FINISHED", "Completed", "crashed", "killed", "running"] * 6
    done = [state.lower() in ("finished", "completed") for state in states]
    table = {
        "Name": [f"run-{i}" for i in range(36)],
        "State": states,
        "config.params": runs["params"] + 5e5,
        "config.embedding": [5e5] * 36,
        "tokens": runs["tokens"],
        "val/loss": [value if ended else "" for value, ended in zip(runs["final"], done, strict=True)],
    }
    path = write(tmp_path / "export.csv", table)
    names = ["--map", "N=config.params-config.embedding", "D=tokens", "loss=val/loss"]
    document = fitted(capsys, path, *names, "--intervals", "none")
    assert document["points"]["count"] == "18 points, 18 failed"
    assert document["points"]["definitions"]["N"] == "config.params-config.embedding"
    assert document["points"]["pooled"] == {}
    assert document["estimates"]["alpha"] == pytest.approx(TRUTH["alpha"], rel=0.1)
    line = refusal(capsys, path, "--map", "N=config.params", "D=tokens", "loss=val/los")
    assert "did you mean 'val/loss'?" in line


def test_tables_with_tabs_records_and_people_s_numbers(tmp_path, capsys):
    runs = columns()
    N, D, L = runs["params"].round(), runs["tokens"].round(), runs["final"]
    plain = fitted(capsys, write(tmp_path / "a.csv", {"N": N, "D": D, "loss": L}), "--intervals", "none")["estimates"]
    (tmp_path / "b.tsv").write_text(
        "N\tD\tloss\n"
        + "".join(f"{int(n):,}\t{float(d / 1e6)!r}M\t{y!r}\n" for n, d, y in zip(N, D, map(float, L), strict=True))
    )
    assert fitted(capsys, str(tmp_path / "b.tsv"), "--intervals", "none")["estimates"] == pytest.approx(plain, rel=1e-9)
    records = [
        {"config": {"N": n, "D": d}, "summary": {"loss": y}, "state": "finished"}
        for n, d, y in zip(N, D, L, strict=True)
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ["--map", "N=config.N", "D=config.D", "loss=summary.loss", "--intervals", "none"]
    assert fitted(capsys, str(tmp_path / "c.jsonl"), *words)["estimates"] == plain


def test_perplexity_and_bits_are_converted_where_a_person_says_so(tmp_path, capsys):
    runs = columns()
    plain = fitted(capsys, write(tmp_path / "a.csv", runs), *MAP, "--intervals", "none")["estimates"]
    names = ["--map", "N=params", "D=tokens"]
    path = write(tmp_path / "b.csv", {**runs, "val_ppl": np.exp(runs["final"]), "bpt": runs["final"] / np.log(2)})
    for column, unit in (("val_ppl", "perplexity"), ("bpt", "bits_per_token")):
        words = [path, *names, f"loss={column}"]
        assert f"write --define loss={unit} to convert it" in refusal(capsys, *words)
        converted = fitted(capsys, *words, "--define", f"loss={unit}", "--intervals", "none")
        assert converted["estimates"] == pytest.approx(plain, rel=1e-6)
        assert converted["points"]["definitions"]["loss"].startswith("nats per token")
        fitted(capsys, *words, "--define", "loss=nats_per_token", "--intervals", "none")


def test_the_table_s_own_column_holds_runs_out(tmp_path, capsys):
    runs = columns()
    held = [int(size > 9e8) for size in runs["params"]]
    path = write(tmp_path / "points.csv", {**runs, "held_out": held})
    words = [path, *MAP, "--intervals", "none"]
    assert fitted(capsys, *words)["points"]["count"].startswith("30 points, 6 held out")
    assert fitted(capsys, *words) | {"points": 0} == fitted(capsys, *words, "--hold-out", "N>9e8") | {"points": 0}
    assert fitted(capsys, *words, "--hold-out", "none")["points"]["held_out"] == 0
    words_of = {0: "False", 1: "True"}
    path = write(tmp_path / "points.csv", {**runs, "held_out": [words_of[value] for value in held]})
    assert fitted(capsys, path, *words[1:])["points"]["held_out"] == 6
    path = write(tmp_path / "points.csv", {**runs, "held_out": ["maybe"] * 36})
    assert "held_out='maybe': is neither 0 nor 1" in refusal(capsys, path, *words[1:])


def test_the_folder_of_a_study_a_sweep_or_a_ledger_is_read(tmp_path, capsys):
    runs = columns()
    ledger = tmp_path / "runs"
    report, sweep = ledger / "studies" / "first" / "report", ledger / "sweeps" / "lr-12ab34cd"
    for folder in (report, sweep):
        folder.mkdir(parents=True)
    write(report / "points.csv", runs)
    words = [*MAP, "--intervals", "none"]
    for folder in (ledger, report.parent, report):
        assert fitted(capsys, str(folder), *words)["points"]["source"] == str(report / "points.csv")
    write(sweep / "points.csv", runs)
    assert fitted(capsys, str(sweep), *words)["points"]["source"] == str(sweep / "points.csv")
    line = refusal(capsys, ledger, *words)
    assert "holds 2 tables; name one of them: studies/first/report/points.csv, sweeps/lr-12ab34cd/points.csv" in line


def test_a_ledger_of_runs_without_a_report_is_read_from_its_results(tmp_path, capsys):
    from scaling.ledger import Ledger

    ledger = Ledger.create(tmp_path / "runs")
    runs, entries = columns(), []
    for i in range(36):
        size, tokens = float(runs["params"][i]), float(runs["tokens"][i])
        spec = {"trainer": {"max_steps": 10 + i}, "optimizer": {"lr": 1e-3}, "seed": 0, "data": {"fingerprint": "d"}}
        run = ledger.add(spec)
        entry = {"run": run, "name": f"run {i}", "overrides": [], "held_out": i == 35, "steps": 10 + i, "trunk": None}
        compute = 6 * size * tokens
        entries.append({**entry, "flops": compute, "point": {"N": size, "D": tokens, "C": compute}})
        attempt = ledger.claim(run)
        assert attempt is not None
        with attempt:
            counted = {"N": {"non_embedding": size, "total": 2 * size}, "C": {"exact": 6 * size * tokens}}
            attempt.finish("finished", {"loss": float(runs["final"][i]), "tokens": tokens, **counted})
    document = fitted(capsys, str(tmp_path / "runs"), "--intervals", "none")
    assert document["points"]["count"] == "36 points"
    assert document["points"]["definitions"]["N"] == "without embeddings"
    study = {"name": "mine", "question": "which?", "base": "decoder", "set": {}, "grid": {"seed": [0]}}
    ledger.save_plan("mine", {"study": study, "command": [], "runs": entries})
    for folder in (tmp_path / "runs", tmp_path / "runs" / "studies" / "mine"):
        assert fitted(capsys, str(folder), "--intervals", "none")["held_out"]["n"] == 1
    Ledger.create(tmp_path / "empty")
    assert "is a ledger of no runs" in refusal(capsys, tmp_path / "empty")
