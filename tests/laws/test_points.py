"""The table of a fit: every format and folder, counts, units, definitions, and what is not a table, in one line."""

import json
import re
from typing import Any

import numpy as np
import pandas
import pytest

import scaling
from scaling.laws.points import group_of, load_points
from scaling.ledger import Ledger
from tests.command_line import refuses
from tests.laws.conftest import study

RUNS = {"run": ["=a", "b", "c"], "N": [1e6, 2e6, 4e6], "D": [1e8, 2e8, 4e8], "loss": [4.0, 3.5, 3.1]}
FRAME = pandas.DataFrame(RUNS)
FEW: dict[str, Any] = {"law": "power_law_floor_n", "objective": "log_squared", "intervals": "none", "starts": 24}


def test_every_format_and_folder_gives_the_same_points(tmp_path):
    FRAME.to_parquet(tmp_path / "points.parquet")
    rows = ("run\tN\tD\tloss", "'=a\t1,000,000\t100M\t4", "b\t2_000_000\t.2B\t3.5", "c\t4M\t4e8\t3.1")
    (tmp_path / "words.tsv").write_text("\n".join(rows))
    nested = [{"run": row["run"], "config": row, "loss": row["loss"]} for row in FRAME.to_dict(orient="records")]
    (tmp_path / "nested.jsonl").write_text("\n".join(map(json.dumps, nested)))
    ledger = tmp_path / "runs"
    report, sweep = ledger / "studies" / "first" / "report", ledger / "sweeps" / "lr-12ab34cd"
    for folder in (report, sweep):
        folder.mkdir(parents=True)
    FRAME.to_csv(report / "points.csv", index=False)
    files = [tmp_path / "words.tsv", tmp_path / "points.parquet", ledger, report.parent, report]
    tables = [load_points(source) for source in (*files, FRAME, FRAME.to_dict(orient="records"), RUNS)]
    tables.append(load_points(tmp_path / "nested.jsonl", rename={"N": "config.N", "D": "config.D"}))
    for table in tables:
        assert list(table["run"]) == RUNS["run"]
        assert [table.numbers(name).tolist() for name in ("N", "D", "loss")] == [RUNS[n] for n in ("N", "D", "loss")]
    FRAME.to_csv(sweep / "points.csv", index=False)
    assert load_points(sweep).source == str(sweep / "points.csv")
    refuses(r"holds 2 tables; name one of them: studies/first/.*, sweeps/lr-12ab34cd/", load_points, ledger)


def test_a_ledger_of_runs_without_a_report_is_read_from_its_results(tmp_path):
    ledger, columns, entries = Ledger.create(tmp_path / "runs"), study(36), []
    for i, (N, D, loss) in enumerate(zip(*(columns[name].tolist() for name in ("N", "D", "loss")))):
        spec = {"trainer": {"max_steps": 10 + i}, "optimizer": {"lr": 1e-3}, "seed": 0, "data": {"fingerprint": "d"}}
        entry = {"run": ledger.add(spec), "name": f"run {i}", "overrides": [], "held_out": i == 35, "steps": 10 + i}
        entries.append({**entry, "trunk": None, "flops": 6 * N * D, "point": {"N": N, "D": D, "C": 6 * N * D}})
        with ledger.claim(entry["run"]) as attempt:
            counted = {"N": {"non_embedding": N, "total": 2 * N}, "C": {"exact": 6 * N * D}}
            attempt.finish("finished", {"loss": loss, "tokens": D, **counted})
    points = scaling.fit(tmp_path / "runs", **FEW).document["points"]
    assert (points["count"], points["definitions"]["N"]) == ("36 points", "without embeddings")
    plan = {"name": "mine", "question": "which?", "base": "decoder", "set": {}, "grid": {"seed": [0]}}
    ledger.save_plan("mine", {"study": plan, "command": [], "runs": entries})
    assert scaling.fit(tmp_path / "runs" / "studies" / "mine", **FEW).document["held_out"]["n"] == 1


def test_a_wandb_export_is_read_as_it_is_and_a_run_that_did_not_finish_needs_no_loss():
    states = ["finished", "FINISHED", "Completed", "crashed", "killed", "pruned"]
    export = {"Name": list("abcdef"), "State": states, "config.params": np.arange(1, 7) * 1e6 + 5e5}
    export |= {"config.embedding": [5e5] * 6, "val/loss": [4.0, 3.5, 3.1, None, None, None]}
    rename = {"N": "config.params-config.embedding", "loss": "val/loss", "C": "6*N", "M": "C/6N"}
    points = load_points(export, rename=rename)
    assert points.count() == "3 points, 1 excluded, 2 failed"
    assert (points.numbers("N").tolist(), points["M"].tolist()) == ([1e6, 2e6, 3e6], [1.0, 1.0, 1.0])
    assert (points.definition("N"), points.definition("D")) == ("config.params-config.embedding", "not stated")


