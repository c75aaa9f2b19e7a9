"""`hushgraph collect`: run a collection service, answer a task, export what arrived.

Operator: `create`, `enroll`, `reissue`, `revoke`, `rotate-operator`, `serve`, `status`, `close`, `export`, `train`.
Person: `explain`, `answer`. Every command takes `--json`. Heavy imports happen when a command runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hushgraph.cli.console import Json, Settings, command, echo, require_new_folder, show_json, words
from hushgraph.errors import InputError

app = typer.Typer(
    help="Collect locally private reports from people's devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
MOST_NODES_LISTED = 50_000_000
StoreAddress = Annotated[str, typer.Option("--store", help="Path of an SQLite file, or postgresql://...")]
Server = Annotated[str, typer.Option("--server", help="Address of the collection service.")]
TaskName = Annotated[str, typer.Argument(help="Name of the task.")]
OperatorFile = Annotated[Path, typer.Option("--operator-token-file", help="File with the operator's token.")]
State = Annotated[Path, typer.Option("--state", help="Folder of this person's answers and budget. Keep it.")]
Lifetime = Annotated[float, typer.Option("--lifetime-epsilon", help="The most this device may ever spend.")]
PlainHttp = Annotated[bool, typer.Option("--allow-plain-http", help="Allow http:// to other machines.")]


def _show(values: dict[str, Any], as_json: bool, text: str | None = None) -> None:
    if as_json:
        show_json(values)
    else:
        echo(text if text is not None else "\n".join(f"{name}: {value}" for name, value in values.items()))


@app.command()
@command
def create(
    file: Annotated[Path, typer.Argument(help="The task, in TOML or JSON; see docs/collect.md.")],
    store: StoreAddress = "collect.db",
    operator_token_file: Annotated[
        Path, typer.Option(help="Where a new store's operator token is written, once.")
    ] = Path("operator.token"),
    as_json: Json = False,
) -> None:
    """Add a task to a store. A task never changes afterwards; its hash is what people agree to."""
    from hushgraph.collect import admin
    from hushgraph.collect.store import open_store

    task = _read_task(file)
    opened = open_store(store)
    token = admin.make_operator_token(opened, lambda new: admin.write_secret(operator_token_file, new + "\n"))
    admin.create_task(opened, task)
    found = {"task_id": task.id, "sha256": task.sha256, "epsilon": task.epsilon, "nodes": task.nodes}
    text = f"task {task.id} created; epsilon {task.epsilon:g} per person\nhash {task.sha256}"
    if token is not None:
        found["operator_token_file"] = str(operator_token_file)
        text += f"\noperator's token written to {operator_token_file}; it cannot be shown again"
    _show(found, as_json, text)


@app.command()
@command
def enroll(
    task: TaskName,
    tokens: Annotated[Path, typer.Option(help="New file for the tokens (node,token lines).")],
    store: StoreAddress = "collect.db",
    nodes: Annotated[str | None, typer.Option(help="Nodes such as 0-99,200; default: all of the task.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token for each node. Give each person theirs; the store keeps only hashes."""
    from hushgraph.collect import admin
    from hushgraph.collect.store import open_store

    made = admin.enroll(open_store(store), task, _nodes(nodes), _written_to(tokens))
    _show({"enrolled": len(made), "tokens": str(tokens)}, as_json, f"{len(made)} nodes enrolled; tokens in {tokens}")


@app.command()
@command
def reissue(
    task: TaskName,
    nodes: Annotated[str, typer.Option(help="Nodes such as 0-99,200, whose tokens were lost or stolen.")],
    tokens: Annotated[Path, typer.Option(help="New file for the tokens (node,token lines).")],
    store: StoreAddress = "collect.db",
    as_json: Json = False,
) -> None:
    """Give enrolled nodes new tokens; their old ones are refused from then on."""
    from hushgraph.collect import admin
    from hushgraph.collect.store import open_store

    made = admin.reissue(open_store(store), task, _node_list(nodes), _written_to(tokens))
    _show({"reissued": len(made), "tokens": str(tokens)}, as_json, f"{len(made)} new tokens in {tokens}")


@app.command()
@command
def revoke(
    task: TaskName,
    nodes: Annotated[str, typer.Option(help="Nodes such as 0-99,200.")],
    store: StoreAddress = "collect.db",
    as_json: Json = False,
) -> None:
    """Refuse the tokens of nodes from now on. What they reported stays; they can be enrolled again."""
    from hushgraph.collect import admin
    from hushgraph.collect.store import open_store

    count = admin.revoke(open_store(store), task, _node_list(nodes))
    _show({"revoked": count}, as_json, f"{count} tokens revoked")


