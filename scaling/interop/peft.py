"""LoRA updates as the folders of peft, adapter_config.json and adapter_model.safetensors, to and from our tensors.

The names of a map on either side are in `formats`, as for whole models; peft itself is not needed. Where a format
joins our queries, keys and values in one map, an update of theirs is one of each part with the same A, and ours are one
of theirs whose A are stacked and whose B is in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.functional import pad

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import BelowOne, PositiveFloat
from scaling.config.schema import build, check
from scaling.interop import huggingface, weights
from scaling.interop.huggingface import Saved, empty
from scaling.interop.template import Format, Name, pairs
from scaling.model.tuning import LoRA, maps, targeted

CONFIG, FILE = "adapter_config.json", "adapter_model.safetensors"
BASE = "base_sha256"  # in the file's metadata: of the base's tensors under our names
_ROOT = "base_model.model."
# Keys of adapter_config.json that change what an adapter computes, unless they are off.
_SWITCHES = (
    *("bias", "use_dora", "lora_bias", "use_qalora", "layer_replication", "target_parameters"),
    *("trainable_token_indices", "alora_invocation_tokens", "arrow_config", "corda_config", "megatron_config"),
)
_OFF = (False, "none", [], {})
_TYPES: dict[str, Any] = {
    "base_model_name_or_path": str,
    "lora_alpha": PositiveFloat,
    "lora_dropout": BelowOne,
    "alpha_pattern": Mapping[str, PositiveFloat],
}
_REPLACED = ("pissa", "olora", "corda", "loftq")  # starts that change the base's matrices
_TASKS = {"Encoder": None, "Decoder": "CAUSAL_LM", "EncoderDecoder": "SEQ_2_SEQ_LM"}
_OTHER = "name the model that it was trained on"


class Update(NamedTuple):
    """The update s B A of one matrix."""

    down: Tensor  # A [r i]
    up: Tensor  # B [o r]
    scale: float


# Ours


def merged(saved: Saved) -> Saved:
    """A tuned model as a plain one, its updates added to its matrices."""
    if saved.sections.get("tuning") is None:
        return saved
    _, base, updates = _updates(saved)
    sums = {name: base[name] + update.scale * (update.up @ update.down) for name, update in updates.items()}
    sections = {key: value for key, value in saved.sections.items() if key != "tuning"}
    return replace(saved, sections=sections, tensors={**base, **sums})


def added(saved: Saved) -> dict[str, Tensor]:
    """The tensors of a model that LoRA added."""
    return {name: tensor for name, tensor in saved.tensors.items() if "lora" in name.split(".")}


def _updates(saved: Saved) -> tuple[LoRA, dict[str, Tensor], dict[str, Update]]:
    """The tuning of a model, the tensors of its base, and the update of each of its matrices."""
    line = saved.sections.get("tuning")
    tuning = None if line is None else build("tuning", line)
    if not isinstance(tuning, LoRA):
        kind = None if tuning is None else type(tuning).__name__
        raise ScalingError("the model is not tuned by LoRA", key="tuning.kind", value=kind, fix="take one that is")
    own, scale = added(saved), tuning.alpha / tuning.rank
    updates = {
        f"{name.removesuffix('.lora.up')}.weight": Update(own[f"{name.removesuffix('up')}down"], up, scale)
        for name, up in own.items()
        if name.endswith(".lora.up")
    }
    return tuning, {name: tensor for name, tensor in saved.tensors.items() if name not in own}, updates


# peft's


def write(folder: str | Path, saved: Saved, name: str | None = None) -> type[Format]:
    """Write the LoRA of a tuned model as a folder that peft loads onto its base, and return the base's format."""
    tuning, base, updates = _updates(saved)
    form, _ = huggingface.choose(saved.sections, name)
    tensors, ranks = dict[str, Tensor](), dict[str, int]()
    for pair in _lines(form, base):
        parts = [updates.get(weight) for weight in pair.ours]
        there = [part for part in parts if part is not None]
        if there:
            rows = [len(base[weight]) for weight in pair.ours]
            # The columns of B that belong to another matrix's A are 0; matrices may have one A.
            blocks = [base[pair.ours[0]].new_zeros(n, 0) if part is None else part.up for part, n in zip(parts, rows)]
            ups, down = list(torch.block_diag(*blocks).split(rows)), torch.cat([part.down for part in there])
            if len(there) == len(parts) and all(torch.equal(part.down, there[0].down) for part in there):
                ups, down = blocks, there[0].down
            up = pair.join(ups, huggingface.heads_of(saved.sections))
            module = pair.theirs.removesuffix(".weight")
            tensors[f"{_ROOT}{module}.lora_A.weight"] = down
            tensors[f"{_ROOT}{module}.lora_B.weight"] = up
            ranks[module] = up.shape[1]
    rank, per_rank = min(ranks.values()), tuning.alpha / tuning.rank
    others = {f"^{re.escape(module)}": its for module, its in ranks.items() if its != rank}
    config = {
        "peft_type": "LORA",
        "task_type": _TASKS[saved.sections["model"]["kind"]],
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": per_rank * rank,
        "lora_dropout": tuning.dropout,
        "target_modules": sorted(ranks),
        "rank_pattern": others,
        "alpha_pattern": {pattern: per_rank * its for pattern, its in others.items()},
        "fan_in_fan_out": any(pair.layout == "transposed" for pair in form.names),
        "bias": "none",
        "inference_mode": True,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights.save(folder / FILE, tensors, {BASE: weights.digest(base)})
    atomic.write_json(folder / CONFIG, config)
    return form


def read(folder: str | Path, base: Saved) -> Saved:
    """A base with the LoRA that a folder of peft holds for it."""
    folder = Path(folder)
    refuse(base.sections.get("tuning") is not None, "the model is tuned already", "name its base", key="tuning")
    config, stored = _config(folder), weights.read(folder / FILE)
    _check_base(folder, config, base)
    updates = _read_updates(config, stored, base, folder / FILE)
    rank = max(len(update.down) for update in updates.values())
    scale = next(iter(updates.values())).scale
    short = sorted({name.rpartition(".")[2] for name in updates})
    is_exact = {each.name for each in targeted(empty(base.sections), short)} == updates.keys()
    targets = short if is_exact else sorted(updates)
    line = {"kind": "LoRA", "rank": rank, "alpha": scale * rank, "targets": targets}
    if config.get("lora_dropout"):
        line["dropout"] = float(config["lora_dropout"])
    tensors = dict(base.tensors)
    for name, update in updates.items():
        more = rank - len(update.down)  # where the ranks of maps differ, what is missing adds nothing
        tensors[f"{name}.lora.down"] = pad(update.down, (0, 0, 0, more))
        tensors[f"{name}.lora.up"] = pad(update.up * (update.scale / scale), (0, more))
    return replace(base, sections={**base.sections, "tuning": line}, tensors=tensors)


def _lines(form: type[Format], base: Mapping[str, Tensor]) -> list[Name]:
    """The table's lines for the tensors of a base; no format transposes B, whose rows are those of B A."""
    return [
        replace(pair, layout="by_head" if pair.layout == "by_head" else "plain") for pair in pairs(form.names, base)
    ]


def _config(folder: Path) -> dict[str, Any]:
    """adapter_config.json without what is null, if it describes LoRA."""
    entries, path = weights.read_object(folder, CONFIG, "peft").items(), folder / CONFIG
    config = {key: value for key, value in entries if value is not None}
    kind, start = config.get("peft_type"), config.get("init_lora_weights")
    refuse(kind != "LORA", "LoRA alone is exchanged with peft", file=path, key="peft_type", value=kind)
    for key in _SWITCHES:
        value = config.get(key, False)
        refuse(value not in _OFF, "no tuning corresponds to it", file=path, key=key, value=value)
    what, fix = "this start changes the base's matrices", "convert it to LoRA with peft"
    is_replaced = isinstance(start, str) and start.startswith(_REPLACED)
    refuse(is_replaced, what, fix, file=path, key="init_lora_weights", value=start)
    try:
        for key in _TYPES.keys() & config.keys():
            check(key, config[key], _TYPES[key])
        for pattern in config.get("alpha_pattern", ()):
            re.compile(f"({pattern})")
    except ScalingError as error:
        raise error.at(file=path) from None
    except re.error as error:
        what = f"expected patterns of names: {error}"
        raise ScalingError(what, file=path, key="alpha_pattern", value=error.pattern) from None
    return config


def _check_base(folder: Path, config: Mapping[str, Any], base: Saved) -> None:
    """Refuse an adapter that names another base, by the hash that we write or by a folder that is here."""
    with safe_open(folder / FILE, "pt") as file:
        hashed = (file.metadata() or {}).get(BASE)
    path = config.get("base_model_name_or_path")
    if hashed is None and path and (Path(path) / huggingface.CONFIG).is_file():
        hashed = huggingface.read(path).sha256
    what = "it was trained on another base" + (f", {path}" if path else "")
    refuse(hashed not in (None, base.sha256), what, _OTHER, file=folder, key="--adapter")


def _read_updates(
    config: Mapping[str, Any], stored: Mapping[str, Tensor], base: Saved, file: Path
) -> dict[str, Update]:
    """The update of each of our maps, by the map's name, without the rows of A whose column of B is 0."""
    by_module, updates = dict[str, dict[str, Tensor]](), dict[str, Update]()
    for name, tensor in stored.items():
        match = re.fullmatch(r"base_model\.model\.(.+)\.lora_(A|B)(?:\.default)?\.weight", name)
        if match is None:
            fix = "save it without modules_to_save and embeddings"
            raise ScalingError(f"{name} is not an update of a linear map", file=file, fix=fix)
        by_module.setdefault(match[1], {})[match[2]] = tensor.float()
    form, _ = huggingface.choose(base.sections)
    lines = {pair.theirs.removesuffix(".weight"): pair for pair in _lines(form, base.tensors)}
    weights_of_maps = {f"{each.name}.weight" for each in maps(empty(base.sections))}
    for module, both in by_module.items():
        pair = lines.get(module) or lines.get(f"{form.prefix}{module}")
        if pair is None or pair.ours[0] not in weights_of_maps:
            what = f"{form.architecture} has no map {module} in a mixer or a channel"
            raise ScalingError(what, file=file, key="--adapter", fix=f"{_OTHER}, or train it without that target")
        rows, columns = sum(len(base.tensors[name]) for name in pair.ours), base.tensors[pair.ours[0]].shape[1]
        down, up = (both.get(key, torch.empty(0, 0)) for key in "AB")
        fits = len(down) > 0 and down.shape == (len(down), columns) and up.shape == (rows, len(down))
        what = f"the update of {module} is of a map of another shape"
        refuse(not fits, what, _OTHER, file=file, key="--adapter")
        scale = _scale(config, module, len(down))
        for name, part in zip(pair.ours, pair.split(up, huggingface.heads_of(base.sections)), strict=True):
            acts = part.any(0)
            if len(pair.ours) == 1 or not up.any():  # of one matrix, or not trained yet: all rows
                acts = torch.ones_like(acts)
            if acts.any():
                updates[name.removesuffix(".weight")] = Update(down[acts], part[:, acts].contiguous(), scale)
    refuse(not updates, "it holds no update", file=file)
    return updates


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    """α/r, or α/√r, of a module."""
    patterns = config.get("alpha_pattern", {}).items()
    alphas = (alpha for pattern, alpha in patterns if re.match(rf"(.*\.)?({pattern})$", module))
    return next(alphas, config.get("lora_alpha", 8)) / (rank**0.5 if config.get("use_rslora") else rank)
