"""`hushgraph doctor`: does this machine have what a private run needs?"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any

import typer

from hushgraph.cli.console import Json, command, echo, show_json, show_words

CORE = (
    "torch",
    "torch-geometric",
    "dp-accounting",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
    "cryptography",
    "jinja2",
)
OPTIONAL = {
    "numba": "faster sums over large graphs",
    "fastapi": "hushgraph ui, hushgraph collect serve",
    "tensorboard": "train --track tensorboard:FOLDER",
    "mlflow": "train --track mlflow:URI",
    "opacus": "benchmarks",
    "ray": "edges, teachers and studies on several machines",
    "ogb": "OGB datasets",
}


@command
def doctor(as_json: Json = False) -> None:
    """Check the installation: packages, entropy, noise, accountant, a ledger on this disk."""
    checks = [_python(), *_packages(), _entropy(), _noise(), _accountant(), _ledger(), _data_folder(), *_optional()]
    healthy = all(check["ok"] for check in checks if check["needed"])
    if as_json:
        show_json({"healthy": healthy, "checks": checks})
    else:
        for check in checks:
            mark = "ok  " if check["ok"] else ("FAIL" if check["needed"] else "-   ")
            show_words(f"{mark} {check['what']:<22} {check['detail']}", indent=28)
        echo("all that is needed is here" if healthy else "something that is needed is missing: see FAIL above")
    if not healthy:
        raise typer.Exit(1)


def _check(what: str, ok: bool, detail: str, needed: bool = True) -> dict[str, Any]:
    return {"what": what, "ok": ok, "detail": detail, "needed": needed}


def _python() -> dict[str, Any]:
    found = platform.python_version_tuple()
    return _check(
        "python", (int(found[0]), int(found[1])) >= (3, 11), f"{platform.python_version()}, {os.cpu_count()} cores"
    )


def _packages() -> list[dict[str, Any]]:
    checks = []
    for name in CORE:
        try:
            checks.append(_check(name, True, metadata.version(name)))
        except metadata.PackageNotFoundError:
            checks.append(_check(name, False, "not installed; run make, or pip install hushgraph"))
    return checks


def _entropy() -> dict[str, Any]:
    return _check("entropy", os.urandom(32) != os.urandom(32), "operating system's random source answers")


def _noise() -> dict[str, Any]:
    from hushgraph.noise.source import NoiseSource

    sample = NoiseSource.from_os().integer_gaussian(100_000, 1000.0).double()
    spread = float(sample.std())
    words = f"100,000 whole numbers have standard deviation {spread:.1f} (expected 1000)"
    return _check("noise", abs(spread - 1000.0) < 20.0, words)


def _accountant() -> dict[str, Any]:
    from hushgraph.privacy.events import gaussian
    from hushgraph.privacy.loss import PrivacyLoss
    from hushgraph.privacy.units import Relation

    epsilon = PrivacyLoss(gaussian(1.8354, 2), Relation.ADD_OR_REMOVE).epsilon(1e-7)
    return _check(
        "accountant", abs(epsilon - 4.0) < 1e-3, f"two Gaussians of scale 1.8354 cost {epsilon:.4f} (expected 4)"
    )


def _ledger() -> dict[str, Any]:
    from hushgraph.ledger.checking import Status
    from hushgraph.ledger.ledger import Ledger
    from hushgraph.ledger.verify import verify_ledger
    from hushgraph.privacy.units import Record

    with tempfile.TemporaryDirectory() as folder:
        book = Ledger(Path(folder) / "ledger")
        book.set_limit(1.0, 1e-6, dataset="doctor", unit=Record())
        sound = not verify_ledger(book).having(Status.CONTRADICTED)
    return _check("ledger", sound, "written, locked, flushed and verified in the temporary folder")


def _data_folder() -> dict[str, Any]:
    from hushgraph.datasets.catalog import DATA_VARIABLE, data_folder

    folder = data_folder()
    found = folder is not None and folder.is_dir()
    detail = "not set" if folder is None else f"{folder} ({'found' if found else 'not there'})"
    return _check(
        DATA_VARIABLE, found, detail if found else f"{detail}; only studies and benchmarks need it", needed=False
    )


def _optional() -> list[dict[str, Any]]:
    checks = [
        _check(name, util.find_spec(name) is not None, f"for {purpose}", needed=False)
        for name, purpose in OPTIONAL.items()
    ]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    checks.append(_check("chromium", chromium is not None, "to look at reports in tests", needed=False))
    return checks
