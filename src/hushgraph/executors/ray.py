"""A Ray cluster: one of its own on this machine, or one that exists. The only file that imports Ray.

What a worker returns is private: sums without noise, votes without noise. So a cluster is used only if

- it asks for a token (Ray's authentication, from 2.52 on): without one, whoever reaches it can run code on it. This is
  tried out, by asking it without a token;
- its objects stay in memory: nothing is spilled to a disk, and what does not fit goes to a file system in memory;
- it listens on this machine alone, or traffic between machines is encrypted (RAY_USE_TLS=1).

What cannot be found out by asking, a user may declare: `encrypted_disk`, `private_network`. A cluster of its own meets
all three and is gone when it is closed. docs/scale.md shows how to start one on several machines.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushgraph.errors import HushgraphError, InputError
from hushgraph.executors.base import Lost, cores

LOOPBACK = "127.0.0.1"
_LEAST_VERSION = (2, 52)
_AGAIN = 3  # how often a task is done again when its worker was lost
_AHEAD = 2  # tasks of a worker that wait or run: none waits for the next one to be sent
_IN_MEMORY = Path("/dev/shm")
_MEMORY_KINDS = {"tmpfs", "ramfs"}
_ASKS_NOBODY = (
    "import sys; from ray._raylet import GcsClient; "
    "print(GcsClient(address=sys.argv[1]).internal_kv_get(b'hushgraph', namespace=b'hushgraph'))"
)


@dataclass
class Ray:
    """Workers on a Ray cluster (`pip install 'hushgraph[ray]'`).

    Attributes:
        workers: tasks at once; None: one per core of this machine, or of the whole cluster.
        address: HOST:PORT of a cluster that exists; None: one of its own, on this machine alone.
        private_network: declares that nobody else sees or changes what travels between the machines.
        encrypted_disk: declares that disks to which the cluster may spill are encrypted.
        store: bytes of the object store of a cluster of its own; None: as Ray has it.
    """

    workers: int | None = None
    address: str | None = None
    private_network: bool = False
    encrypted_disk: bool = False
    store: int | None = None
    _ray: Any = field(default=None, init=False, repr=False)
    _room: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.workers is not None and (isinstance(self.workers, bool) or self.workers < 1):
            raise InputError(f"workers: expected at least 1 on Ray; got {self.workers!r}")

    @property
    def count(self) -> int:
        """How many tasks are done at once."""
        if self.workers is not None:
            return self.workers
        return cores() if self.address is None else max(1, int(self._started().cluster_resources().get("CPU", 1)))

    @property
    def is_here(self) -> bool:
        """Whether the cluster is this machine alone."""
        return self.address is None

    def map(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        """`function(task, *shared)` of every task, in order; a task whose worker was lost is done again."""
        ray = self._started()
        remote = ray.remote(num_cpus=1, max_retries=_AGAIN)(_called)
        sent, running, most = [ray.put(one) for one in (function, *shared)], deque[Any](), _AHEAD * self.count
        for task in tasks:
            running.append(remote.remote(task, *sent))
            if len(running) >= most:
                yield self._result(running.popleft())
        while running:
            yield self._result(running.popleft())

    def each(self, function: Callable[[Any], Any], pull: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with its result, in the order in which they end; none is done twice."""
        ray = self._started()
        remote, running, sent = ray.remote(num_cpus=1, max_retries=0)(_called), dict[Any, Any](), ray.put(function)
        while True:
            while len(running) < self.count and (task := pull()) is not None:
                running[remote.remote(task, sent)] = task
            if not running:
                return
            for done in ray.wait(list(running), num_returns=1)[0]:
                yield running.pop(done), self._result_or_lost(done)

    def on_every_machine(self, function: Callable[[Any], Any], task: Any) -> None:
        """Let each machine do the task; an error of one is raised here."""
        for ref in _sent_to_every_node(self._started(), function, task):
            self._result(ref)

    def _result(self, ref: Any) -> Any:
        found = self._result_or_lost(ref)
        if isinstance(found, Lost):
            raise HushgraphError(
                f"workers: expected an answer of Ray; its worker was lost {1 + _AGAIN} times ({found.reason}); "
                "nothing was released. Give workers more memory, or take fewer of them"
            )
        return found

    def _result_or_lost(self, ref: Any) -> Any:
        """What a task gave. An error of its own is raised here; one of Ray means that the worker was lost."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, HushgraphError) else error) from None
        except errors.RayError as error:
            return Lost(_first_line(error))

    # Beginning and end

    def _started(self) -> Any:
        if self._ray is None:
            atexit.register(self.close)
            self._ray = self._begun()
        return self._ray

    def _begun(self) -> Any:
        if self.address is None and not _is_running():
            ray = self._own()
        else:
            ray = self._joined()
        try:
            _require_same_code(ray)
        except BaseException:
            self._ray = ray
            self.close()
            raise
        return ray

    def _own(self) -> Any:
        """A cluster on this machine: token, loopback, nothing on disk, no dashboard, no statistics."""
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # Ray reads it once in a process
        ray = _imported()
        if not ray._private.authentication.authentication_utils.is_token_auth_enabled():
            raise InputError(
                "ray: expected a process that imports Ray after hushgraph.Ray was used, or with RAY_AUTH_MODE=token; "
                "got one that imported it before: it starts clusters that let anybody in. Set RAY_AUTH_MODE=token first"
            )
        # As Ray does by itself on systems where it has no clusters: addresses are those of this machine alone.
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
        short = "/tmp" if os.path.isdir("/tmp") else None  # sockets have short names
        self._room = tempfile.mkdtemp(prefix="hg-", dir=short)  # for its owner alone; Ray opens what it is given
        in_memory = {"object_spilling_directory": str(_IN_MEMORY)} if _IN_MEMORY.is_dir() else {}
        try:
            with _importable():
                ray.init(
                    num_cpus=self.count,
                    include_dashboard=False,
                    log_to_driver=False,
                    configure_logging=False,
                    object_store_memory=self.store,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=os.path.join(self._room, "ray"),
                    # Workers are as patient as this process is, not more: Ray would give others the processor first.
                    _system_config={"automatic_object_spilling_enabled": False, "worker_niceness": 0},
                    **in_memory,
                )
            self._ray = ray
            self._require_safe(ray)
            outside = [node["NodeManagerAddress"] for node in ray.nodes() if node["NodeManagerAddress"] != LOOPBACK]
            if outside:
                raise HushgraphError(f"ray: expected a cluster on {LOOPBACK} alone; got {outside[0]}; nothing was sent")
        except BaseException:
            self.close()
            raise
        return ray

    def _joined(self) -> Any:
        """A cluster that exists, if it is safe."""
        if self.address is not None:
            self._require_private_network(self.address)
        ray = _imported()
        if ray.is_initialized():
            found = ray.get_runtime_context().gcs_address
            if self.address not in (None, found):
                raise InputError(f"ray: expected the cluster that this process has joined, {found}; got {self.address}")
            self._require_safe(ray)
            return ray
        _require_token(str(self.address))
        # Errors are raised here, once; Ray would print those of all other tasks too.
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_IGNORE_UNHANDLED_ERRORS": "1"}
        try:
            ray.init(address=self.address, log_to_driver=False, configure_logging=False)
            self._ray = ray
            self._require_safe(ray)
        except ConnectionError as error:
            self.close()
            raise InputError(
                f"ray: expected a cluster at {self.address} that lets this process in; got {_first_line(error)}. Set "
                "RAY_AUTH_MODE=token and the token of the cluster (RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH for a file) "
                "here, and RAY_USE_TLS with its certificates as on its machines; this machine must be one of them"
            ) from error
        except BaseException:
            self.close()
            raise
        return ray

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        atexit.unregister(self.close)
        if self._ray is not None and (self.address is not None or self._room is not None):
            self._ray.shutdown()
        self._ray = None
        if self._room is not None:
            shutil.rmtree(self._room, ignore_errors=True)
            self._room = None

    # What a cluster must be like

    def _require_safe(self, ray: Any) -> None:
        address = ray.get_runtime_context().gcs_address
        self._require_private_network(address)
        _require_token(address)
        if not self.encrypted_disk:
            _require_memory(ray)

    def _require_private_network(self, address: str) -> None:
        host = address.rpartition(":")[0] or address
        if host in (LOOPBACK, "localhost", "::1", "[::1]") or self.private_network:
            return
        if os.environ.get("RAY_USE_TLS") != "1":
            raise InputError(
                f"ray: expected a cluster on this machine, or encrypted traffic (RAY_USE_TLS=1 on every machine); got "
                f"{address} without. Where nobody else sees the network, say so: Ray(..., private_network=True), or "
                "--private-network"
            )


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError("workers: ray needs the package ray; install it: pip install 'hushgraph[ray]'") from error
    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise InputError(f"ray: expected version {least} or newer, which asks for a token; got {ray.__version__}")
    return ray


def _is_running() -> bool:
    """Whether this process is in a cluster already, one that it joined by itself."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _called(task: Any, function: Callable[..., Any], *shared: Any) -> Any:
    return function(task, *shared)


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Processes that are started now can import what this one can."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _require_token(address: str) -> None:
    """Ask the cluster without a token: one that answers is refused."""
    nobody = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    with tempfile.TemporaryDirectory() as home:  # no token in a file there
        asked = {**nobody, "RAY_AUTH_MODE": "disabled", "HOME": home}
        done = subprocess.run(
            [sys.executable, "-c", _ASKS_NOBODY, address], env=asked, capture_output=True, timeout=120
        )
    said = done.stderr.decode(errors="replace")
    if done.returncode and "AuthenticationError" in said:
        return
    if done.returncode:
        lines = said.strip().splitlines()
        raise HushgraphError(f"ray: expected a cluster at {address}; got none ({lines[-1] if lines else 'no answer'})")
    raise InputError(
        f"ray: expected a cluster that asks for a token; got {address}, which lets anybody in and run code. Start it "
        "on every machine with RAY_AUTH_MODE=token and one token (ray get-auth-token --generate)"
    )


