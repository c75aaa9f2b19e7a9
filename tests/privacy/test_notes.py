from __future__ import annotations

import json
import string

import pytest

from hushgraph.errors import InputError
from hushgraph.privacy import notes
from hushgraph.privacy.metadata import Metadata
from hushgraph.privacy.notes import Code, Note, note
from hushgraph.testing import units


def test_every_code_has_one_sentence_and_every_sentence_a_code() -> None:
    assert set(notes._SENTENCES) == set(Code)
    assert len(set(notes._SENTENCES.values())) == len(Code)


@pytest.mark.parametrize("code", list(Code))
def test_a_note_reads_back_and_shows_its_values(code: Code) -> None:
    fields = [name for _, name, _, _ in string.Formatter().parse(notes._SENTENCES[code]) if name]
    made = note(code, **dict.fromkeys(fields, 12.34567))
    assert Note.from_dict(json.loads(json.dumps(made.as_dict()))) == made
    assert str(made).count("12.35") == len(fields)


def test_unknown_codes_are_refused() -> None:
    for values in ({}, {"code": "rumor"}):
        with pytest.raises(InputError, match="known code"):
            Note.from_dict(values)


@pytest.mark.parametrize("unit", units(), ids=str)
def test_all_notes_of_a_unit_can_be_said(unit: object) -> None:
    made = [*unit.notes(Metadata(10, 5)), *unit.unprotected]  # type: ignore[attr-defined]
    assert made
    assert all("{" not in str(one) for one in made)
