from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as to_safetensors

from hushgraph.errors import ContradictionError, LedgerError
from hushgraph.files.reading import tensors_hash
from hushgraph.ledger.certificate import certify
from hushgraph.ledger.checking import Status
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.manifest import require_uncontradicted, verify_model, write_manifest
from hushgraph.ledger.verify import register, sign_off
from toy_plans import carry_out, sums, sums_of


def save(ledger: Ledger, folder: Path, epsilon: float = 1.0) -> Path:
    """A model's folder as `train` leaves it, with made-up weights."""
    weights = to_safetensors({"weights/0": np.array([epsilon])})
    run = carry_out(ledger, sums_of(epsilon), tensors_hash=tensors_hash(weights))
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(weights)
    certificate = certify(ledger.history(), run.identity).as_dict()
    (folder / "certificate.json").write_text(json.dumps(certificate))
    (folder / "config.json").write_text('{"format": 2}')
    write_manifest(folder, ledger, run.identity)
    return folder


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "book")


@pytest.fixture
def model(ledger: Ledger, tmp_path: Path) -> Path:
    return save(ledger, tmp_path / "model")


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_untouched_model_is_verified_and_the_ledger_holds_its_hash(ledger: Ledger, model: Path) -> None:
    found = verify_model(model, ledger)
    assert found.status is Status.VERIFIED
    assert found.exit_code == 0
    assert any("recomputed from the ledger's events" in finding.detail for finding in found.findings)
    assert require_uncontradicted(model, ledger) is Status.VERIFIED
    entry = ledger.history().of_kind("model")[-1].values
    assert entry["model_path"] == str(model)
    assert len(entry["weights_hash"]) == 64
    for _ in range(2):
        carry_out(ledger, sums())  # later runs change totals, not what was true then
    assert verify_model(model, ledger).status is Status.VERIFIED


def test_a_certificate_edited_to_0_01_is_contradicted_with_and_without_its_manifest(
    ledger: Ledger, model: Path
) -> None:
    edit(model / "certificate.json", epsilon=0.01)
    found = verify_model(model, ledger)
    assert found.status is Status.CONTRADICTED
    assert found.exit_code == 4
    assert {"certificate.json", "certificate, epsilon"} <= {f.what for f in found.having(Status.CONTRADICTED)}
    with pytest.raises(ContradictionError, match=r"certificate\.json: was changed"):
        require_uncontradicted(model)
    (model / "manifest.json").unlink()
    found = verify_model(model, ledger)
    assert found.status is Status.CONTRADICTED
    with pytest.raises(ContradictionError, match="manifest: is missing"):
        require_uncontradicted(model)


def test_without_a_manifest_only_old_folders_and_runs_without_a_ledger_are_let_through(
    ledger: Ledger, model: Path
) -> None:
    (model / "manifest.json").unlink()
    (finding,) = verify_model(model, ledger).having(Status.CONTRADICTED)
    assert finding.what == "manifest"
    for name, values in (("config.json", {"format": 1}), ("certificate.json", {"ledger_in_memory": True})):
        before = (model / name).read_text()
        edit(model / name, **values)
        assert require_uncontradicted(model, ledger) is Status.NOT_VERIFIED
        (model / name).write_text(before)


def test_other_files_are_not_called_verified(ledger: Ledger, model: Path) -> None:
    (model / "audit.json").write_text("{}")
    found = verify_model(model, ledger)
    assert found.status is Status.VERIFIED
    assert [finding.detail for finding in found.having(Status.NOT_CHECKED)] == [
        "no part of the saved model: audit.json"
    ]


def test_the_last_word_of_a_person_decides_whether_a_run_is_rejected(ledger: Ledger, model: Path) -> None:
    run = ledger.history().runs()[-1]
    for name in ("officer", "second"):
        register(ledger, name)
    sign_off(ledger, run, "rejected", "officer", "too little noise")
    found = verify_model(model, ledger)
    assert (found.status, found.exit_code) == (Status.REJECTED, 6)
    assert found.headline == "REJECTED (rejected by officer: too little noise); all else is verified"
    sign_off(ledger, run, "approved", "second")
    assert verify_model(model, ledger).status is Status.REJECTED  # for another person
    sign_off(ledger, run, "approved", "officer")
    assert verify_model(model, ledger).status is Status.VERIFIED
    assert sum("by officer" in finding.detail for finding in verify_model(model, ledger).findings) == 1
    (model / "model.safetensors").write_bytes(b"others")
    assert verify_model(model, ledger).status is Status.CONTRADICTED


FIELDS = {
    "delta": 1e-9,
    "unit": {"name": "node", "max_degree": 100},
    "method": "other",
    "charges": [],
    "randomness": "unused",
    "profile": {},
    "public": [{"code": "settings"}],
    "unprotected": [],
    "operator": "somebody else",
    "purpose": "all is well",
    "unpublished": True,
    "ledger_in_memory": True,
    "ledger_hash": "0" * 64,
    "run": "nobody",
    "more": 1,
}


