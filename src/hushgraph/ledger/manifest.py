"""The manifest of the folder of a model or a released graph: a hash of every file, signed, bound to the ledger.

`verify_model` recomputes the run's epsilon from the ledger's events and compares the certificate field by field; it
says of each point whether it was checked. `require_uncontradicted` is the quick check before a folder is used.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hushgraph.errors import ContradictionError, HushgraphError, InputError, LedgerError
from hushgraph.files.reading import Form, damage_named, read_json, require_fields, sha256_of, tensors_hash
from hushgraph.files.writing import json_text, plain, write_whole
from hushgraph.ledger.certificate import certify
from hushgraph.ledger.checking import Finding, Status, Verification, bad, good, missing, outside, rejected, run_problems
from hushgraph.ledger.entries import Entry, History, canonical, own_version
from hushgraph.ledger.keys import HEAD, contradiction, is_signed, read_head, write_head
from hushgraph.ledger.ledger import Ledger
from hushgraph.ledger.verify import standing
from hushgraph.text import rounded_up

FILE = "manifest.json"
WEIGHTS, GRAPH = "model.safetensors", "graph.npz"
CERTIFICATE, CONFIG = "certificate.json", "config.json"
FEATURES_CERTIFICATE = "certificate-features.json"
"""The second promise of a released graph whose features were randomized too: a run of its own in the same ledger."""
_NOT_LISTED = (FILE, HEAD)
_WORDS = ("accountant",)
_OF_THE_RUN = ("run", "method", "unit", "epsilon", "delta", "profile", "mu", "paper", "charges")
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Manifest:
    """What a folder held when its model was saved."""

    run: str
    dataset: str
    ledger: str
    files: dict[str, str]
    public_key: str
    signature: str

    @property
    def text(self) -> str:
        """What is signed and entered in the ledger."""
        return manifest_text(self.run, self.dataset, self.ledger, self.files)

    @property
    def digest(self) -> str:
        """The hash that the ledger holds."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder."""
        values = read_json(folder / FILE)
        require_fields(values, _FORM, folder / FILE)
        names = list(values["files"])
        if set(values) != {*_FORM, "format"} or not all(_is_inside(name) for name in names):
            raise InputError(f"{folder / FILE}: expected a manifest of files in this folder; got {sorted(values)}")
        return cls(**{key: value for key, value in values.items() if key != "format"})


_FORM: dict[str, Form] = {
    "files": dict,
    **dict.fromkeys(("run", "dataset", "ledger", "public_key", "signature"), str),
}


