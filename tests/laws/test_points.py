"""The table of a fit: every format and folder, counts, units, definitions, and what is no table, in one line."""

import json
import subprocess
import sys

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling
from scaling.base.errors import ScalingError
from scaling.laws.points import load_points
from scaling.ledger import Ledger
from tests.laws.studies import study

RUNS = {"run": ["a", "b", "c"], "N": [1e6, 2e6, 4e6], "D": [1e8, 2e8, 4e8], "loss": [4.0, 3.5, 3.1]}
FRAME = pandas.DataFrame(RUNS)


def load(source=None, /, rename=None, where=(), define=None, **columns):
    return load_points({**RUNS, **columns} if source is None else source, rename=rename, where=where, define=define)


def test_every_format_and_folder_gives_the_same_points(tmp_path):
    FRAME.to_parquet(tmp_path / "points.parquet")
    FRAME.to_csv(tmp_path / "points.csv", index=False)
    (tmp_path / "words.tsv").write_text(
        "run\tN\tD\tloss\na\t1,000,000\t100M\t4\nb\t2_000_000\t.2B\t3.5\nc\t4M\t4e8\t3.1\n"
    )
    (tmp_path / "points.jsonl").write_text(FRAME.to_json(orient="records", lines=True))
    nested = [
        {"run": row["run"], "config": {"N": row["N"], "D": row["D"]}, "loss": row["loss"]}
        for _, row in FRAME.iterrows()
    ]
    (tmp_path / "nested.jsonl").write_text("".join(json.dumps(record) + "\n" for record in nested))
    ledger = tmp_path / "runs"
    report, sweep = ledger / "studies" / "first" / "report", ledger / "sweeps" / "lr-12ab34cd"
    for folder in (report, sweep):
        folder.mkdir(parents=True)
    FRAME.to_csv(report / "points.csv", index=False)
    folders = [tmp_path, ledger, report.parent, report]
    files = [tmp_path / f"{name}" for name in ("words.tsv", "points.jsonl", "points.parquet")]
    tables = [load(source) for source in (*folders, *files, FRAME, FRAME.to_dict(orient="records"), RUNS)]
    tables.append(load(tmp_path / "nested.jsonl", rename={"N": "config.N", "D": "config.D"}))
    for table in tables:
        assert list(table["run"]) == RUNS["run"]
        for name in ("N", "D", "loss"):
            assert np.array_equal(table.numbers(name), RUNS[name])
    FRAME.to_csv(sweep / "points.csv", index=False)
    assert load(sweep).source == str(sweep / "points.csv")
    with pytest.raises(ScalingError, match=r"holds 2 tables; name one of them: studies/first/.*, sweeps/lr-12ab34cd/"):
        load(ledger)


def test_a_ledger_of_runs_without_a_report_is_read_from_its_results(tmp_path):
    ledger, columns, entries = Ledger.create(tmp_path / "runs"), study(36), []
    for i, (N, D, loss) in enumerate(zip(*(columns[name].tolist() for name in ("N", "D", "loss")))):
        spec = {"trainer": {"max_steps": 10 + i}, "optimizer": {"lr": 1e-3}, "seed": 0, "data": {"fingerprint": "d"}}
        run, point = ledger.add(spec), {"N": N, "D": D, "C": 6 * N * D}
        entry = {"run": run, "name": f"run {i}", "overrides": [], "held_out": i == 35, "steps": 10 + i, "trunk": None}
        entries.append({**entry, "flops": 6 * N * D, "point": point})
        with ledger.claim(run) as attempt:
            counted = {"N": {"non_embedding": N, "total": 2 * N}, "C": {"exact": 6 * N * D}}
            attempt.finish("finished", {"loss": loss, "tokens": D, **counted})
    few = {"intervals": "none", "starts": 24}
    points = scaling.fit(tmp_path / "runs", **few).document["points"]
    assert points["count"] == "36 points"
    assert points["definitions"]["N"] == "without embeddings"
    plan = {"name": "mine", "question": "which?", "base": "decoder", "set": {}, "grid": {"seed": [0]}}
    ledger.save_plan("mine", {"study": plan, "command": [], "runs": entries})
    for folder in (tmp_path / "runs", tmp_path / "runs" / "studies" / "mine"):
        assert scaling.fit(folder, **few).document["held_out"]["n"] == 1
    Ledger.create(tmp_path / "empty")
    with pytest.raises(ScalingError, match="is a ledger of no runs"):
        scaling.fit(tmp_path / "empty")


@given(st.lists(st.sampled_from(["finished", "diverged", "pruned", "failed", "stopped", "out_of_memory"]), max_size=30))
def test_every_planned_run_is_used_excluded_or_failed(states):
    columns = {"run": [f"r{i}" for i in range(len(states))], "N": list(range(1, len(states) + 1)), "status": states}
    points = load_points(columns)
    assert points.planned == len(states) == points.used + points.excluded + points.failed
    assert points.used == states.count("finished")
    assert points.excluded == states.count("diverged") + states.count("pruned")