def without_manifest(model: Path) -> None:
    """As a folder of the first format."""
    (model / "manifest.json").unlink()
    edit(model / "config.json", format=1)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_certificate_is_compared(ledger: Ledger, model: Path, field: str) -> None:
    edit(model / "certificate.json", **{field: FIELDS[field]})
    without_manifest(model)
    found = verify_model(model, ledger)
    expected = Status.NOT_VERIFIED if field in ("run", "more", "ledger_hash") else Status.CONTRADICTED
    assert found.status is expected
    assert field in " ".join(finding.what + finding.detail for finding in found.findings)


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", 0.5), ("private", False), ("limit", 1.0), ("used", 0.1), ("left_out", 3)]
)
def test_every_part_of_the_total_is_compared(ledger: Ledger, model: Path, field: str, value: object) -> None:
    total = json.loads((model / "certificate.json").read_text())["total"]
    assert total[field] != value
    edit(model / "certificate.json", total={**total, field: value})
    without_manifest(model)
    found = verify_model(model, ledger)
    assert [finding.what for finding in found.having(Status.CONTRADICTED)] == ["certificate, total"]


def test_a_ledger_in_the_model_folder_is_not_part_of_the_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    ledger = Ledger(model / "ledger")
    shutil.copytree(save(ledger, tmp_path / "made"), model, dirs_exist_ok=True)
    write_manifest(model, ledger, ledger.history().runs()[0])
    assert not any(name.startswith("ledger/") for name in json.loads((model / "manifest.json").read_text())["files"])
    carry_out(ledger, sums())  # it goes on changing
    assert require_uncontradicted(model, ledger) is Status.VERIFIED
    assert verify_model(model, ledger).status is Status.VERIFIED


def test_weights_of_epsilon_50_in_a_folder_of_epsilon_4_are_caught(ledger: Ledger, tmp_path: Path) -> None:
    good, bad = save(ledger, tmp_path / "four", 4.0), save(ledger, tmp_path / "fifty", 50.0)
    shutil.copy(bad / "model.safetensors", good / "model.safetensors")
    found = verify_model(good, ledger)
    assert found.status is Status.CONTRADICTED
    assert [f.what for f in found.having(Status.CONTRADICTED)] == ["model.safetensors", "tensors"]
    with pytest.raises(ContradictionError, match=r"model\.safetensors: was changed"):
        require_uncontradicted(good, ledger)


def test_a_manifest_made_again_for_changed_files_does_not_fit_the_ledger(
    ledger: Ledger, model: Path, tmp_path: Path
) -> None:
    """Whoever can make a signature with another ledger's key, or lists other files, is found by the entry."""
    other = Ledger(tmp_path / "other")
    forged = save(other, tmp_path / "forged", 50.0)
    manifest = json.loads((forged / "manifest.json").read_text())
    own = json.loads((model / "manifest.json").read_text())
    shutil.copy(forged / "model.safetensors", model / "model.safetensors")
    listed = {**own["files"], "model.safetensors": manifest["files"]["model.safetensors"]}
    edit(model / "manifest.json", files=listed)
    found = {f.what for f in verify_model(model, ledger).having(Status.CONTRADICTED)}
    assert found == {"signature", "ledger entry", "tensors"}
    with pytest.raises(ContradictionError, match="signature"):
        require_uncontradicted(model, ledger)
    edit(model / "manifest.json", public_key=manifest["public_key"], signature=other.keys.sign("x"))
    assert verify_model(model, ledger).status is Status.CONTRADICTED


def test_even_a_manifest_signed_with_the_stolen_key_does_not_fit_the_entry(ledger: Ledger, model: Path) -> None:
    from hushgraph.files.reading import sha256_of
    from hushgraph.ledger.manifest import manifest_text

    (model / "model.safetensors").write_bytes(b"other weights")
    own = json.loads((model / "manifest.json").read_text())
    files = {**own["files"], "model.safetensors": sha256_of(model / "model.safetensors")}
    text = manifest_text(own["run"], own["dataset"], own["ledger"], files)
    edit(model / "manifest.json", files=files, signature=ledger.keys.sign(text))
    found = verify_model(model, ledger)
    assert [f.what for f in found.having(Status.CONTRADICTED)] == ["ledger entry", "tensors"]
    with pytest.raises(ContradictionError, match="holds the hash of another manifest"):
        require_uncontradicted(model, ledger)


