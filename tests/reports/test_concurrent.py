"""Two commands that report one study at once: the files are those of the one that read the ledger last."""

from __future__ import annotations

import csv
import threading
from collections.abc import Callable

from scaling.ledger import Ledger
from scaling.reports.write import write
from scaling.studies.plan import enter, plan
from scaling.studies.question import read

LAST = 9


def overtaken(first: Ledger, planned, meanwhile: Callable[[], object]) -> None:
    """A report that has read the ledger and not yet written its page, until another has come as far as it can."""
    waits = threading.Event()
    second = threading.Thread(
        target=lambda: write(Ledger.open(first.root), planned, lambda step: waits.set() if "wait" in step else None)
    )

    def pause(step: str) -> None:
        if step == "write the page":
            meanwhile()
            second.start()
            while second.is_alive() and not waits.wait(0.01):
                pass

    write(first, planned, pause)
    second.join()


def test_a_slower_report_does_not_replace_a_newer_one(made_study, tmp_path):
    ledger, planned = made_study(tmp_path, {"law: chinchilla": ""}, lambda place: None if place == LAST else "finished")
    run = planned.runs[LAST].run

    def end() -> None:
        with ledger.claim(run) as attempt:
            attempt.finish("finished", {"loss": 2.5, "step": 1, "tokens": 8, "circumstances": {}})

    overtaken(ledger, planned, end)
    report = ledger.study_folder("small") / "report"
    assert "10 finished" in (report / "index.html").read_text()
    with (report / "points.csv").open(newline="") as lines:
        assert [row["status"] for row in csv.DictReader(lines)] == ["finished"] * 10


def test_a_report_has_the_runs_by_which_another_command_extended_the_study(made_study, tmp_path):
    ledger, planned = made_study(tmp_path, {"law: chinchilla": ""})
    file = tmp_path / "small.yaml"
    file.write_text(file.read_text().replace("[2k, 4k, 8k]", "[2k, 4k, 8k, 16k]"))
    extended = plan(read(str(file)), [f"runs={ledger.root}"])

    overtaken(ledger, planned, lambda: enter(ledger, "small", extended))
    points = (ledger.study_folder("small") / "report" / "points.csv").read_text()
    assert [line.partition(",")[0] for line in points.splitlines()[1:]] == [run.run for run in extended.runs]