def test_a_wandb_export_is_read_as_it_is_and_a_run_that_did_not_finish_needs_no_loss(tmp_path):
    states = ["finished", "FINISHED", "Completed", "crashed", "killed", "running"]
    export = {"Name": list("abcdef"), "State": states, "config.params": np.arange(1, 7) * 1e6 + 5e5}
    export |= {"config.embedding": [5e5] * 6, "val/loss": [4.0, 3.5, 3.1, None, None, None]}
    pandas.DataFrame(export).to_csv(tmp_path / "export.csv", index=False)
    rename = {"N": "config.params-config.embedding", "loss": "val/loss", "C": "6*N", "M": "C/6N"}
    points = load(tmp_path / "export.csv", rename=rename)
    assert points.count() == "3 points, 3 failed"
    assert points.numbers("N").tolist() == [1e6, 2e6, 3e6]
    assert points["M"].tolist() == [1.0, 1.0, 1.0]
    assert points.definition("N") == "config.params-config.embedding"
    assert points.definition("D") == "not stated"
    assert points.pooled() == {}
    with pytest.raises(ScalingError, match="did you mean 'val/loss'"):
        load(tmp_path / "export.csv", rename={"loss": "val/los"})


def test_kinds_of_points_are_never_pooled_in_silence_and_seeds_are_no_duplicates():
    mixed = load(loss=[4.0, 3.5, 3.1], corpus=["c4", "c4", "pile"])
    assert (mixed.pooled(), len(mixed.where(mixed["corpus"] == "c4"))) == ({}, 2)
    twice = scaling.fit({**study(), "corpus": ["c4", "pile"] * 20}, intervals="none", starts=24)
    assert twice.document["points"]["pooled"] == {"corpus": 2}
    assert "! 2 values of corpus are pooled as if they were one" in str(twice)
    assert len(load_points({"N": [1, 1], "D": [2, 2], "loss": [3.0, 3.1], "seed": [0, 1]})) == 2
    assert len(load_points({"run": ["a", "a"], "N": [1, 1], "D": [2, 4], "loss": [3.0, 2.9]})) == 2


def test_perplexity_and_bits_are_converted_where_a_person_says_so():
    loss = np.array(RUNS["loss"])
    units = {"perplexity": np.exp(loss), "bits_per_token": loss / np.log(2), "bits_per_byte": loss / np.log(2)}
    for (unit, values), column in zip(units.items(), ("val_ppl", "bpt", "bpb")):
        table = {"N": RUNS["N"], column: values.tolist()}
        with pytest.raises(ScalingError, match=f"write --define loss={unit} to convert it"):
            load(table, rename={"loss": column})
        converted = load(table, rename={"loss": column}, define={"loss": unit})
        assert converted.numbers("loss") == pytest.approx(loss)
        assert converted.definition("loss").startswith("nats per ")
        left = load(table, rename={"loss": column}, define={"loss": "nats_per_token"})
        assert left.numbers("loss").tolist() == values.tolist()


def test_the_table_s_own_column_holds_runs_out():
    columns, few = study(36), {"intervals": "none", "starts": 24}
    held = columns["N"] > 9e9
    by_condition = scaling.fit(columns, hold_out="N>9e9", **few).document
    for words in (held.astype(int), held, np.where(held, "yes", "no")):
        table = {**columns, "held_out": words.tolist()}
        by_column = scaling.fit(table, **few).document
        assert by_column["points"]["count"] == f"{36 - held.sum()} points, {held.sum()} held out"
        assert by_column | {"points": 0} == by_condition | {"points": 0}
    assert scaling.fit(table, hold_out="none", **few).document["points"]["held_out"] == 0
    with pytest.raises(ScalingError, match="held_out='maybe': is neither 0 nor 1"):
        scaling.fit({**columns, "held_out": ["maybe"] * 36})


REFUSED = {
    "did you mean 'loss'": lambda: load()["lss"],
    "from itself": lambda: load(rename={"C": "M*N", "M": "C/N"}),
    "did you mean 'run'": lambda: load(where=["rnu=a"]),
    "did you mean 'a'": lambda: load(where=["run=A "]),
    "'diverged'": lambda: load(status=["finished", "divreged", "failed"]),
    "mixes 'c4' and 'pile'": lambda: load(validation=["c4", "c4", "pile"]),
    "1 run is in the table more than once": lambda: load(run=["a", "a", "b"], D=[1e8] * 3),
    "unique training tokens": lambda: load().require(("N", "U"), 2),
    "differ in length": lambda: load(D=[1e8]),
}
FILES = {
    "ragged.csv": ("N,loss\n1,2\n3\n", "ragged.csv:3: has 1 cells under a header of 2"),
    "word.csv": ("N,loss\n1,2\nmany,3\n", "word.csv:3: N='many'"),
    "comma.csv": ('N,loss\n"1.000,5",2\n', "write a decimal point"),
    "twice.csv": ("N,N\n1,2\n", "two columns are called 'N'"),
    "empty.csv": ("", "holds no rows"),
    "quote.csv": ('N,loss\n1,"2\n', "is not CSV"),
    "binary.csv": (b"N,loss\n\xff\xfe,\x80\n", "not text in UTF-8"),
    "broken.jsonl": ('{"N": 1, "loss": 2}\n{"N": \n', "broken.jsonl:2: is not JSON"),
    "broken.parquet": ("not parquet", "is not parquet"),
    "points.txt": ("N loss", "no reader for .txt"),
    "wrod.csv": (None, "did you mean 'word.csv'?"),
}


def test_what_is_no_table_of_runs_is_one_line_with_its_place_and_its_fix(tmp_path):
    reads = dict(REFUSED)
    for name, (content, what) in FILES.items():
        if content is not None:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        reads[what] = lambda name=name: load(tmp_path / name)
    for what, call in reads.items():
        with pytest.raises(ScalingError) as caught:
            call()
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.fix, "every refusal says how to fix it"
        assert caught.value.code == 2


def test_nothing_heavy_is_imported_until_it_is_used():
    heavy = ["torch", "lightning", "pandas", "pyarrow", "matplotlib", "rich", "scipy.stats"]
    code = f"import sys, scaling.laws.report; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