def _unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "what", "status"),
    [
        (_unlink("manifest.json"), "manifest", Status.CONTRADICTED),
        (without_manifest, "manifest", Status.NOT_VERIFIED),
        (_unlink("ledger_head.json"), "head", Status.NOT_VERIFIED),
        (_unlink("config.json"), "config.json", Status.CONTRADICTED),
        (_unlink("certificate.json"), "certificate", Status.CONTRADICTED),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest", Status.CONTRADICTED),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "manifest", Status.CONTRADICTED),
        (lambda folder: (folder / "ledger_head.json").write_text("{}"), "head", Status.CONTRADICTED),
        (lambda folder: edit(folder / "ledger_head.json", number=10_000), "head", Status.CONTRADICTED),
    ],
)
def test_what_is_missing_and_what_is_wrong_are_told_apart(
    ledger: Ledger, model: Path, change: Callable[[Path], None], what: str, status: Status
) -> None:
    change(model)
    found = verify_model(model, ledger)
    assert found.status is status
    assert what in {finding.what for finding in found.findings if finding.status is not Status.VERIFIED}


def test_without_its_ledger_a_model_is_not_verified(model: Path, tmp_path: Path) -> None:
    for other in (Ledger(tmp_path / "nowhere"), Ledger.in_memory()):
        assert verify_model(model, other).status is Status.NOT_VERIFIED
    another = Ledger(tmp_path / "another")
    carry_out(another, sums())
    found = verify_model(model, another)
    assert found.status is Status.NOT_VERIFIED
    (said,) = (finding.detail for finding in found.having(Status.NOT_VERIFIED))
    assert "the model belongs to ledger" in said
    assert "Pass --ledger DIR" in said
    edit(model / "manifest.json", ledger=another.head().ledger)  # the manifest is signed as it was
    assert verify_model(model, another).status is Status.CONTRADICTED
    edit(model / "manifest.json", ledger=json.loads((model / "ledger_head.json").read_text())["ledger"])
    assert require_uncontradicted(model, another) is Status.NOT_VERIFIED


def test_an_older_copy_of_the_ledger_is_contradicted_by_the_model(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.folder is not None
    carry_out(ledger, sums())
    shutil.copytree(ledger.folder, tmp_path / "backup")
    model = save(ledger, tmp_path / "late")
    found = verify_model(model, Ledger(tmp_path / "backup"))
    assert {"head", "ledger entry", "certificate"} <= {f.what for f in found.having(Status.CONTRADICTED)}


def test_a_damaged_ledger_contradicts(ledger: Ledger, model: Path) -> None:
    assert ledger.path is not None
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("UPDATE entries SET body = replace(body, 'toy', 'yot')")
    connection.close()
    assert verify_model(model, ledger).status is Status.CONTRADICTED


def test_files_added_later_are_named_and_do_not_count(ledger: Ledger, model: Path) -> None:
    (model / "report.html").write_text("<html>")
    found = verify_model(model, ledger)
    assert found.status is Status.VERIFIED
    assert any("report.html" in finding.detail for finding in found.findings)


def test_weights_listed_after_a_change_are_not_those_that_the_run_ended_with(ledger: Ledger, model: Path) -> None:
    """Whoever has the ledger can list any file; the end of the run says which weights it left."""
    run = json.loads((model / "manifest.json").read_text())["run"]
    (model / "model.safetensors").write_bytes(to_safetensors({"weights/0": np.array([50.0])}))
    write_manifest(model, ledger, run)
    assert [f.what for f in verify_model(model, ledger).having(Status.CONTRADICTED)] == ["tensors"]
    write_manifest(model, ledger, run, altered="tuned on public data")
    found = verify_model(model, ledger)
    assert found.status is Status.NOT_VERIFIED
    (finding,) = found.having(Status.NOT_VERIFIED)
    assert "altered after the run: not verified. What was done: tuned on public data" in finding.detail


def test_a_run_that_ended_without_a_hash_is_not_verified(ledger: Ledger, model: Path) -> None:
    run = carry_out(ledger, sums())
    (model / "certificate.json").write_text(json.dumps(certify(ledger.history(), run.identity).as_dict()))
    write_manifest(model, ledger, run.identity)
    found = verify_model(model, ledger)
    assert [f.what for f in found.findings if f.status is not Status.VERIFIED] == ["tensors"]
    assert found.status is Status.NOT_VERIFIED


def test_a_model_that_is_saved_twice_is_verified_in_both_places(ledger: Ledger, model: Path, tmp_path: Path) -> None:
    run = json.loads((model / "manifest.json").read_text())["run"]
    second = Path(shutil.copytree(model, tmp_path / "second"))
    (second / "notes.txt").write_text("another file")
    write_manifest(second, ledger, run)
    for folder in (model, second):
        assert verify_model(folder, ledger).status is Status.VERIFIED
        assert require_uncontradicted(folder, ledger) is Status.VERIFIED


def test_a_model_can_be_listed_only_where_its_run_was_charged(model: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="has no run"):
        write_manifest(model, Ledger(tmp_path / "other"), "nobody")
