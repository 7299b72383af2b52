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
from scaling.interop.template import Format, Name, join, pairs, split
from scaling.model.tuning import LoRA, maps

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
    """The update s B A of one map."""

    down: Tensor  # A [r i]
    up: Tensor  # B [o r]
    scale: float


def write(folder: str | Path, saved: Saved, name: str | None = None) -> type[Format]:
    """Write the LoRA of a tuned model as a folder that peft loads onto its base, and return the base's format."""
    line, below, updates = _updates(saved, "peft's folders hold LoRA")
    form, _ = huggingface.choose(saved.sections, name)
    tensors, ranks = dict[str, Tensor](), dict[str, int]()
    for pair in pairs(form.names, below):
        parts = [updates.get(weight) for weight in pair.ours]
        if any(parts):
            module = pair.theirs.removesuffix(".weight")
            rows = [len(below[weight]) for weight in pair.ours]
            joined = _joined(pair, parts, rows, huggingface.heads_of(saved.sections))
            ranks[module] = len(joined.down)
            tensors |= {f"{_ROOT}{module}.lora_A.weight": joined.down, f"{_ROOT}{module}.lora_B.weight": joined.up}
    rank, per_rank = min(ranks.values()), line.alpha / line.rank
    other = {f"^{re.escape(module)}": its for module, its in ranks.items() if its != rank}
    config = {
        "peft_type": "LORA",
        "task_type": _TASKS[saved.sections["model"]["kind"]],
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": _whole(per_rank * rank),
        "lora_dropout": line.dropout,
        "target_modules": sorted(ranks),
        "rank_pattern": other,
        "alpha_pattern": {pattern: _whole(per_rank * its) for pattern, its in other.items()},
        "fan_in_fan_out": any(pair.layout == "transposed" for pair in form.names),
        "bias": "none",
        "inference_mode": True,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights.write(folder / FILE, tensors, {BASE: weights.digest(below)})
    atomic.write_json(folder / CONFIG, config)
    return form


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def read(folder: str | Path, base: Saved) -> Saved:
    """A base with the LoRA that a folder of peft holds for it."""
    folder = Path(folder)
    refuse(base.sections.get("tuning") is not None, "the model is tuned already", "name its base", key="tuning")
    config, (form, _) = _config(folder), huggingface.choose(base.sections)
    stored = weights.read(folder / FILE)
    _check_base(folder, config, base)
    try:
        updates = _read_updates(config, stored, form, base)
    except ScalingError as error:
        raise error.at(file=folder / FILE) from None
    rank = max(len(update.down) for update in updates.values())
    scale = next(iter(updates.values())).scale
    line = {"kind": "LoRA", "rank": rank, "alpha": scale * rank, "targets": _targets(base, set(updates))}
    if config.get("lora_dropout"):
        line["dropout"] = float(config["lora_dropout"])
    tensors = dict(base.tensors)
    for map_name, update in updates.items():
        more = rank - len(update.down)  # where the ranks of maps differ, what is missing adds nothing
        tensors[f"{map_name}.lora.down"] = pad(update.down, (0, 0, 0, more))
        tensors[f"{map_name}.lora.up"] = pad(update.up * (update.scale / scale), (0, more))
    saved = replace(base, sections={**base.sections, "tuning": line}, tensors=tensors)
    weights.check(tensors, weights.of(empty(saved.sections)), folder / FILE)
    return saved


def merged(saved: Saved) -> Saved:
    """A tuned model as a plain one, its updates added to its matrices."""
    if saved.sections.get("tuning") is None:
        return saved
    _, below, updates = _updates(saved, "no matrix can hold it")
    sums = {name: below[name] + update.scale * (update.up @ update.down) for name, update in updates.items()}
    sections = {key: value for key, value in saved.sections.items() if key != "tuning"}
    return replace(saved, sections=sections, tensors={**below, **sums})


def added(saved: Saved) -> dict[str, Tensor]:
    """The tensors of a model that LoRA added."""
    return {name: tensor for name, tensor in saved.tensors.items() if "lora" in name.split(".")}


def _updates(saved: Saved, else_what: str) -> tuple[LoRA, dict[str, Tensor], dict[str, Update]]:
    """The tuning of a model, the tensors of its base, and the update of each of its matrices."""
    line = saved.sections.get("tuning")
    tuning = None if line is None else build("tuning", line)
    if not isinstance(tuning, LoRA):
        value, what = (None, "the model is not tuned") if tuning is None else (type(tuning).__name__, else_what)
        raise ScalingError(what, key="tuning.kind", value=value, fix="take a model that is tuned by LoRA")
    own, scale = added(saved), tuning.alpha / tuning.rank
    updates = {
        f"{name.removesuffix('.lora.up')}.weight": Update(own[f"{name.removesuffix('up')}down"], up, scale)
        for name, up in own.items()
        if name.endswith(".lora.up")
    }
    return tuning, {name: tensor for name, tensor in saved.tensors.items() if name not in own}, updates


def _joined(pair: Name, updates: list[Update | None], rows: list[int], heads: int) -> Update:
    """One update of the map in which a format joins several of ours."""
    there = [update for update in updates if update is not None]
    first = there[0]
    if len(updates) == 1:
        return first
    if len(there) == len(updates) and all(torch.equal(update.down, first.down) for update in there):
        return Update(first.down, join(pair, [update.up for update in there], heads, is_product=True), first.scale)
    # The columns of B that belong to another map's A are 0.
    blocks = (first.up.new_zeros(count, 0) if update is None else update.up for update, count in zip(updates, rows))
    up = join(pair, list(torch.block_diag(*blocks).split(rows)), heads, is_product=True)
    return Update(torch.cat([update.down for update in there]), up, first.scale)


def _config(folder: Path) -> dict[str, Any]:
    """adapter_config.json without what is null, if it describes LoRA."""
    entries = weights.read_object(folder, CONFIG, "peft").items()
    config = {key: value for key, value in entries if value is not None}
    try:
        if (kind := config.get("peft_type")) != "LORA":
            raise ScalingError("LoRA alone is exchanged with peft", key="peft_type", value=kind)
        for key in _SWITCHES:
            if config.get(key, False) not in _OFF:
                raise ScalingError("no tuning corresponds to it", key=key, value=config[key])
        for key in _TYPES.keys() & config.keys():
            check(key, config[key], _TYPES[key])
        for pattern in config.get("alpha_pattern") or ():
            re.compile(f"({pattern})")
        start = config.get("init_lora_weights")
        what, fix = "this start changes the base's matrices", "convert it to LoRA with peft"
        refuse(isinstance(start, str) and start.startswith(_REPLACED), what, fix, key="init_lora_weights", value=start)
    except re.error as error:
        what = f"expected patterns of names: {error}"
        raise ScalingError(what, file=folder / CONFIG, key="alpha_pattern", value=error.pattern) from None
    except ScalingError as error:
        raise error.at(file=folder / CONFIG) from None
    return config


def _check_base(folder: Path, config: Mapping[str, Any], base: Saved) -> None:
    """Refuse an adapter that names another base, by the hash that we write or by a folder that is here."""
    with safe_open(folder / FILE, "pt") as file:
        hashed = (file.metadata() or {}).get(BASE)
    other = hashed is not None and hashed != weights.digest(base.tensors)
    path = config.get("base_model_name_or_path")
    if hashed is None and path and (Path(path) / huggingface.CONFIG).is_file():
        theirs = huggingface.read(path).tensors
        other = theirs.keys() != base.tensors.keys() or not all(
            torch.equal(tensor, base.tensors[name].to(tensor.dtype)) for name, tensor in theirs.items()
        )
    refuse(
        other, "it was trained on another base" + (f", {path}" if path else ""), _OTHER, file=folder, key="--adapter"
    )


def _read_updates(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], form: type[Format], base: Saved
) -> dict[str, Update]:
    """The update of each of our maps, by the map's name."""
    by_module, by_map = dict[str, dict[str, Tensor]](), dict[str, Update]()
    for name, tensor in tensors.items():
        match = re.fullmatch(r"base_model\.model\.(.+)\.lora_(A|B)(?:\.default)?\.weight", name)
        if match is None:
            fix = "save it without modules_to_save and embeddings"
            raise ScalingError(f"{name} is not an update of a linear map", fix=fix)
        by_module.setdefault(match[1], {})[match[2]] = tensor.float()
    by_theirs = {pair.theirs: pair for pair in pairs(form.names, base.tensors)}
    ours, heads = {each.name for each in maps(empty(base.sections))}, huggingface.heads_of(base.sections)
    for module, both in by_module.items():
        pair = by_theirs.get(f"{module}.weight") or by_theirs.get(f"{form.prefix}{module}.weight")
        if pair is None:
            raise ScalingError(f"{form.architecture} has no map {module}", key="--adapter", fix=_OTHER)
        names = [name.removesuffix(".weight") for name in pair.ours]
        what = f"LoRA is of the maps of mixers and channels, and {module} is none of them"
        refuse(names[0] not in ours, what, "train it without that target")
        shape = base.tensors[pair.ours[0]].shape[1], sum(len(base.tensors[name]) for name in pair.ours)
        is_pair = both.keys() == {"A", "B"} and all(each.ndim == 2 for each in both.values())
        rank = both["A"].shape[0] if is_pair else 0
        if not rank or both["B"].shape[1] != rank or (both["A"].shape[1], len(both["B"])) != shape:
            raise ScalingError(f"the update of {module} is of a map of another shape", key="--adapter", fix=_OTHER)
        down, joined = both["A"], both["B"]
        scale = _scale(config, module, len(down))
        for name, up in zip(names, split(pair, joined, heads, is_product=True), strict=True):
            if len(names) > 1 and up.any():  # the rows of A for which the B of one of several maps is not 0
                acts = up.any(0)
                by_map[name] = Update(down[acts], up[:, acts].contiguous(), scale)
            elif len(names) == 1 or not joined.any():
                by_map[name] = Update(down, up, scale)
    refuse(not by_map, "it holds no update")
    return by_map


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    patterns = (config.get("alpha_pattern") or {}).items()
    alphas = (alpha for pattern, alpha in patterns if re.match(rf"(.*\.)?({pattern})$", module))
    return next(alphas, config.get("lora_alpha", 8)) / (rank**0.5 if config.get("use_rslora") else rank)


def _targets(base: Saved, names: set[str]) -> list[str]:
    """The shortest targets that name these maps and no others: the last parts of names, or the whole names."""
    short = sorted({name.rpartition(".")[2] for name in names})
    try:
        model = empty({**base.sections, "tuning": {"kind": "LoRA", "targets": short}})
    except ScalingError:
        return sorted(names)
    tuned = {name.removesuffix(".lora.up") for name in weights.of(model) if name.endswith(".lora.up")}
    return short if tuned == names else sorted(names)
