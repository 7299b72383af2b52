"""A table of runs of known law, and `scaling fit` called as a person calls it."""

import json

import numpy as np
import pandas

from scaling.cli import main

TRUTH = {"E": 1.7, "A": 400.0, "B": 900.0, "alpha": 0.34, "beta": 0.3}
MAP = ["--map", "N=params", "D=tokens", "loss=final"]


def loss(N, D):
    return TRUTH["E"] + TRUTH["A"] * N ** -TRUTH["alpha"] + TRUTH["B"] * D ** -TRUTH["beta"]


def write(path, columns):
    pandas.DataFrame(columns).to_csv(path, index=False)
    return str(path)


def columns():
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6)))
    noise = 1 + 0.002 * np.random.default_rng(1).standard_normal(36)
    return {"run": [f"r{i}" for i in range(36)], "params": N, "tokens": D, "final": loss(N, D) * noise}


def printed(capsys, *words):
    """What a command prints: its document with `--json`, else its text."""
    starts = [] if {"--starts", "envelope", "isoflop_akima"} & {*words} else ["--starts", "128"]
    assert main(["fit", *words, *starts]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out) if "--json" in words else out


def fitted(capsys, *words):
    return printed(capsys, *words, "--json")


def refusal(capsys, *words):
    """The one line that a command is refused with."""
    assert main(["fit", *map(str, words)]) == 2, words
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("scaling: ")
    assert err.count("\n") == 1, err
    return err
