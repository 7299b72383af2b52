"""Setup: how runs were trained, as their specs state it.

Where the runs agree a part has one value; where they differ it states each value, or the range of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.ledger.document import text

MOST = 4  # different values that are stated one by one
OF_DATA = ("vocabulary", "length")  # of a size: the tokenizer's and the batch's

Spec = Mapping[str, Any]


def setup(specs: Sequence[Spec], results: Sequence[Mapping[str, Any] | None] = ()) -> dict[str, str]:
    """Sentences by the names of `scaling.laws.points.SETUP`; `results` state how often data are repeated."""
    train = [spec.get("train", {}) for spec in specs]
    trainer = [spec.get("trainer", {}) for spec in specs]
    optimizer = [spec.get("optimizer") for spec in specs]
    data = [spec.get("data") for spec in specs]
    size = [spec.get("size") for spec in specs]
    parts = {
        "architecture": (_line(_of(specs, "model")), _keys([_without(section, *OF_DATA) for section in size])),
        "optimizer": (
            _line([_without(section, "lr") for section in optimizer]),
            _labelled("gradient norm up to", trainer, "gradient_clip_val"),
        ),
        "lr": (_line(_of(optimizer, "lr")), _labelled("parametrization", specs, "parametrization")),
        "schedule": (_line(_of(specs, "schedule")), _ends(_of(trainer, "max_steps"))),
        "batch": (_labelled("rows", train, "batch"), _labelled("length", size, "length")),
        "tokenizer": (_tokenizer(data), _labelled("vocabulary", size, "vocabulary")),
        "data": (_line([_without(section, "fingerprint", "tokenizer") for section in data]), _repetition(results)),
        "validation": (_validation(_of(specs, "evaluate")),),
    }
    answers = {key: "; ".join(part for part in sentences if part) for key, sentences in parts.items()}
    return {key: answer for key, answer in answers.items() if answer}


def _of(nodes: Sequence[Any], key: str) -> list[Any]:
    return [node[key] for node in nodes if isinstance(node, Mapping) and node.get(key) is not None]


def _without(node: Any, *keys: str) -> Any:
    return {key: value for key, value in node.items() if key not in keys} if isinstance(node, Mapping) else node


def _labelled(label: str, nodes: Sequence[Any], key: str) -> str:
    values = _of(nodes, key)
    return f"{label} {_line(values)}" if values else ""


def _tokenizer(data: Sequence[Any]) -> str:
    synthetic = [isinstance(line, Mapping) and line.get("kind") == "Synthetic" for line in data]
    return "none: the data are symbols" if data and all(synthetic) else _line(_of(data, "tokenizer"))


def _ends(steps: Sequence[int]) -> str:
    return f"each run's ends at its own last step: {_line(steps)}" if steps else ""


def _validation(evaluations: Sequence[Spec]) -> str:
    windows = [line.get("windows") or "all" for line in evaluations]
    return f"the validation split of the data, {_line(windows)} of its windows" if windows else ""


def _repetition(results: Sequence[Mapping[str, Any] | None]) -> str:
    """How often the data were seen, where each run has a result that states it."""
    passes = [None if result is None else result.get("passes") for result in results]
    most = max((count for count in passes if count is not None), default=None)
    if most is None or None in passes:
        return ""
    return f"repeated up to {most:.3g} times" if most > 1 else "nothing is repeated"


def _line(values: Sequence[Any]) -> str:
    """One value, or different ones: what lines of one kind share is stated once."""
    different = list({text(value): value for value in values if value is not None}.values())
    if len(different) < 2:
        return _spelled(different[0]) if different else ""
    if all(isinstance(value, Mapping) for value in different) and len({value.get("kind") for value in different}) == 1:
        kind = different[0].get("kind")
        return f"{kind} ({_keys(different)})" if kind else _keys(different)
    if all(isinstance(value, int | float) for value in different):
        return f"{min(different):,} to {max(different):,}, {len(different)} values"
    more = f" and {len(different) - MOST} more" if len(different) > MOST else ""
    return " or ".join(map(_spelled, different[:MOST])) + more


def _keys(lines: Sequence[Any]) -> str:
    """`width 16 to 96, 6 values; layers 2`: the keys of lines, each with its values; a key that some lack varies."""
    lines = [line for line in lines if isinstance(line, Mapping)]
    keys = dict.fromkeys(key for line in lines for key in line if key != "kind")
    entries = []
    for key in keys:
        values = [line.get(key) for line in lines]
        absent = "" if all(key in line for line in lines) else " or its default"
        entries.append(f"{key} {_line(values) or 'null'}{absent}")
    return "; ".join(entries)


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} {_spelled(item)}" for key, item in value.items() if key != "kind")
        kind = value.get("kind")
        return inner if kind is None else f"{kind} ({inner})" if inner else str(kind)
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else text(value)
