"""Progress: plain lines without a terminal, a bar on one; the same figures in both."""

from __future__ import annotations

import io

from rich.console import Console

from scaling.training import progress

TRAIN = {"kind": "train", "step": 5, "steps": 10, "tokens": 50, "loss": 2.5, "tokens_per_second": 1234.0, "mfu": 0.41}
HELD_OUT = {"kind": "evaluate", "step": 5, "tokens": 50, "loss": 2.25}


def test_plain_lines(capsys):
    with progress.teller() as tell:
        for entry in (TRAIN, TRAIN, HELD_OUT, {"kind": "spike", "step": 6, "above": 1.0}):
            tell(entry)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "step       5 of 10  loss 2.5000  1,234 tokens/s  41% of peak",
        "step       5 held-out loss 2.2500",
    ]


def test_the_bar_on_a_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    bar = progress.Bar()
    for entry in (TRAIN, HELD_OUT, {**TRAIN, "step": 10, "mfu": None}):
        bar(entry)
    bar.close()
    for wanted in ("loss 2.5000", "1,234 tokens/s", "held-out loss 2.2500", "10 of 10"):
        assert wanted in screen.getvalue()
