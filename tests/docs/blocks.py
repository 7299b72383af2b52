"""The documents of the repository: their blocks of code, and the commands in them, as a reader would type them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))  # tests/examples runs them
PROGRAMS = ("scaling", "wandb", "python", "make", "open", "pip", "pytest")
_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^ {4}.*\n|(?<=\n)\n(?= {4}))+", re.MULTILINE)
_COMMAND = re.compile(rf"^(?:\$ )?(?:\.venv/bin/)?((?:{'|'.join(PROGRAMS)}) .*)$")
_SPELLED = re.compile(r"`(?:\.venv/bin/)?(scaling [a-z]+(?: [^`\n]*)?)`")
_FILE = re.compile(r"# ([\w./-]+\.(?:ya?ml|py|csv))\b")


@dataclass(frozen=True)
class Block:
    """A block of a document, fenced or indented."""

    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of the block, those over several lines as one, without what is said beside them."""
        lines = self.text.replace("\\\n", " ").splitlines()
        found = [match[1] for line in lines if (match := _COMMAND.match(line))]
        return [_without_remark(command) for command in found]

    @property
    def answers(self) -> dict[str, str]:
        """The line on standard error that the block shows below a command: a refusal or a remark."""
        pairs = re.findall(r"^\$ (.*)\n(scaling: .*)$", self.text, re.MULTILINE)
        return {_without_remark(command): line for command, line in pairs}

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, where its first line says so."""
        match = _FILE.match(self.text)
        return None if match is None else match[1]


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    fenced = [(match.start(), match[1]) for match in _FENCE.finditer(text)]
    plain = _FENCE.sub(lambda match: re.sub(r"[^\n]", "-", match[0]), text)
    indented = [
        (match.start(), re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE)) for match in _INDENTED.finditer(plain)
    ]
    return [Block(text) for _, text in sorted(fenced + indented)]


def spelled(document: Path) -> list[str]:
    """The commands of `scaling` within a document's sentences and tables."""
    return [match[1] for match in _SPELLED.finditer(document.read_text(encoding="utf-8"))]


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def _without_remark(command: str) -> str:
    """A command up to the remark behind it: a `#`, or a column of its own, three spaces on."""
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: "_" * len(match[0]), command)
    remark = re.search(r"\s#|\s{3,}", quoted)
    return command[: remark.start()].rstrip() if remark else command.rstrip()