def _is_inside(name: str) -> bool:
    """Whether a listed file lies in the folder itself: another would be read on behalf of whoever wrote the list."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\x00" not in name


def manifest_text(run: str, dataset: str, ledger: str, files: dict[str, str]) -> str:
    """The one text of a manifest."""
    what = {"what": "hushgraph model", "run": run, "dataset": dataset, "ledger": ledger, "files": files}
    return canonical(what)


def write_manifest(folder: str | os.PathLike[str], ledger: Ledger, run: str, altered: str | None = None) -> Path:
    """List and sign the files of a model's folder, enter the list in the ledger, and put the ledger's head there.

    `altered` says what was done to the model after its run, if anything was.
    """
    place = Path(folder)
    files = {name: sha256_of(place / name) for name in _names(place, ledger.folder)}
    with ledger.transaction() as rows:
        opened = next((entry for entry in rows.of_run(run) if entry.kind == "open"), None)
        first = rows.first()
        if opened is None or first is None:
            raise LedgerError(f"the ledger has no run '{run}': a model is listed in the ledger that was charged for it")
        text = manifest_text(run, opened.values["dataset"], first.hash, files)
        values = {"run": run, "dataset": opened.values["dataset"], "model_path": str(place.absolute())}
        values |= {
            "manifest": hashlib.sha256(text.encode()).hexdigest(),
            "weights_hash": files.get(WEIGHTS, files.get(GRAPH)),
        }
        values |= {} if altered is None else {"altered": altered}
        ledger.append("model", values)
        signature, public = ledger.keys.sign(text), ledger.keys.public
    shown = {"format": 1, "run": run, "dataset": values["dataset"], "ledger": first.hash, "files": files}
    path = write_whole(place / FILE, json_text({**shown, "public_key": public, "signature": signature}))
    write_head(place, ledger)
    return path


def _names(folder: Path, ledger: Path | None) -> list[str]:
    """The files of a folder, without those of a ledger that lies in it and goes on changing."""
    inside = None if ledger is None else ledger.resolve()
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and inside not in path.resolve().parents)
    return [name for path in found if (name := path.relative_to(folder).as_posix()) not in _NOT_LISTED]


# The quick check


def require_uncontradicted(folder: str | os.PathLike[str], ledger: Ledger | None = None) -> Status:
    """Refuse a folder that contradicts its own manifest or the ledger; reads the files and a few entries.

    A folder of a run whose ledger was in memory has no manifest, and is let through as not verified. Nothing is
    recomputed: that is `verify_model`.
    """
    place = Path(folder)
    if not (place / FILE).is_file():
        findings = [_without_manifest(place)]
    else:
        manifest = Manifest.read(place)
        findings = [_signature(manifest), *_file_findings(place, manifest)]
        entry = _bound_entry(ledger, manifest)
        findings.append(_binding(manifest, entry) if entry is not None else missing("ledger", "not at hand"))
    found = Verification(tuple(findings))
    if wrong := found.having(Status.CONTRADICTED):
        listed = "; ".join(f"{finding.what}: {finding.detail}" for finding in wrong)
        raise ContradictionError(
            f"{place}: expected the model that was saved; got another. {listed}. Use a folder that was not changed, or "
            "train again; `hushgraph verify` tells more"
        )
    return found.status


def _without_manifest(folder: Path) -> Finding:
    """Whether a folder can do without: one of format 1, or one whose run was entered in no ledger that lasts."""
    try:
        config, certificate = (read_json(folder / name) for name in (CONFIG, CERTIFICATE))
    except InputError as error:
        return missing("manifest", f"is missing, and so is what would say whether there was one: {error}")
    if certificate.get("ledger_in_memory"):
        return missing("manifest", "there is none: by its certificate the run's ledger was in memory and ended with it")
    if not isinstance(config.get("format"), int) or config["format"] < 2:
        return missing("manifest", "is missing: nothing says which files belong to the run")
    return bad("manifest", "is missing: nothing tells whether files were exchanged. Put it back from a copy")


def _bound_entry(ledger: Ledger | None, manifest: Manifest) -> Entry | None:
    if ledger is None or not ledger.exists or ledger.is_old:
        return None
    try:
        with ledger.reading() as rows:
            first = rows.first()
            if first is None or first.hash != manifest.ledger:
                return None
            return _listing([entry for entry in rows.of_run(manifest.run) if entry.kind == "model"], manifest)
    except LedgerError:
        return None


def _listing(entries: list[Entry], manifest: Manifest) -> Entry | None:
    """The entry of the folder with this manifest; a model may be saved more than once. Else the last one."""
    own = [entry for entry in entries if entry.values["manifest"] == manifest.digest]
    return next(iter([*reversed(own), *reversed(entries)]), None)


def _file_findings(folder: Path, manifest: Manifest) -> list[Finding]:
    findings = []
    for name, digest in manifest.files.items():
        path = folder / name
        if not path.is_file():
            findings.append(bad(name, "is in the manifest, and missing in the folder"))
        elif sha256_of(path) != digest:
            findings.append(bad(name, "was changed since it was saved (its hash is not that of the manifest)"))
    released = GRAPH if GRAPH in manifest.files else WEIGHTS
    for name in (released, CERTIFICATE):
        if name not in manifest.files:
            findings.append(missing(name, "is not in the manifest"))
    if not findings:
        findings.append(good("files", f"{len(manifest.files)} as they were saved: {', '.join(manifest.files)}"))
    return findings


def _signature(manifest: Manifest, public: str | None = None) -> Finding:
    """Whether the manifest is signed with the ledger's key; where no ledger is at hand, with the one that it names."""
    whose = "the key that it names" if public is None else "the ledger's key"
    if public in (None, manifest.public_key) and is_signed(manifest.text, manifest.signature, manifest.public_key):
        return good("signature", f"the manifest is signed with {whose}")
    return bad("signature", f"the manifest was changed, or signed with another key than {whose}")


