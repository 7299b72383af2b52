"""Names to files: `gpt2`, `table/narang2021`, `size: gpt2/small`, `data: python`, or a path.

Data may also be named by their own file or folder: `data: reviews.csv`.

A name is looked for next to the file that contains it, then in its group's folder of the shipped configs, then from
their root. What ends in .yaml or .yml is a path.
"""

from __future__ import annotations

from pathlib import Path

from scaling.config.node import Node
from scaling.config.reader import read
from scaling.errors import ScalingError, nearest

SUFFIXES = (".yaml", ".yml")
LADDER = "ladder"
GROUPS = {"data": ("data", "task")}  # the folders of a group that has more than its own
TOKENS = (".npy", ".bin")  # endings of arrays of token ids
SAVED = ("dataset_dict.json", "state.json")  # one of them is in every folder that `save_to_disk` of `datasets` wrote


def shipped() -> Path:
    """The folder of the shipped configs: inside the package once installed, next to it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "_configs"
    return inside if inside.is_dir() else package.parent / "configs"


def find(group: str, name: str, *, beside: Path | None = None) -> Path:
    """The file that `name` means for a group (`model`, `size`, `data`, `table`, `study`)."""
    if name.endswith(SUFFIXES):
        path = Path(name).expanduser()
        path = path if beside is None else beside / path
        if not exists(path):
            near = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
            raise ScalingError(f"there is no file {str(path)!r}", fix=nearest(path.name, (file.name for file in near)))
        return path
    if beside is not None and beside.name != group and beside.resolve().parent == shipped().resolve():
        beside = None  # another group's folder: model/t5.yaml says size: t5/small and does not mean itself
    for folder in (beside, *(shipped() / folder_name for folder_name in GROUPS.get(group, (group,))), shipped()):
        if folder is not None and exists(candidate := folder / f"{name}.yaml"):
            return candidate
    folder, slash, _ = name.partition("/")
    choices = [f"{folder}/{choice}" for choice in names(folder)] if slash else names(group)
    raise ScalingError(f"there is no {group} {name!r}", fix=nearest(name, choices or names(group)))


def own_data(name: str) -> tuple[str, str] | None:
    """The shipped data config for a file or a folder of one's own, and its key that names the file; None of no file."""
    if not exists(path := Path(name).expanduser()):
        if path.suffix:
            raise ScalingError(f"there is no file {name!r}", fix="give the path of a file or a folder with data")
        return None
    if any((path / file).is_file() for file in SAVED):
        return "saved", "data.corpus.path"
    files = [file for file in path.glob("[!.]*") if file.is_file()] if path.is_dir() else [path]
    if files and all(file.suffix in TOKENS for file in files):
        return "tokens", "data.files"
    return "files", "data.corpus.files"


def exists(path: Path) -> bool:
    """Whether there is such a path; there is none of a name that no file can have."""
    try:
        return path.exists()
    except OSError:
        return False


def names(group: str) -> list[str]:
    """The shipped names of a group."""
    return sorted(
        path.stem for folder_name in GROUPS.get(group, (group,)) for path in (shipped() / folder_name).glob("*.yaml")
    )


def find_size(name: str, *, beside: Path | None = None) -> Node:
    """The size that `gpt2/small` or `tiny` means: an entry of a family's file, of the ladder's where none is named."""
    family, slash, entry = name.rpartition("/")
    if slash:
        entries = _entries(find("size", family, beside=beside))
        if entry in entries:
            return entries[entry]
        raise ScalingError(f"{family} has no size {entry!r}", fix=nearest(entry, entries))
    ladder = _entries(find("size", LADDER))
    if name in ladder:
        return ladder[name]
    families = {family: _entries(find("size", family)) for family in names("size") if family != LADDER}
    holders = [family for family, entries in families.items() if name in entries]
    if len(holders) == 1:
        return families[holders[0]][name]
    if holders:
        choices = ", ".join(f"{family}/{name}" for family in holders)
        raise ScalingError(f"several families have a size {name!r}", fix=f"name one of {choices}")
    every = [*ladder, *(f"{family}/{entry}" for family, entries in families.items() for entry in entries)]
    raise ScalingError(f"there is no size {name!r}", fix=nearest(name, every))


def _entries(path: Path) -> dict[str, Node]:
    entries = read(path).mapping
    if entries is None:
        raise ScalingError("expected sizes by name", file=path, fix="write `name: {width: …, layers: …}`")
    return dict(entries)
