from __future__ import annotations

import pytest

from commands import flat, run, run_json
from hushgraph import registry


def test_every_method_is_listed_with_its_units() -> None:
    records = {record["name"]: record for record in run_json("methods")["methods"]}
    assert list(records) == registry.names("methods")
    assert records["dp-gnn"]["units"] == ["node", "node-replace"]
    assert records["pgc"]["units"] == ["local"]
    assert records["gcn"]["units"] == []
    assert all(name in flat(run("methods")) for name in records)


def test_settings_have_defaults_help_bounds_and_older_names() -> None:
    shown = run_json("methods", "dp-gnn")
    assert shown["settings"]["num_layers"] == 1
    assert shown["aliases"]["layers"] == "num_layers"
    text = run("methods", "gap").stdout
    assert "--set hops=2" in text
    assert "at least 1" in text
    assert "--set epochs=auto" in text
    assert "hidden = hidden_channels" in text
    assert "one of " in run_json("methods", "gap")["help"]["combine"]


@pytest.mark.parametrize("name", registry.names("methods"))
def test_defaults_can_be_typed_back(name: str) -> None:
    """What `methods NAME` shows behind --set, given to --set, changes nothing."""
    kind = registry.load("methods", name)
    lines = [line.split("--set ")[1] for line in run("methods", name).stdout.splitlines() if line.startswith("  --set")]
    typed = kind.from_words(dict(line.split("=", 1) for line in lines))
    assert len(lines) > 0
    assert kind(**typed) == kind()


def test_every_page_fits_80_columns() -> None:
    for name in registry.names("methods"):
        assert name in flat(run("methods", name))


def test_a_method_without_a_proof_says_what_it_needs() -> None:
    assert "needs --epsilon inf" in flat(run("methods", "gcn"))


def test_an_unknown_name_is_met_with_the_closest() -> None:
    wrong = run("methods", "gapp")
    assert (wrong.exit_code, "did you mean 'gap'" in wrong.output) == (2, True)


def test_settings_of_units_are_listed_with_the_method() -> None:
    assert run_json("methods", "gap")["unit_settings"]["node"] == {"max_degree": 100}
    assert "with --unit node: --set max_degree=100" in flat(run("methods", "gap"))
