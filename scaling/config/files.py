"""Files by name: the shipped configs, and those of a user."""

from __future__ import annotations

import os
from pathlib import Path

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config.document import Config, read_layer

FOLDERS = {"data": ["data", "task"]}  # of a group that has others than that of its name
SUFFIXES = (".yaml", ".yml")
TOKENS = (".npy", ".bin", ".ds")  # endings of arrays of token ids, and of files that lie beside some of them
BESIDE_TOKENS = (".idx", ".index", ".metadata")
SAVED = ("dataset_dict.json", "state.json")  # one of them is in every folder that `save_to_disk` of `datasets` wrote


def shipped() -> Path:
    """The folder of the shipped configs: inside the package once installed, next to it in a checkout."""
    inside = Path(__file__).parents[1] / "_configs"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "configs"


def names(group: str) -> list[str]:
    """The shipped names of a group."""
    return sorted(path.stem for folder in FOLDERS.get(group, [group]) for path in (shipped() / folder).glob("*.yaml"))


def find(group: str, name: str, *, beside: Path | None = None) -> Path:
    """The file that `name` means for a group (`model`, `size`, `data`, `table`, `study`): next to the file that holds
    the name, in the group's folder of the shipped configs, or from their root. What ends in .yaml or .yml is a path.
    """
    if name.endswith(SUFFIXES):
        path = (beside or Path()) / Path(os.path.expanduser(name))
        if not os.path.exists(path):
            near = (file.name for file in path.parent.glob("*.y*ml"))
            raise ScalingError(f"there is no file {str(path)!r}", fix=nearest(path.name, near))
        return path
    if beside is not None and beside.name != group and beside.resolve().parent == shipped().resolve():
        beside = None  # another group's folder: model/t5.yaml says size: t5/small and does not mean itself
    for folder in (beside, *(shipped() / each for each in FOLDERS.get(group, [group])), shipped()):
        if folder is not None and os.path.exists(path := folder / f"{name}.yaml"):
            return path
    folder = name.rpartition("/")[0]
    choices = [f"{folder}/{choice}" for choice in names(folder)] if folder.isidentifier() else []
    raise ScalingError(f"there is no {group} {name!r}", fix=nearest(name, choices or names(group)))


def find_size(name: str, *, beside: Path | None = None) -> Config:
    """The section `size` of `gpt2/small`; without a family, of the ladder or of the one family that has the entry."""
    family, slash, entry = name.rpartition("/")
    families = [family] if slash else ["ladder", *names("size")]
    sizes = {each: read_layer(find("size", each, beside=beside if slash else None)) for each in families}
    holders = [each for each in sizes if entry in sizes[each].tree]
    if not holders:
        prefixes = {each: f"{each}/" if slash or each != "ladder" else "" for each in sizes}
        choices = [f"{prefix}{size}" for each, prefix in prefixes.items() for size in sizes[each].tree]
        raise ScalingError(f"there is no size {name!r}", fix=nearest(name, choices))
    if len(holders) > 1 and holders[0] != "ladder":
        choices = ", ".join(f"{each}/{entry}" for each in holders)
        raise ScalingError(f"several families have a size {name!r}", fix=f"name one of {choices}")
    holder = sizes[holders[0]]
    if not isinstance(holder.tree[entry], dict):
        raise holder.error(entry, "expected the size's keys", "write {width: …, layers: …}")
    size = holder.part(entry)
    places = {f"size.{key}": place for key, place in size.origin.items()}
    return Config({"size": size.tree}, {"size": holder.origin[entry], **places})


def data_at(name: str) -> tuple[str, str] | None:
    """The shipped data config for a file or a folder of a user, and its key that names the file; None of no file."""
    if not os.path.exists(path := Path(os.path.expanduser(name))):
        fix = f"write data=files data.corpus.files={name!r}" if "*" in name else "give the path of a file or a folder"
        refuse(path.suffix, f"there is no file {name!r}", fix)
        return None
    if any((path / file).is_file() for file in SAVED):
        return "saved", "data.corpus.path"
    files = [file for file in path.glob("[!.]*") if file.is_file()] if path.is_dir() else [path]
    files = [file for file in files if file.suffix not in BESIDE_TOKENS]
    if files and all(file.suffix in TOKENS for file in files):
        return "tokens", "data.files"
    return "files", "data.corpus.files"
