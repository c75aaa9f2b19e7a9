from __future__ import annotations

from commands import flat, run, run_json


def test_built_in_graphs_are_there_and_all_are_listed() -> None:
    records = {record["name"]: record for record in run_json("datasets")["datasets"]}
    assert records["campus"]["present"]
    assert records["digits"]["kind"] == "built-in"
    text = flat(run("datasets"))
    assert all(name in text for name in records)
    assert "generated social network" in text
