"""Runs are named by what differs between them."""

from scaling.ledger.listing import names


def spec(width: int, steps: int | None, lr: float = 0.003) -> dict:
    schedule = {"kind": "WSD", "decay": 0.2} if steps else {"kind": "trunk"}
    evaluate = {"points": 1, "windows": 2048} if steps else None
    train = {"batch": 8, **({"steps": steps} if steps else {})}
    return {
        "size": {"width": width, "layers": 2},
        "optimizer": {"lr": lr},
        "schedule": schedule,
        "evaluate": evaluate,
        "train": train,
    }


def test_runs_are_named_by_the_keys_that_differ():
    told = names({"a": spec(16, 100), "b": spec(16, 200), "c": spec(32, 100)})
    assert told == {"a": "width=16 steps=100", "b": "width=16 steps=200", "c": "width=32 steps=100"}


def test_a_trunk_adds_nothing_to_the_names_of_runs():
    told = names({"a": spec(16, 100), "b": spec(32, 100), "t": spec(16, None), "u": spec(32, None)})
    assert told == {"a": "width=16", "b": "width=32", "t": "trunk width=16", "u": "trunk width=32"}


def test_one_trunk_is_a_trunk():
    assert names({"a": spec(16, 100), "b": spec(16, 200), "t": spec(16, None)})["t"] == "trunk"