def _binding(manifest: Manifest, entry: Entry) -> Finding:
    if entry.values["manifest"] == manifest.digest:
        return good("ledger entry", f"entry {entry.number} holds the hash of this manifest")
    return bad(
        "ledger entry", f"entry {entry.number} holds the hash of another manifest: files or manifest were changed"
    )


# The whole check


def verify_model(folder: str | os.PathLike[str], ledger: Ledger) -> Verification:
    """Check a model's folder against its manifest and the ledger, and the certificate against the ledger's events."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"expected a model's folder; {place} is {'a file' if place.exists() else 'not there'}")
    findings: list[Finding] = []
    with damage_named(place):
        return _verified(place, ledger, findings)


def _verified(place: Path, ledger: Ledger, findings: list[Finding]) -> Verification:
    manifest = _read_manifest(place, findings)
    if manifest is not None:
        findings += _file_findings(place, manifest)
        if others := sorted(set(_names(place, ledger.folder)) - set(manifest.files)):
            findings.append(outside("other files", f"no part of the saved model: {', '.join(others)}"))
    history = _read_ledger(ledger, findings, _owner(place, manifest))
    if history is None and manifest is not None:
        findings.append(_signature(manifest))
    if history is not None:
        findings += _ledger_findings(place, manifest, history)
        findings += _certificate_findings(place, history, CERTIFICATE, manifest)
        if (place / FEATURES_CERTIFICATE).is_file():
            findings += _certificate_findings(place, history, FEATURES_CERTIFICATE, None)
    return Verification(tuple(findings))


def _read_manifest(folder: Path, findings: list[Finding]) -> Manifest | None:
    if not (folder / FILE).is_file():
        findings.append(_without_manifest(folder))
        return None
    try:
        return Manifest.read(folder)
    except InputError as error:
        findings.append(bad("manifest", str(error)))
        return None


def _owner(folder: Path, manifest: Manifest | None) -> str | None:
    """The ledger that a folder names as its own: the hash of its first entry."""
    if manifest is not None:
        return manifest.ledger
    try:
        return read_head(folder).ledger
    except InputError:
        return None


def _read_ledger(ledger: Ledger, findings: list[Finding], owner: str | None) -> History | None:
    if not ledger.exists:
        findings.append(missing("ledger", f"none in {ledger.folder}: the promise cannot be computed again"))
        return None
    try:
        history = ledger.history()
    except HushgraphError as error:
        findings.append(bad("ledger", str(error)))
        return None
    own = history.entries[0].hash
    if owner is not None and owner != own:
        here = f"the one in {ledger.folder} is {own[:16]}..."
        findings.append(missing("ledger", f"the model belongs to ledger {owner[:16]}...; {here} Pass --ledger DIR"))
        return None
    findings.append(good("ledger", f"{len(history.entries)} entries, each follows from the one before"))
    return history


def _ledger_findings(folder: Path, manifest: Manifest | None, history: History) -> list[Finding]:
    findings = [_head(folder, history)]
    if manifest is None:
        return findings
    findings.append(_signature(manifest, history.entries[0].values["public_key"]))
    entry = _listing(history.of_run(manifest.run, "model"), manifest)
    if entry is None:
        findings.append(bad("ledger entry", f"the ledger holds no model of run {manifest.run}"))
        return findings
    findings.append(_binding(manifest, entry))
    if GRAPH not in manifest.files:
        findings.append(_tensors(folder, entry, history.of_run(manifest.run, "close")))
    return findings + [_sign_off(entry) for entry in standing(history.of_run(manifest.run, "signoff"))]


def _tensors(folder: Path, entry: Entry, closed: list[Entry]) -> Finding:
    """Whether weights and released values are those that the run ended with."""
    ended = closed[0].values.get("tensors_hash") if closed else None
    if ended is None:
        return missing("tensors", "the ledger holds no hash of them from the end of the run")
    try:
        found = tensors_hash((folder / WEIGHTS).read_bytes())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return bad("tensors", f"{WEIGHTS} cannot be read")
    if found == ended:
        return good("tensors", "weights and released values are those that the run ended with")
    reason = entry.values.get("altered")
    if reason is not None:
        return missing("tensors", f"altered after the run: not verified. What was done: {reason}")
    return bad("tensors", "weights or released values are not those that the run ended with")


def _head(folder: Path, history: History) -> Finding:
    if not (folder / HEAD).is_file():
        return missing("head", f"{HEAD} is missing: an older copy of the ledger would pass")
    try:
        words = contradiction(read_head(folder), history)
    except InputError as error:
        return bad("head", str(error))
    return bad("head", words) if words else good("head", "the ledger still holds all that it held when this was saved")


def _sign_off(entry: Entry) -> Finding:
    values = entry.values
    note = f": {values['note']}" if values["note"] else ""
    make = rejected if values["verdict"] == "rejected" else good
    return make("sign-off", f"{values['verdict']} by {values['name']}{note}")


def _certificate_findings(folder: Path, history: History, name: str, manifest: Manifest | None) -> list[Finding]:
    """One certificate against the ledger; `manifest` is that of its run, where there is one."""
    try:
        saved = read_json(folder / name)
    except InputError as error:
        return [missing("certificate", str(error))]
    run = str(saved.get("run"))
    if manifest is not None and manifest.run != run:
        return [bad("certificate", f"is that of run {run}; the manifest lists run {manifest.run}")]
    if run not in history.runs():
        own = manifest is not None and manifest.ledger == history.entries[0].hash
        words = f"the ledger has no run {run}"
        return [bad("certificate", words) if own else missing("certificate", f"{words}: it is another ledger")]
    problems = run_problems(history, run)
    if problems:
        return [bad("run", problem) for problem in problems]
    seeded = bool(history.opened(run)["seeded"])
    try:
        then = history.until(str(saved.get("ledger_hash")))
    except LedgerError as error:
        named = {name: saved.get(name) for name in _OF_THE_RUN}
        again = certify(history, run).as_dict()
        found = _compared(named, {name: again[name] for name in _OF_THE_RUN}, saved, seeded)
        make = bad if manifest is not None else missing
        return [make("certificate, ledger_hash", f"{error}; totals were not compared"), *found]
    return _compared(plain(saved), certify(then, run).as_dict(), saved, seeded)


def _compared(saved: dict[str, Any], again: dict[str, Any], whole: dict[str, Any], seeded: bool) -> list[Finding]:
    """The certificate field by field against the one that the ledger's events give now."""
    same_version = whole.get("versions", {}).get("hushgraph") == own_version()
    findings = []
    for name in sorted({*saved, *again} - {"versions"}):
        if name not in saved or name not in again:
            findings.append(missing(f"certificate, {name}", "is not a field of this version; not compared"))
        elif not _equal(saved[name], again[name]):
            words = f"says {_short(saved[name])}; the ledger gives {_short(again[name])}"
            only_words = name in _WORDS and not same_version
            note = f"{words} (words of another version; not compared)"
            findings.append(missing(f"certificate, {name}", note) if only_words else bad(f"certificate, {name}", words))
    if findings:
        return findings
    words = f"epsilon {rounded_up(float(again['epsilon']))} at delta {again['delta']:g} for '{again['unit']['name']}'"
    words += f", recomputed from the ledger's events; all {len(again)} fields agree"
    return [good("certificate", words + (". The noise was seeded: NOT PRIVATE" if seeded else ""))]


def _equal(saved: Any, again: Any) -> bool:
    if isinstance(saved, float) and isinstance(again, float | int) and not isinstance(again, bool):
        return math.isclose(saved, again, rel_tol=_TOLERANCE)
    if isinstance(saved, dict) and isinstance(again, dict):
        return saved.keys() == again.keys() and all(_equal(saved[key], again[key]) for key in saved)
    return bool(saved == again)


def _short(value: Any) -> str:
    words = str(value)
    return words if len(words) <= 60 else words[:57] + "..."