def test_kinds_of_points_are_never_pooled_in_silence_and_seeds_are_no_duplicates():
    mixed = scaling.fit({**study(), "corpus": ["c4", "pile"] * 20}, **FEW)
    assert "! 2 values of corpus are pooled as if they were one" in str(mixed)
    assert len(load_points({"N": [1, 1], "D": [2, 2], "loss": [3.0, 3.1], "seed": [0, 1]})) == 2


def test_perplexity_and_bits_are_converted_once_where_a_person_or_a_formula_says_so():
    loss = np.array(RUNS["loss"])
    for column, unit, values, formula in (
        ("ppl", "perplexity", np.exp(loss), "log(ppl)"),
        ("bpb", "bits_per_byte", loss / np.log(2), "bpb*0.6931471805599453"),
    ):
        table = {"N": RUNS["N"], column: values.tolist()}
        refuses(f"write --define loss={unit} to convert it", load_points, table, rename={"loss": column})
        points = load_points(table, rename={"loss": column}, define={"loss": unit})
        computed = load_points({**table, "loss": values}, rename={"loss": formula})
        for table in (points, computed):
            assert table.numbers("loss") == pytest.approx(loss)
    named, low = {**RUNS, "val-ppl": np.exp(loss)}, {**RUNS, "loss": [0.9, *RUNS["loss"][1:]]}
    refuses("is perplexity by its name", load_points, named, rename={"loss": "`val-ppl`"})
    refuses(r"loss=0\.9.*is not a perplexity, which is 1 or more", load_points, low, define={"loss": "perplexity"})
    percent = load_points({**RUNS, "accuracy": [26.0, 40.0, 71.0]})
    refuses(r"accuracy=71.*is a fraction, from 0 to 1.*accuracy/100", percent.numbers, "accuracy")


def test_the_table_s_own_column_holds_runs_out():
    columns = study(36)
    table = {**columns, "held_out": np.where(columns["N"] > 9e9, "yes", "no").tolist()}
    by_condition = scaling.fit(columns, hold_out="N>9e9", **FEW).document
    by_column = scaling.fit(table, **FEW).document
    assert by_column["held_out"] == by_condition["held_out"] is not None
    assert scaling.fit(table, hold_out="none", **FEW).document["points"]["held_out"] == 0
    refuses("held_out='maybe': is neither 0 nor 1", scaling.fit, {**columns, "held_out": ["maybe"] * 36})


def test_what_is_no_table_of_runs_is_one_line_with_its_place_and_its_fix(tmp_path):
    files = {
        "ragged.csv": (b"N,loss\n1,2\n3\n", "ragged.csv:3: has 1 cells under a header of 2"),
        "word.csv": (b"N,loss\n1,2\nmany,3\n", "word.csv:3: N='many'"),
        "binary.csv": (b"N,loss\n\xff\xfe,\x80\n", "not text in UTF-8"),
        "broken.parquet": (b"not parquet", "is not parquet"),
        "wrod.csv": (None, "did you mean 'word.csv'?"),
        "sweep/points.csv": (None, "a sweep writes it at its end"),
    }
    twice = {**RUNS, "run": ["a", "a", "b"], "D": [1e8] * 3}
    assert refuses("did you mean 'loss'", load_points, RUNS, rename={"D": "lss"}).fix
    assert refuses("from itself", load_points, RUNS, rename={"C": "M*N", "M": "C/N"}).fix
    assert refuses("mixes 'c4' and 'pile'", load_points, {**RUNS, "validation": ["c4", "c4", "pile"]}).fix
    assert refuses("1 run is in the table more than once", load_points, twice).fix
    for name, (content, what) in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert refuses(re.escape(what), load_points, tmp_path / name).fix


def test_words_under_the_name_of_a_column_of_numbers_are_refused_where_a_law_reads_them(tmp_path):
    FRAME.assign(bits=["fp8", "bf16", "8"], depth="deep").to_csv(tmp_path / "words.csv", index=False)
    points = load_points(tmp_path / "words.csv")
    assert list(points["depth"]) == ["deep"] * 3
    for used, place in ((points, "row 1 of the 3 rows in use"), (points.take(np.array([2, 0])), "row 2 of the 2 rows")):
        refuses(f"bits='fp8': is not a number, in {place}", used.numbers, "bits")


def test_a_run_without_a_trunk_shares_nothing_and_an_empty_cell_hides_no_run_that_is_there_twice():
    for trunks in (["t", "", float("nan")], [1.0, float("nan"), float("nan")]):
        for column in ("trunk", "machine"):
            assert len(set(load_points({**RUNS, column: trunks}).labels(column))) == 3
    assert group_of(load_points({**RUNS, "trunk": ["", "", ""]})) is None
    assert group_of(load_points({**RUNS, "trunk": ["t", "t", ""]})) == "trunk"
    rows = {name: [*values, values[-1]] for name, values in RUNS.items() if name != "run"}
    refuses("in the table more than once", load_points, {**rows, "U": [1.0, 2.0, float("nan"), float("nan")]})
