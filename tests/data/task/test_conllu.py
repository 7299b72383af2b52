"""CoNLL-U and CoNLL-X: words with the head of each, and trees that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.data.task.layout import conllu

SENTENCE = [("1", "The", "DT", "2"), ("2", "law", "NN", "3"), ("3", "falls", "VB", "0"), ("4", "slowly", "RB", "3")]


def written(words: list[tuple[str, str, str, str]]) -> str:
    return "".join(f"{n}\t{form}\t_\t{tag}\t{tag}\t_\t{head}\tdep\t_\t_\n" for n, form, tag, head in words)


def test_a_sentence_has_its_words_heads_and_depths(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    joined = "1-2\tThe law\t_\t_\t_\t_\t_\t_\t_\t_\n"
    file.write_text(f"# text = The law\n{joined}{written(SENTENCE)}\n\n# next\n{written([('1', 'Go', 'VB', '0')])}")
    first, second = conllu().of_file(file, None, "csv")
    assert first["tokens"] == ["The", "law", "falls", "slowly"]
    assert first["heads"] == ["2", "3", "0", "3"]
    assert first["depths"] == ["3", "2", "1", "2"]
    assert first["upos"] == ["DT", "NN", "VB", "RB"]
    assert second["depths"] == ["1"]


@pytest.mark.parametrize(
    ("words", "line", "what"),
    [
        ([("1", "a", "X", "0"), ("2", "b", "X", "3")], 3, "has 2 words, and the head is none of them"),
        ([("1", "a", "X", "_")], 2, "has 1 word, and the head is none of them"),
        ([("1", "a", "X", "2"), ("2", "b", "X", "1")], 2, "form a circle"),
        ([("1", "a", "X", "0"), ("3", "b", "X", "1")], 3, "numbered from 1"),
    ],
)
def test_a_tree_that_is_none_is_refused_with_its_line(
    words: list[tuple[str, str, str, str]], line: int, what: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.conllu"
    file.write_text("# one\n" + written(words))
    with pytest.raises(ScalingError, match=what) as caught:
        list(conllu().of_file(file, None, "csv"))
    assert (caught.value.file, caught.value.line) == (file, line)


def test_columns_that_are_missing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("a DT\n")
    with pytest.raises(ScalingError, match="1 columns, and CoNLL-U has 10"):
        list(conllu().of_file(tmp_path / "a.conllu", None, "csv"))
