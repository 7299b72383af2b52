"""Folders of transformers, config.json and model.safetensors, to and from our config and tensors.

What a model is called on either side stands in `formats`, one table each; here is what is done with any of them.
transformers itself is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaling import atomic
from scaling.build import build
from scaling.data.codec import Codec
from scaling.data.manifest import TOKENIZER
from scaling.errors import ScalingError, nearest
from scaling.interop import weights
from scaling.interop.complete import complete
from scaling.interop.format import Format
from scaling.interop.formats import FORMATS
from scaling.interop.names import to_ours, to_theirs
from scaling.interop.template import NOTHING, at, blanks, fill, mismatches, put
from scaling.model.blank import blank

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
_SPECIALS = ("pad_token", "bos_token", "eos_token", "unk_token", "mask_token", "cls_token", "sep_token")
# Checkpoints made before these words were settled.
_OLD_WORDS = {".gamma": ".weight", ".beta": ".bias"}


_IDS = {"pad": "pad_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "start": "decoder_start_token_id"}


@dataclass(frozen=True)
class Described:
    """A model as we say it, the sections `model` and `size`, with its weights, and the ids of `pad`, `bos`, `eos` and
    `start` (a decoder's first token) where they are known.
    """

    sections: dict[str, Any]
    tensors: dict[str, Tensor]
    ids: dict[str, int] = field(default_factory=dict)


def read(folder: str | Path) -> Described:
    """What a folder of transformers holds, in our words."""
    folder = Path(folder)
    config = _read_config(folder)
    form = _recognise(config, folder / CONFIG)
    try:
        sections = fill(form.template, config)
        sections["size"] = {key: value for key, value in sections["size"].items() if value is not None}
        wanted = weights.of(_on_meta(sections))
    except ScalingError as error:
        raise error.at(file=folder / CONFIG) from None
    heads = heads_of(sections)
    theirs = to_theirs(form.names, wanted, heads)
    found = _plain(form, weights.read_folder(folder), theirs, folder)
    weights.check(found, theirs, weights.place(folder))
    said = {name: config.get(key) for name, key in _IDS.items()}
    # The ids of a model's first release are written by default, whatever the vocabulary.
    known = range(sections["size"]["vocabulary"])
    ids = {name: token for name, token in said.items() if isinstance(token, int) and token in known}
    return Described(sections, to_ours(form.names, wanted, found, heads), ids)


def write(folder: str | Path, described: Described) -> Format:
    """Write a folder that transformers loads, and say as which architecture."""
    folder = Path(folder)
    form, config = choose(described.sections)
    dtype = next(iter(described.tensors.values())).dtype
    config = {**_ids(form, described.ids), **config}
    config |= {"architectures": [form.architecture], "dtype": str(dtype).removeprefix("torch.")}
    folder.mkdir(parents=True, exist_ok=True)
    weights.write(folder / weights.FILE, to_theirs(form.names, described.tensors, heads_of(described.sections)))
    atomic.write_json(folder / CONFIG, config)
    return form


def write_tokenizer(folder: Path, tokenizer: Path) -> None:
    """Put a tokenizer beside the weights, and say which of its tokens are special."""
    codec = Codec.load(tokenizer)
    spelled = {f"{name}_token": codec.tokenizer.id_to_token(token) for name, token in codec.specials.items()}
    known = {name: spelled[name] for name in _SPECIALS if name in spelled}
    atomic.write(folder / TOKENIZER, tokenizer.read_bytes())
    atomic.write_json(folder / TOKENIZER_CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", **known})


def choose(sections: Mapping[str, Any]) -> tuple[Format, dict[str, Any]]:
    """The format that says this model, and the config.json that does."""
    ours = complete(sections)
    tried = []
    for form in FORMATS:
        if form.model["kind"] == ours["model"]["kind"]:
            config = blanks(form.template, ours)
            tried.append((mismatches(form.template, config, ours), form, config))
    if not tried:
        raise ScalingError("transformers has no model of this kind", key="model.kind", value=ours["model"]["kind"])
    missed, form, config = min(tried, key=lambda attempt: len(attempt[0]))
    if missed:
        key, value, theirs = missed[0]
        others = f" (and {len(missed) - 1} more differences)" if len(missed) > 1 else ""
        raise ScalingError(
            f"transformers has no such model; the nearest, {form.architecture}, has {theirs}{others}",
            key=key,
            value=value,
        )
    for key, value in form.config.items():
        if value is not None:
            put(config, key, value)
    return form, config


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ScalingError(f"there is no {CONFIG}", file=folder, mend="name a folder that transformers saved")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ScalingError(f"it is no JSON: {error}", file=path) from None
    if not isinstance(config, dict):
        raise ScalingError("expected a JSON object", file=path)
    return config


def _recognise(config: Mapping[str, Any], path: Path) -> Format:
    kind, named = config.get("model_type"), config.get("architectures") or ()
    candidates = [form for form in FORMATS if form.kind == kind]
    if not candidates:
        kinds = {form.kind for form in FORMATS}
        raise ScalingError("no table for it", file=path, key="model_type", value=kind, mend=nearest(str(kind), kinds))
    candidates.sort(key=lambda form: form.architecture not in named)
    contradictions = [_contradictions(form, config) for form in candidates]
    for form, contradicted in zip(candidates, contradictions, strict=True):
        if not contradicted:
            return form
    key = contradictions[0][0]
    known = " or ".join(sorted({repr(form.config[key]) for form in candidates}))
    raise ScalingError(
        "there is no piece for it", file=path, key=key, value=at(config, key), mend=f"it must be {known}"
    )


def _contradictions(form: Format, config: Mapping[str, Any]) -> list[str]:
    """The keys of config.json that say otherwise than the format."""
    said = {key: at(config, key) for key in form.config}
    return [key for key, value in said.items() if value is not NOTHING and value != form.config[key]]


def _plain(form: Format, found: dict[str, Tensor], wanted: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The tensors of a file without what files may say twice or leave out."""
    for old, new in _OLD_WORDS.items():
        found = {name.removesuffix(old) + new if name.endswith(old) else name: t for name, t in found.items()}
    if form.prefix and not any(name.startswith(form.prefix) for name in found):
        known = {*wanted, *form.copies}
        found = {form.prefix + name if form.prefix + name in known else name: t for name, t in found.items()}
    for copy, source in form.copies.items():
        if copy in wanted:
            if source in found and copy not in found:
                found[copy] = found[source].clone()
        elif copy in found:
            tensor = found.pop(copy)
            if not torch.equal(found.setdefault(source, tensor), tensor):
                raise ScalingError(f"{copy} should be {source} and is not", file=weights.place(folder))
    for name in [name for name in found if name not in wanted]:
        if name in form.zeros and found[name].any():
            raise ScalingError(f"{name} should be zero and is not", file=weights.place(folder))
        if name in form.zeros or any(fnmatch(name, pattern) for pattern in form.derived):
            del found[name]
    return found


def _ids(form: Format, known: Mapping[str, int]) -> dict[str, int | None]:
    """The ids that transformers needs to generate. Unsaid, each of its models would take those of its first release."""
    said = {key: known.get(name) for name, key in _IDS.items()}
    if form.model["kind"] == "EncoderDecoder":
        return said | {_IDS["start"]: known.get("start", known.get("bos", 0)), "forced_eos_token_id": None}
    del said[_IDS["start"]]
    return said


def _on_meta(sections: Mapping[str, Any]) -> torch.nn.Module:
    with blank():
        return build("model", sections["model"], sections["size"])


def heads_of(sections: Mapping[str, Any]) -> int:
    """How many heads a tensor that is joined head by head has."""
    size = sections["size"]
    return size["heads"] if "heads" in size else size["decoder"]["heads"]
