"""Point: what a run contributes to a table or a law besides its loss; the same from the ledger and from W&B."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaling.data.source import Source
from scaling.training.schedule import WSD

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

DEFINITIONS = {
    "N_definition": "without embeddings",
    "D_definition": "tokens read, repeats counted",
    "loss_definition": "held-out cross-entropy, nats a token",
    "C_definition": "matrix products as they run, forward and backward",
}
COLUMNS = (
    *("N", "D", "C", *DEFINITIONS, "N_total"),
    *("C_6N", "C_6N_non_embedding", "C_kaplan_with_attention", "C_with_last_layer", "C_with_attention_and_last_layer"),
    *("U", "M", "S", "B", "lr", "cooldown", "seed", "width", "depth", "tokenizer", "validation", "entropy"),
    "beside",  # the run of which a run of a study tells whether it is tuned
)
EXACT = 2**53  # from here on a whole number is not one float


def point(experiment: Experiment) -> dict[str, Any]:
    """N, D, C and their definitions, with its batch, rate, tokenizer and validation set; plain values."""
    cost, tokens, source = experiment.cost, experiment.tokens(experiment.steps), experiment.batches.source
    columns = {
        "N": cost.parameters_non_embedding,
        "D": tokens,
        "C": cost.flops_train_per_token * tokens,
        **DEFINITIONS,
        "N_total": cost.parameters,
        **{f"C_{name}": per_token * tokens for name, per_token in cost.approximations.items()},
        "M": tokens / cost.parameters,
        "S": experiment.steps,
        "B": experiment.size.size(0) * experiment.row_tokens,
        "lr": experiment.optimizer.lr,
        "seed": experiment.seed,
        "width": cost.shape.width,
        "depth": cost.shape.layers,
        "tokenizer": _first(source).fingerprint,
        "validation": experiment.validation.source.fingerprint,
    }
    if source.tokens is not None:
        columns["U"] = min(source.tokens, tokens)
    if experiment.entropy is not None:
        columns["entropy"] = experiment.entropy
    if isinstance(experiment.schedule, WSD):
        columns["cooldown"] = experiment.steps - experiment.schedule.cooldown(experiment.steps)
    for number, (name, fraction) in enumerate(zip(source.domains, source.fractions), 1):
        columns |= {f"p_{number}": fraction, f"p_{number}_definition": f"fraction of the tokens that are of {name}"}
    return canonical(columns)


def _first(source: Source) -> Source:
    """Of what the losses' tokens are; a mixture's are the same whatever its shares are."""
    return _first(source.sources[0]) if source.sources else source


def canonical(columns: Mapping[str, Any]) -> dict[str, Any]:
    """A point in one order and one spelling, whatever it has passed through."""
    shares = sorted((key for key in columns if key.startswith("p_")), key=lambda key: (len(key), key))
    return {key: plain(columns[key]) for key in (*COLUMNS, *shares) if key in columns}


def plain(value: Any) -> Any:
    """One spelling for each number, whatever JSON it has passed: whole ones are whole as long as a float is exact."""
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= EXACT:
        return float(value)
    return value
