"""What hushgraph is made of: a software bill of materials, and the licenses of everything it needs.

    python tools/supply_chain.py sbom [--out sbom.json]   # CycloneDX 1.5
    python tools/supply_chain.py licenses

Both read requirements.lock and what is installed. A package of
another version than the lock's, or one that the lock has and the environment has not, is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import lock

ROOT = Path(__file__).resolve().parents[1]
_LONGEST = 60


def locked() -> dict[str, str]:
    """The packages of the lock with their versions."""
    return {name: version for name, (version, _) in lock.read(lock.LOCK.read_text()).items()}


def installed(packages: dict[str, str]) -> list[Distribution]:
    """What is installed of them, in the order of their names; an error that lists all that differ."""
    found, problems = [], []
    for name, version in sorted(packages.items(), key=lambda one: one[0].lower()):
        try:
            one = distribution(name)
        except PackageNotFoundError:
            problems.append(f"{name} {version} is not installed")
            continue
        if one.version.split("+")[0] != version.split("+")[0]:
            problems.append(f"{name}: expected {version}; {one.version} is installed")
        found.append(one)
    if problems:
        raise SystemExit("\n".join(problems))
    return found


def license_of(one: Distribution) -> str:
    """The license as the package states it: its SPDX expression, its classifiers, or its own words."""
    stated = one.metadata.get("License-Expression")
    listed = [line.split("::")[-1].strip() for line in one.metadata.get_all("Classifier") or [] if "License ::" in line]
    words = (one.metadata.get("License") or "").strip().split("\n")[0]
    return (stated or " or ".join(listed) or words or "not stated")[:_LONGEST]


def bill(packages: list[Distribution]) -> dict[str, Any]:
    """A CycloneDX document. It is the same for the same packages: its serial number is a hash of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = [_component(one) for one in packages]
    serial = uuid.UUID(bytes=hashlib.sha256(json.dumps(components).encode()).digest()[:16], version=4)
    own = {"type": "library", "name": "hushgraph", "version": project["version"], "licenses": [_named("Apache-2.0")]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {**own, "bom-ref": "hushgraph"}},
        "components": components,
        "dependencies": [{"ref": "hushgraph", "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _component(one: Distribution) -> dict[str, Any]:
    """A package: its name, version and license, and a hash of its record, which lists a hash of every file."""
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{one.version}"
    record = one.read_text("RECORD")
    found = {"type": "library", "bom-ref": purl, "name": name, "version": one.version, "purl": purl}
    found["licenses"] = [_named(license_of(one))]  # type: ignore[assignment]
    if record is not None:
        digest = hashlib.sha256(record.encode()).hexdigest()
        found["properties"] = [{"name": "hushgraph:record-sha256", "value": digest}]  # type: ignore[assignment]
    return found


def _named(license: str) -> dict[str, Any]:
    return {"license": {"name": license}}


def main() -> None:
    """Write the bill, or print the licenses."""
    parser = argparse.ArgumentParser(description="A software bill of materials, and the licenses of all dependencies.")
    parser.add_argument("what", choices=("sbom", "licenses"))
    parser.add_argument("--out", type=Path, default=Path("sbom.json"))
    given = parser.parse_args()
    packages = installed(locked())
    if given.what == "sbom":
        given.out.write_text(json.dumps(bill(packages), indent=2) + "\n")
        print(f"{len(packages)} components written to {given.out}")
        return
    for one in packages:
        print(f"{one.metadata['Name']:<28} {one.version:<16} {license_of(one)}")
    unknown = [one.metadata["Name"] for one in packages if license_of(one) == "not stated"]
    if unknown:
        print(f"not stated: {', '.join(unknown)}", file=sys.stderr)


if __name__ == "__main__":
    main()
