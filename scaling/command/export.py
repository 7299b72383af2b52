"""Write a trained model as a folder that another library loads.

scaling export 3f2a                        # a run of the ledger, by the beginning of its id
scaling export my_model --to my_model_hf   # a folder of config.yaml and model.safetensors
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scaling.command.document import numbered
from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, or a folder")
    parser.add_argument(
        "--format",
        default="hf",
        help="hf: the first of transformers' that fits; or one by name (`scaling explain format`)",
    )
    parser.add_argument("--to", metavar="FOLDER", help="where to (RUN-hf)")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.interop import huggingface
    from scaling.interop.run import read

    folder = new_folder(arguments.to or f"{Path(arguments.run).name}-hf")
    trained = read(arguments.run, arguments.runs or RUNS)
    form = huggingface.write(folder, trained.described, None if arguments.format == "hf" else arguments.format)
    if trained.tokenizer is not None:
        huggingface.write_tokenizer(folder, trained.tokenizer)
    count = sum(tensor.numel() for tensor in trained.described.tensors.values())
    if arguments.json:
        written = {"folder": str(folder), "architecture": form.architecture, "parameters": count}
        print(json.dumps(numbered(written), indent=2))
    else:
        print(f"{folder}: {form.architecture}, {count:,} parameters")


def new_folder(name: str) -> Path:
    """A folder that holds nothing yet, or is not there."""
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScalingError("it is there already", file=folder, fix="name another with --to")
    return folder
