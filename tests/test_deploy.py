"""What `deploy/` starts can be started: its commands are those of this version, its files are those of the tools."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from commands import run
from hushgraph.collect import server

DEPLOY = Path(__file__).parents[1] / "deploy"


def started() -> dict[str, list[str]]:
    image = (DEPLOY / "Dockerfile").read_text()
    entry, given = (json.loads(re.search(rf"^{word} (.*)$", image, re.MULTILINE)[1]) for word in ("ENTRYPOINT", "CMD"))
    unit = re.search(r"^ExecStart=(.*)$", (DEPLOY / "hushgraph-collect.service").read_text(), re.MULTILINE)[1]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    words = {"image": [*entry, *given], "unit": shlex.split(unit)}
    return words | {"compose": [*entry, *compose["services"]["collect"]["command"]]}


@pytest.mark.parametrize("which", ["image", "unit", "compose"])
def test_the_command_starts_the_service(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(server, "serve", lambda store, host, port, *_: served.append((host, port)))
    words = started()[which]
    assert Path(words[0]).name == "hushgraph"
    words[words.index("--store") + 1] = str(tmp_path / "collect.db")
    run(*words[1:])
    assert served == [("127.0.0.1" if which == "unit" else "0.0.0.0", 8787)]


def test_what_the_image_is_built_from_is_let_in() -> None:
    copied = re.findall(r"^COPY (.*) /\S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert names == {line[1:] for line in let_in if line.startswith("!")}
    assert all((DEPLOY.parent / name).exists() for name in names)


def test_secrets_of_compose_are_files_that_are_never_committed() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    places = [one["file"] for one in compose["secrets"].values()]
    assert all(place.startswith("./secrets/") for place in places)
    assert "deploy/secrets/" in (DEPLOY.parent / ".gitignore").read_text().split()
    for service in compose["services"].values():
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        named = [volume.partition(":")[0] for volume in service.get("volumes", [])]
        assert all(name in compose["volumes"] or (DEPLOY / name).exists() for name in named)


@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="nginx is not installed")
def test_nginx_takes_its_file(tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out certificate.pem"
    subprocess.run(make.split(), check=True, capture_output=True, cwd=tmp_path)
    text = (DEPLOY / "nginx.conf").read_text().replace("/etc/ssl/collect", str(tmp_path))
    (tmp_path / "site.conf").write_text(text.replace("/var/log/nginx", str(tmp_path)))
    whole = f"pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} http {{ include {tmp_path}/site.conf; }}"
    (tmp_path / "nginx.conf").write_text(whole)
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    found = subprocess.run([str(nginx), "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
def test_caddy_takes_its_file(tmp_path: Path) -> None:
    words = ["caddy", "validate", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"]
    where = {"PROXY_HOST": "localhost", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(words, capture_output=True, text=True, env=where)
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_its_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "hushgraph-collect.service").read_text()
    unit = tmp_path / "hushgraph-collect.service"
    unit.write_text(text.replace("/opt/hushgraph/.venv/bin/hushgraph", sys.executable))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
