"""`make lock`: requirements.lock, every package with its version and the hashes of its files.

    python tools/lock.py [--upgrade]
    python tools/lock.py --only NAME ...   # prints that part of the lock
    python tools/lock.py --cpu             # prints torch alone, as the build without GPU code

To add a package, name it in an extra of pyproject.toml that `dev` includes, run this, and commit both files: versions
that the lock has already stay as they are. The hashes are those of all files of a version, for every system.

torch is the exception. Its builds without GPU code have a version of their own and are not where the other packages
are, so the hash of the build that pip finds here is added to those of the registry. The Makefile asks for that build
first, by name, because pip prefers files whose hash it knows before it has them. The GPU libraries that the registry's
build asks for are left out of the lock; the Makefile installs them where that build is the one at hand.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
TORCH = "2.13.0"
PYTHON = "3.11.5"
GPU = (
    "cuda-bindings",
    "cuda-toolkit",
    "nvidia-cudnn-cu13",
    "nvidia-cusparselt-cu13",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "triton",
)
_PACKAGE = re.compile(r"^([a-z0-9-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def read(text: str) -> dict[str, tuple[str, list[str]]]:
    """The packages of a lock: version and hashes of each."""
    found = {name: (version, _HASH.findall(hashes)) for name, version, hashes in _PACKAGE.findall(text)}
    if strange := _PACKAGE.sub("", text).strip():
        raise SystemExit(
            f"{LOCK.name}: expected packages with hashes; got {strange.splitlines()[0]!r}; run `make lock`"
        )
    return found


def write(packages: dict[str, tuple[str, list[str]]]) -> str:
    """The text of a lock."""
    lines = []
    for name, (version, hashes) in sorted(packages.items()):
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash={one}" for one in sorted(set(hashes)))]))
    return "\n".join(lines) + "\n"


def resolve(before: str, upgrade: bool) -> str:
    """What uv makes of pyproject.toml, with the versions of the lock `before` unless they are to be newer."""
    with tempfile.TemporaryDirectory() as place:
        out, pins, left_out = (Path(place) / name for name in ("lock", "pins", "left_out"))
        out.write_text(before)
        pins.write_text(f"torch=={TORCH}\n")
        left_out.write_text("\n".join(GPU) + "\n")
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if uv is None:
            raise SystemExit("expected uv, which is part of the extra dev; pip install uv")
        words = ["--extra", "dev", "--python-version", PYTHON, "--constraints", str(pins), "--excludes", str(left_out)]
        words += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "-o", str(out)]
        words += ["--upgrade"] if upgrade else []
        subprocess.run([uv, "pip", "compile", "pyproject.toml", *words], check=True, cwd=ROOT)
        return out.read_text()


def build_here() -> str:
    """The hash of the build of torch that pip finds here."""
    with tempfile.TemporaryDirectory() as place:
        words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", place, f"torch=={TORCH}"]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        (wheel,) = Path(place).iterdir()
        with open(wheel, "rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Write the lock and say what changed."""
    parser = argparse.ArgumentParser(description="Write requirements.lock, with hashes.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="print the part of these packages")
    parser.add_argument("--cpu", action="store_true", help="print torch as the build without GPU code")
    given = parser.parse_args()
    text = LOCK.read_text()
    if given.only or given.cpu:
        packages = read(text)
        cpu = {"torch": (f"{TORCH}+cpu", packages["torch"][1])}
        print(write(cpu if given.cpu else {name: packages[name] for name in given.only}), end="")
        return
    before = {name: (version, _HASH.findall(hashes)) for name, version, hashes in _PACKAGE.findall(text)}
    found = read(resolve(text, given.upgrade))
    if gpu := [name for name in found if name.startswith(("nvidia-", "cuda-", "triton"))]:
        raise SystemExit(f"expected no GPU libraries; got {', '.join(gpu)}; add them to GPU in tools/lock.py")
    earlier = before["torch"][1] if before.get("torch", ("",))[0] == TORCH else []
    found["torch"] = (TORCH, [*found["torch"][1], *earlier, build_here()])
    LOCK.write_text(write(found))
    for name in sorted(found.keys() | before.keys()):
        was, now = (one.get(name, ("none",))[0] for one in (before, found))
        if was != now:
            print(f"{name}: {was} -> {now}")
    print(f"{len(found)} packages, {sum(len(hashes) for _, hashes in found.values())} hashes")


if __name__ == "__main__":
    main()
