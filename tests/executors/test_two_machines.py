"""Two machines with an address each, as network namespaces: the recipe of docs/scale.md, and the same bytes."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import two_machines_script
from hushgraph.datasets.stored import GraphFacts, write_stored
from small_graphs import random_graph

FIRST, SECOND, PORT = "10.0.0.1", "10.0.0.2", 6379
SECONDS = 300  # after which all is ended
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--object-store-memory=100000000"]
IN_MEMORY = "--object-spilling-directory=/dev/shm"


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@contextmanager
def networks() -> Iterator[list[str]]:
    """Two networks of one machine each, joined by a cable; skips where they cannot be made."""
    tools = [name for name in ("ip", "unshare", "openssl") if shutil.which(name) is None]
    if os.name != "posix" or os.geteuid() != 0 or tools:
        pytest.skip("needs root and network namespaces")
    names, ends = [f"hushgraph-{os.getpid()}-{number}" for number in (1, 2)], ["hush1", "hush2"]
    try:
        try:
            for name in names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", ends[0], "netns", names[0], "type", "veth", "peer", ends[1], "netns", names[1])
            run(
                "ip",
                "netns",
                "exec",
                names[0],
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "mount",
                "-t",
                "tmpfs",
                "t",
                "/mnt",
            )
        except subprocess.CalledProcessError:
            pytest.skip("needs root and network namespaces")
        for name, end, address in zip(names, ends, (FIRST, SECOND), strict=True):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", end)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", end, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)


@contextmanager
def machine(network: str, script: str, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A machine with processes and memory of its own that runs a script; all of it ends here."""
    script = f"mount -t tmpfs -o size=1g tmpfs /dev/shm && {script}"
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["ip", "netns", "exec", network, *alone], env=environment, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def encrypted(folder: Path) -> dict[str, str]:
    """Variables of Ray for both machines: a token and a certificate, which is its own authority."""
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    names = f"subjectAltName=IP:{FIRST},IP:{SECOND},IP:127.0.0.1"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=ray"]
    run("openssl", "req", "-x509", *made, "-addext", names, "-keyout", key, "-out", certificate)
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": certificate,
        "RAY_TLS_SERVER_KEY": key,
        "RAY_TLS_CA_CERT": certificate,
        "RAY_TMPDIR": "/dev/shm",  # of each machine
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.skipif(find_spec("ray") is None, reason="could not import ray")
def test_the_same_bytes_by_two_machines_and_what_one_does_not_see_is_refused(tmp_path: Path) -> None:
    data = random_graph(3, num_nodes=200)
    facts = GraphFacts("small", 200, False, ["x"] * data.x.shape[1], "<i8", ["a", "b", "c"], True, has_split=True)
    for name in ("small", "hidden"):
        write_stored(data, tmp_path / f"{name}.graph", facts, data.edge_index)
    (tmp_path / "empty").mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings = "--system-config='{\"automatic_object_spilling_enabled\": false}'"
    start = f"{' '.join(RAY)} {IN_MEMORY}"
    head = f"{start} --head --node-ip-address={FIRST} --port={PORT} --include-dashboard=false {settings}"
    leads = f"{head} && exec {sys.executable} {two_machines_script.__file__} {FIRST}:{PORT} {tmp_path}"
    hides = f"mount --bind {tmp_path}/empty {tmp_path}/hidden.graph"
    helps = f"{hides} && until {start} --address={FIRST}:{PORT}; do sleep 0.5; done; exec sleep {SECONDS}"
    with networks() as (first, second):
        environment = {**plain, **encrypted(tmp_path)}
        with (
            machine(first, leads, environment, tmp_path / "first.log") as leader,
            machine(second, helps, environment, tmp_path / "second.log"),
        ):
            leader.wait(timeout=SECONDS)
    assert leader.returncode == 0, (tmp_path / "first.log").read_text()[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["count"] == 2
    assert found["same"] == {"undirected-edge": True, "node": True}
    assert found["one dies"]
    assert (tmp_path / "killed").exists()
    assert found["networks"] == {"undirected-edge": 2, "node": 2}  # both did some of it
    assert "hidden.graph/edges/sources.bin on every machine; got none on one" in found["refused"]["said"]
    assert not found["refused"]["charged"]
