"""Columns become features by declared rules alone."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from commands import run
from hushgraph.cli.importing import declared_features
from hushgraph.errors import InputError
from hushgraph.importing.rules import Dates, Range, rule_of

JOINED = rule_of("joined", ("2010-01-01", "2020-01-01"))


def test_dates_lie_between_the_declared_ones_in_whatever_form_they_come() -> None:
    day = datetime.date
    forms = [
        pa.array(["2010-01-01", "2015-01-01", " 2020-01-01 ", "n/a", "2026-05-05"]),
        pa.array([day(2010, 1, 1), day(2015, 1, 1), day(2020, 1, 1), None, day(2026, 5, 5)]),
        pa.array(
            [
                datetime.datetime(2010, 1, 1),
                datetime.datetime(2015, 1, 1),
                datetime.datetime(2020, 1, 1),
                None,
                datetime.datetime(2026, 5, 5),
            ],
            pa.timestamp("ns"),
        ),
    ]
    middle = (day(2015, 1, 1) - day(2010, 1, 1)) / (day(2020, 1, 1) - day(2010, 1, 1))
    for values in forms:
        found, notes = JOINED.encode(values, "nodes")
        assert found.tolist() == [[0.0], [np.float32(middle)], [1.0], [0.5], [1.0]]
        assert [note.count for note in notes] == [1, 1]


def test_the_value_of_one_person_is_all_that_a_rule_looks_at() -> None:
    alone = JOINED.encode(pa.array(["2013-07-01"]), "nodes")[0]
    assert JOINED.encode(pa.array(["2013-07-01", "1900-01-01", "2999-01-01"]), "nodes")[0][0] == alone[0]


def test_dates_are_declared_on_the_command_line_and_written_back() -> None:
    found = declared_features(None, None, None, None, ["joined=2010-01-01:2020-01-01"])
    assert rule_of("joined", found["joined"]) == JOINED
    assert JOINED.as_words() == "--date joined=2010-01-01:2020-01-01"
    with pytest.raises(InputError, match=r"--date: expected COLUMN=2010-01-01:2026-01-01; got 'joined=1\.1\.2010'"):
        declared_features(None, None, None, None, ["joined=1.1.2010"])


def test_wrong_dates_are_told() -> None:
    with pytest.raises(InputError, match="expected a first date before the last"):
        rule_of("joined", ("2020-01-01", "2010-01-01"))
    for values in (pa.array(["31.12.2020"]), pa.array([2020])):
        with pytest.raises(InputError, match="nodes: expected dates such as 2026-01-31 in column 'joined'"):
            JOINED.encode(values, "nodes")


def test_dates_that_were_declared_as_numbers_are_told_what_they_are() -> None:
    for values in (pa.array(["2013-07-01"]), pa.array([datetime.date(2013, 7, 1)])):
        with pytest.raises(InputError, match=r"got dates\. Declare the first and the last date \(--date joined="):
            Range("joined", 0.0, 1.0).encode(values, "nodes")


def test_a_date_without_a_rule_is_refused_with_the_one_to_give(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "nodes.csv").write_text("id,joined\n0,2013-07-01\n1,2014-07-01\n2,2015-01-01\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    words = ["import", "--edges", tmp_path / "edges.csv", "--nodes", tmp_path / "nodes.csv", "--undirected"]
    refused = run(*words, "--out", tmp_path / "g")
    assert "--date joined=2010-01-01:2026-01-01" in " ".join(refused.output.split())
    done = run(*words, "--date", "joined=2010-01-01:2020-01-01", "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output


def test_two_words_are_categories_and_two_dates_are_dates() -> None:
    assert isinstance(rule_of("joined", (datetime.date(2010, 1, 1), datetime.date(2020, 1, 1))), Dates)
    assert rule_of("city", ("Rome", "Oslo")).names == ["city=Rome", "city=Oslo"]