@app.command("rotate-operator")
@command
def rotate_operator(
    operator_token_file: Annotated[Path, typer.Option(help="New file for the operator's new token.")],
    store: StoreAddress = "collect.db",
    as_json: Json = False,
) -> None:
    """Make a new operator's token; the old one is refused from then on."""
    from hushgraph.collect import admin
    from hushgraph.collect.store import open_store

    admin.rotate_operator_token(open_store(store), lambda new: admin.write_secret(operator_token_file, new + "\n"))
    found = {"operator_token_file": str(operator_token_file)}
    _show(found, as_json, f"new operator's token written to {operator_token_file}; the old one is refused from now on")


@app.command()
@command
def serve(
    store: StoreAddress = "collect.db",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8787,
    certificate: Annotated[str | None, typer.Option(help="TLS certificate file.")] = None,
    key: Annotated[str | None, typer.Option(help="TLS key file.")] = None,
    behind_proxy: Annotated[bool, typer.Option(help="A proxy in front of the service terminates TLS.")] = False,
    as_json: Json = False,
) -> None:
    """Run the collection service and the operator's page until it is stopped."""
    from hushgraph.collect.client import is_loopback
    from hushgraph.collect.store import open_store

    if not (is_loopback(host) or certificate or behind_proxy):
        raise InputError(f"expected TLS on {host}; got none; give --certificate and --key, or --behind-proxy")
    try:
        from hushgraph.collect import server
    except ImportError as error:
        raise InputError(f"expected the packages of the service; {error}; pip install 'hushgraph[collect]'") from error
    scheme = "https" if certificate else "http"
    _show({"address": f"{scheme}://{host}:{port}"}, as_json, f"operator's page: {scheme}://{host}:{port}/")
    opened = open_store(store)
    try:
        server.serve(opened, host, port, certificate, key)
    finally:
        opened.shut_down()


@app.command()
@command
def explain(
    task: TaskName,
    server: Server,
    state: State,
    lifetime_epsilon: Lifetime,
    allow_plain_http: PlainHttp = False,
    as_json: Json = False,
) -> None:
    """Explain what would leave this device, and what it costs."""
    client = _client(state, lifetime_epsilon, allow_plain_http)
    found = client.fetch(server, task)
    text = client.explain(found)
    _show({"task_id": found.id, "sha256": found.sha256, "epsilon": found.epsilon, "text": text}, as_json, text)


@app.command()
@command
def answer(
    task: TaskName,
    server: Server,
    state: State,
    lifetime_epsilon: Lifetime,
    agreed: Annotated[str, typer.Option(help="The hash of the task you agreed to (see explain).")],
    token_file: Annotated[Path, typer.Option(help="File with this node's token.")],
    features: Annotated[Path | None, typer.Option(help="Numbers: .npy, or a JSON list.")] = None,
    label: Annotated[str | None, typer.Option(help="Name of your class.")] = None,
    allow_plain_http: PlainHttp = False,
    as_json: Json = False,
) -> None:
    """Draw your answer (once), keep it, and send it. Running it again sends the same bytes."""
    client = _client(state, lifetime_epsilon, allow_plain_http)
    found = client.fetch(server, task)
    client.answer(found, agreed, _secret(token_file), _read_features(features), label)
    sent = client.send(server, found)
    values = {"status": sent.status, "tries": sent.tries, "epsilon": found.epsilon, "spent": client.budget.spent}
    news = "stored" if sent.status == 201 else "was stored before; nothing new was sent"
    _show(values, as_json, f"your report {news}; lifetime spending {client.budget.spent:g} of {client.budget.limit:g}")


@app.command()
@command
def status(task: TaskName, server: Server, allow_plain_http: PlainHttp = False, as_json: Json = False) -> None:
    """Rounded counts of a task."""
    from hushgraph.collect.client import HttpTransport

    reply = HttpTransport(allow_plain=allow_plain_http).get(f"{server.rstrip('/')}/v1/tasks/{task}/status")
    _show(_reply(reply), as_json)


@app.command()
@command
def close(
    task: TaskName,
    server: Server,
    operator_token_file: OperatorFile,
    allow_plain_http: PlainHttp = False,
    as_json: Json = False,
) -> None:
    """Stop a task for good: no new reports."""
    from hushgraph.collect.client import HttpTransport

    transport = HttpTransport(allow_plain=allow_plain_http)
    url = f"{server.rstrip('/')}/v1/tasks/{task}/close"
    _show(_reply(transport.post(url, b"", _secret(operator_token_file))), as_json, f"task {task} is closed")