def _require_memory(ray: Any) -> None:
    """Refuse a cluster whose objects, sums without noise among them, can reach a disk."""
    settings = ray._private.state.state.get_system_config()
    places = {str(place) for place in _on_every_node(ray, _where_objects_go)}
    on_disk = sorted(place for place in places if place)
    problems = []
    if settings.get("automatic_object_spilling_enabled", True):
        problems.append("objects are spilled to a disk")
    if on_disk:
        problems.append(f"objects that do not fit go to {', '.join(on_disk)}")
    if problems:
        raise InputError(
            f"ray: expected a cluster whose objects stay in memory; got one where {' and '.join(problems)}. Start it "
            "with --object-spilling-directory=/dev/shm on every machine, --system-config="
            "'{\"automatic_object_spilling_enabled\": false}' on the first, and --object-store-memory=BYTES where "
            "/dev/shm has less room than Ray would take; or, where disks are encrypted, say so: "
            "Ray(..., encrypted_disk=True)"
        )


def _require_same_code(ray: Any) -> None:
    own = _version()
    others = {found for found in _on_every_node(ray, _version) if found != own}
    if others:
        raise InputError(f"ray: expected hushgraph {own} on every machine; got {', '.join(sorted(others))} on one")


def _on_every_node(ray: Any, function: Callable[[], Any]) -> list[Any]:
    found: list[Any] = ray.get(_sent_to_every_node(ray, function))
    return found


def _sent_to_every_node(ray: Any, function: Callable[..., Any], *given: Any) -> list[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    remote = ray.remote(num_cpus=0, max_retries=_AGAIN)(function)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return [remote.options(scheduling_strategy=On(node, soft=False)).remote(*given) for node in nodes]


def _version() -> str:
    import hushgraph

    return hushgraph.__version__


def _where_objects_go() -> str:
    """On a machine of the cluster: a place outside memory to which its store of objects may write; '' if there is none.

    The store says so in its arguments, and the system which places are in memory.
    """
    said = Path(f"/proc/{os.getppid()}/cmdline")
    if not said.is_file():
        return "a place that this system does not tell"
    arguments = said.read_bytes().decode(errors="replace").split("\0")
    places = [
        one.partition("=")[2] for one in arguments if one.lstrip("-").startswith(("fallback_directory", "plasma_dir"))
    ]
    if not places:
        return "a place that Ray does not tell"
    return next((place for place in places if place and _file_system(place) not in _MEMORY_KINDS), "")


def _file_system(place: str) -> str:
    kind, longest = "", -1
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            mount, found = line.split()[1:3]
            if Path(place).resolve().is_relative_to(mount) and len(mount) > longest:
                kind, longest = found, len(mount)
    return kind
