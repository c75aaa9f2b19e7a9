"""The sdist and the wheel that is made from it, installed in an environment that knows no source tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, PathDistribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import hushgraph

ROOT = Path(__file__).resolve().parents[1]
NOT_IN_THE_LOCK = {"ogb"}
"""Extras that nobody needs here: what they ask for is not installed for the tests."""


def _build(folder: Path, out: Path, what: str) -> Path:
    program = f"from setuptools import build_meta; print(build_meta.build_{what}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy, so that nothing is written beside the sources."""
    tree = tmp_path_factory.mktemp("tree")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "src", tree / "src", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    return _build(tree, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    return _build(tree, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. Its dependencies are those of this one, by path, and so without our sources."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    words = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *words, wheel], check=True)
    (own,) = place.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    return place


def _run(place: Path, *words: str) -> str:
    known = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {**known, "HUSHGRAPH_LEDGER": str(place / "ledger")}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    kinds = (".py", ".typed", ".html", ".css", ".js")
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "hushgraph").rglob("*")
        if path.suffix in kinds or path.name == "py.typed"
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("hushgraph/")}
    assert len(sources) > 300
    assert packed == sources


@pytest.mark.slow
def test_it_is_installed_and_works_in_an_environment_of_its_own(installed: Path) -> None:
    python, command = str(installed / "bin" / "python"), str(installed / "bin" / "hushgraph")
    place = _run(installed, python, "-c", "import hushgraph; print(hushgraph.__file__)").strip()
    assert Path(place).is_relative_to(installed)
    assert _run(installed, command, "--version").strip() == f"hushgraph {hushgraph.__version__}"
    words = ["--data", "digits", "--unit", "undirected-edge", "--epsilon", "4", "--out", "model", "--set", "epochs=1"]
    assert "differentially private" in " ".join(_run(installed, command, "train", "gap", *words).split())
    _run(installed, command, "report", "model")
    assert "<html" in (installed / "model" / "report.html").read_text()


def test_every_extra_asks_for_what_can_be_installed_beside_the_rest(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (info,) = tmp_path.glob("*.dist-info")
    metadata = PathDistribution(info)
    extras = set(metadata.metadata.get_all("Provides-Extra") or ())
    assert {"collect", "study", "io", "fast", "onnx", "postgres"} <= extras
    missing = []
    for line in metadata.requires or ():
        wanted = Requirement(line)
        asked_by = [one for one in ("", *extras) if wanted.marker is None or wanted.marker.evaluate({"extra": one})]
        if not asked_by or set(asked_by) <= NOT_IN_THE_LOCK or wanted.name == "hushgraph":
            continue
        try:
            if not wanted.specifier.contains(version(wanted.name), prereleases=True):
                missing.append(f"{line}: {version(wanted.name)} is installed")
        except PackageNotFoundError:
            missing.append(line)
    assert missing == []