@app.command()
@command
def export(
    task: TaskName,
    server: Server,
    operator_token_file: OperatorFile,
    out: Annotated[Path | None, typer.Option(help="File to write; default: TASK.npz.")] = None,
    allow_plain_http: PlainHttp = False,
    as_json: Json = False,
) -> None:
    """Write all noisy reports of a task to one npz file."""
    from hushgraph.collect.client import HttpTransport
    from hushgraph.collect.export import read_export
    from hushgraph.files.writing import write_whole

    url = f"{server.rstrip('/')}/v1/tasks/{task}/export"
    reply = HttpTransport(allow_plain=allow_plain_http).get_with_token(url, _secret(operator_token_file))
    if reply.status != 200:
        _reply(reply)
    target = out if out is not None else Path(f"{task}.npz")
    write_whole(target, reply.body)
    found = read_export(target)
    values = {"file": str(target), "reports": len(found.node), "nodes": found.task.nodes, "sha256": found.task.sha256}
    _show(values, as_json, f"{len(found.node)} reports of {found.task.nodes} nodes written to {target}")


@app.command()
@command
def train(
    export: Annotated[Path, typer.Argument(help="What `export` wrote.")],
    edges: Annotated[Path, typer.Option(help="The server's own graph: an npz file with `edge_index` [2, E].")],
    out: Annotated[Path, typer.Option(help="Folder for the model; must be new or empty.")],
    ledger: Annotated[Path | None, typer.Option(help="The ledger's folder; default: the project's.")] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Train LPGNN on the reports of a task. This costs no further privacy: answers arrive randomized."""
    require_new_folder(out)
    from hushgraph.collect.training import train_from_export
    from hushgraph.datasets.archive import Archive
    from hushgraph.ledger.project import default_ledger
    from hushgraph.methods.lpgnn import LPGNN
    from hushgraph.settings import from_words

    method = LPGNN(**from_words(LPGNN, words(settings)))
    with Archive(edges) as archive:
        edge_index = archive.integers("edge_index", (2, None))
    model = train_from_export(export, edge_index, method, ledger=default_ledger(ledger))
    model.save(out)
    values = {"model": str(out), "epsilon": model.certificate.epsilon, "certificate": model.certificate.as_dict()}
    _show(values, as_json, f"{model}\n\nmodel           {out}")


def _client(state: Path, lifetime_epsilon: float, allow_plain_http: bool) -> Any:
    from hushgraph.collect.client import Client, HttpTransport

    return Client(state, lifetime_epsilon, HttpTransport(allow_plain=allow_plain_http))


def _read_task(file: Path) -> Any:
    """A task file in TOML or JSON."""
    import tomllib

    from hushgraph.collect.task import LARGEST_TASK, Task
    from hushgraph.files.reading import damage_named, parse_json, read_within

    content = read_within(file, LARGEST_TASK, of="a task file in TOML or JSON")
    with damage_named(f"expected a task file in TOML or JSON; got {file}", do="See docs/collect.md"):
        body = parse_json(content) if file.suffix == ".json" else tomllib.loads(content.decode())
        body.pop("format", None)
        return Task.from_dict(body)


def _read_features(file: Path | None) -> Any:
    import io

    import numpy as np

    from hushgraph.files.reading import LARGEST_JSON, parse_json, read_within

    if file is None:
        return None
    try:
        content = read_within(file, LARGEST_JSON, of="numbers in .npy or a JSON list")
        if file.suffix == ".npy":
            return np.load(io.BytesIO(content), allow_pickle=False)
        return np.array(parse_json(content), dtype=float)
    except (OSError, ValueError, TypeError, EOFError, MemoryError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"expected numbers in .npy or a JSON list; got {file}; check the file") from error


def _secret(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"expected a file with a token; got {file}; check the path") from error


def _nodes(text: str | None) -> list[int] | None:
    return None if text is None else _node_list(text)


def _written_to(path: Path) -> Any:
    """Writes tokens to a new file, before they become valid."""
    from hushgraph.collect import admin

    return lambda tokens: admin.write_secret(path, admin.tokens_csv(tokens))


def _node_list(text: str) -> list[int]:
    """`0-99,200` as numbers."""
    try:
        nodes: list[int] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            begin, end = int(first), int(last) if dash else int(first)
            if end - begin + len(nodes) > MOST_NODES_LISTED:
                raise InputError(
                    f"expected at most {MOST_NODES_LISTED:,} nodes; got {text[:40]!r}; leave --nodes out for all"
                )
            nodes.extend(range(begin, end + 1))
        return nodes
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"expected nodes such as 0-99,200; got {text!r}; write numbers") from error


def _reply(reply: Any) -> dict[str, Any]:
    """The JSON of a service's answer, or the error it stands for."""
    if reply.status == 0:
        raise InputError("expected a collection service; got no connection; is it running, is the address right?")
    try:
        body = json.loads(reply.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise InputError(f"expected an answer of the service; got status {reply.status}; check the address")
    if reply.status != 200:
        raise InputError(f"{body.get('message', 'refused')} (status {reply.status})")
    return body
