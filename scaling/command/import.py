"""Read a folder that transformers saved, and write it as one of ours: config.yaml and model.safetensors.

scaling import gpt2-folder --to gpt2
scaling generate gpt2 --prompt "The law of"
scaling import gpt2-folder --adapter lora-folder   # with the LoRA that peft saved for it
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scaling.command.document import numbered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="config.json and safetensors, as transformers saves them")
    parser.add_argument(
        "--adapter", metavar="FOLDER", help="adapter_config.json and safetensors, as peft saves LoRA for this model"
    )
    parser.add_argument("--to", metavar="FOLDER", help="where to (FOLDER-imported)")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.command.export import new_folder
    from scaling.data.manifest import TOKENIZER
    from scaling.interop import huggingface, peft
    from scaling.interop.run import Run, write

    source = Path(arguments.folder)
    folder = new_folder(arguments.to or f"{source.name}-imported")
    tokenizer = source / TOKENIZER
    described = huggingface.read(source)
    if arguments.adapter is not None:
        described = peft.read(arguments.adapter, described)
    write(folder, Run(described, tokenizer if tokenizer.is_file() else None), str(source / huggingface.CONFIG))
    kind = described.sections["model"]["kind"]
    count = sum(tensor.numel() for tensor in described.tensors.values())
    if arguments.json:
        print(json.dumps(numbered({"folder": str(folder), "kind": kind, "parameters": count}), indent=2))
    else:
        print(f"{folder}: {kind}, {count:,} parameters")
