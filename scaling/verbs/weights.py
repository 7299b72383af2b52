"""Weights for other libraries, and from them: folders of transformers, and LoRA of peft."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from scaling.base.errors import ScalingError
from scaling.verbs.train import Run, named
from scaling.verbs.verb import RUNS, Flag, Result, verb


@verb
def export(
    run: str | Run,
    *,
    form: Annotated[str, Flag("format")] = "hf",
    adapter: bool = False,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
) -> Result:
    """Write a trained model as a folder that transformers loads.

        scaling export 3f2a                        a run of the ledger, by the beginning of its id
        scaling export my_model --to my_model_hf   a folder of config.yaml and model.safetensors
        scaling export 3f2a --adapter              of a run tuned by LoRA the updates alone, as peft loads them

        scaling.export("3f2a").folder

    Args:
        run: a run's id, or a folder
        form: hf, the first format of transformers that fits, or one by name (`scaling explain format`)
        adapter: only the LoRA updates of a tuned run; without it they are merged
        to: where to (RUN-hf; RUN-adapter)
    """
    from scaling.interop import huggingface, peft
    from scaling.interop.run import read

    target = to or f"{Path(named(run)).name}-{'adapter' if adapter else 'hf'}"
    saved, name = read(named(run), runs), None if form == "hf" else form
    with _new(target) as folder:
        if adapter:
            tensors, written = peft.updates(saved), peft.write(folder, saved, name=name)
        else:
            saved = peft.merged(saved)
            tensors, written = saved.tensors, huggingface.write(folder, saved, name)
    return _written(target, "architecture", written.architecture, tensors)


@verb
def import_(folder: str | Path, *, adapter: str | Path | None = None, to: str | Path | None = None) -> Result:
    """Read a folder that transformers saved, and write it as one of ours: config.yaml and model.safetensors.

        scaling import gpt2-folder --to gpt2
        scaling generate gpt2 --prompt "The law of"
        scaling import gpt2-folder --adapter lora-folder   with the LoRA that peft saved for it

        scaling.import_("gpt2-folder").folder

    Args:
        folder: config.json and safetensors, as transformers saves them
        adapter: a folder of adapter_config.json and safetensors, as peft saves LoRA for this model
        to: where to (FOLDER-imported)
    """
    from scaling.interop import huggingface, peft
    from scaling.interop.run import write

    target, saved = to or f"{Path(folder).name}-imported", huggingface.read(folder)
    if adapter is not None:
        saved = peft.read(adapter, saved)
    with _new(target) as work:
        write(work, saved, str(Path(folder) / huggingface.CONFIG))
    return _written(target, "kind", saved.sections["model"]["kind"], saved.tensors)


@contextmanager
def _new(name: str | Path) -> Iterator[Path]:
    """A folder that is not there yet, or holds nothing: whole or not there, whatever happens while it is written."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScalingError("it is there already", file=folder, fix="name another with --to")
    work = folder.absolute().with_name(f".{folder.absolute().name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        yield work
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _written(folder: str | Path, what: str, name: str, tensors: Any) -> Result:
    count = sum(tensor.numel() for tensor in tensors.values())
    document = {"folder": str(folder), what: name, "parameters": count}
    return Result(document, [f"{folder}: {name}, {count:,} parameters"])
