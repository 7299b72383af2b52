"""Write a trained model as a folder that another library loads.

scaling export 3f2a                        # a run of the ledger, by the beginning of its id
scaling export my_model --to my_model_hf   # a folder of config.yaml and model.safetensors
scaling export 3f2a --adapter              # of a run tuned by LoRA the updates alone, as peft loads them
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.command.document import numbered
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from torch import Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, or a folder")
    parser.add_argument(
        "--format",
        default="hf",
        help="hf: the first of transformers' that fits; or one by name (`scaling explain format`)",
    )
    parser.add_argument(
        "--adapter", action="store_true", help="only the LoRA updates of a tuned run; without it they are merged"
    )
    parser.add_argument("--to", metavar="FOLDER", help="where to (RUN-hf; RUN-adapter)")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.interop import huggingface, peft
    from scaling.interop.run import read

    folder = new_folder(arguments.to or f"{Path(arguments.run).name}-{'adapter' if arguments.adapter else 'hf'}")
    trained = read(arguments.run, arguments.runs or RUNS)
    name = None if arguments.format == "hf" else arguments.format
    if arguments.adapter:
        form = peft.write(folder, trained.described, name=name)
        _print(arguments, folder, form.architecture, peft.updates(trained.described))
        return
    described = peft.merged(trained.described)
    form = huggingface.write(folder, described, name)
    if trained.tokenizer is not None:
        huggingface.write_tokenizer(folder, trained.tokenizer, described)
    _print(arguments, folder, form.architecture, described.tensors)


def _print(arguments: argparse.Namespace, folder: Path, architecture: str, tensors: Mapping[str, Tensor]) -> None:
    count = sum(tensor.numel() for tensor in tensors.values())
    if arguments.json:
        written = {"folder": str(folder), "architecture": architecture, "parameters": count}
        print(json.dumps(numbered(written), indent=2))
    else:
        print(f"{folder}: {architecture}, {count:,} parameters")


def new_folder(name: str) -> Path:
    """A folder that holds nothing yet, or is not there."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScalingError("it is there already", file=folder, fix="name another with --to")
    return folder
