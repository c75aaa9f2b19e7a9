"""YAML files: what they unfold to is judged before it is built."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hushgraph.errors import InputError
from hushgraph.files.plain_yaml import LARGEST_YAML, read_yaml


def read(tmp_path: Path, text: str) -> object:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return read_yaml(path, of="a study file")


def test_plain_values_and_names_for_parts_are_read(tmp_path: Path) -> None:
    text = "a: &a {b: 1, c: [x, 2.5, true]}\nd: {<<: *a, e: 2020-01-01}\nf: *a\n"
    part = {"b": 1, "c": ["x", 2.5, True]}
    assert read(tmp_path, text) == {"a": part, "d": {**part, "e": "2020-01-01"}, "f": part}
    assert read(tmp_path, "") is None


BOMB = "a0: &a0 [lol]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 12)
)
MERGED = "a0: &a0 {k: v}\n" + "".join(
    f"a{number}: &a{number} {{<<: [{', '.join([f'*a{number - 1}'] * 10)}]}}\n" for number in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "unfolds to more"),
        (MERGED, "unfolds to more"),
        ("a: &a [*a]\n", "contains itself"),
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ("[" * 50_000, "YAML"),
        (f"a: {'9' * 5000}\n", "a number has 5000 digits"),
        ("a: 1\na: 2\n", "a twice"),
        ("{[1, 2]: 3}\n", "a key that is no word"),
        ("a: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
        ("a: !!binary aGk=\n", "could not determine a constructor"),
        ("a: \x00\n", "YAML"),
        ("a: b" + " " * LARGEST_YAML, "at most 131,072 bytes"),
    ],
)
def test_hostile_texts_are_refused_at_once(text: str, said: str, tmp_path: Path) -> None:
    begun = time.process_time()
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)
    assert time.process_time() - begun < 1.0


def test_a_missing_file_and_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a study file"):
        read_yaml(tmp_path / "none.yaml", of="a study file")
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(InputError, match="YAML"):
        read_yaml(tmp_path / "a.yaml", of="a study file")
