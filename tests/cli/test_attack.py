from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import run
from hushgraph.cli.attack import add_result, lines

RESULT: dict[str, Any] = {
    "name": "LinkTeller",
    "target": "gap",
    "assumes": "sends features",
    "note": "not private: evaluation",
    "auc": 0.51,
    "auc_low": 0.5,
    "auc_high": 0.52,
    "balanced_accuracy": 0.505,
    "tpr_at": {"0.01": {"value": 0.1, "low": 0.08, "high": 0.12}, "0.001": None},
    "details": {"pairs": 100, "curve": [1, 2]},
}


def test_figures_are_marked_as_an_evaluation() -> None:
    shown = lines(RESULT)
    assert shown[0] == "LinkTeller on gap (not private: evaluation)"
    text = "\n".join(shown)
    for part in ("AUC 0.510 [0.500, 0.520]", "1% false positives: 10.00% found", "too few guesses", "pairs: 100"):
        assert part in text
    assert "proves nothing" in shown[-1]
    assert "curve" not in text


def test_the_same_attack_on_the_same_target_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "attacks.json"
    add_result(path, RESULT)
    add_result(path, {**RESULT, "auc": 0.7})
    add_result(path, {**RESULT, "target": "other"})
    found = json.loads(path.read_text())["attacks"]
    assert [(one["target"], one["auc"]) for one in found] == [("gap", 0.7), ("other", 0.51)]


def test_what_an_attack_needs_is_said(tmp_path: Path) -> None:
    for words, message in (
        (["linkteller", "--data", "campus"], "needs MODEL"),
        (["inversion", "--data", "x.npz", "--model", tmp_path], "leave MODEL out"),
        (["linkteler", "--data", "campus"], "did you mean 'linkteller'"),
    ):
        result = run("attack", *words)
        assert result.exit_code == 2
        assert message in result.output
