"""A trained model behind HTTP: predictions by the user's own ids, with the promise beside them.

    python examples/serve.py my-model --data my.graph
    curl localhost:8000/promise
    curl localhost:8000/predictions/ann

Needs FastAPI (pip install hushgraph[collect]). What is served is post-processing and costs nothing more. At node level
a prediction about a person is computed from that person's own record: give it to nobody else. So the service answers
for one id at a time and never lists ids; put it behind the login that knows who asks.
"""

from __future__ import annotations

import argparse
from typing import Any

from fastapi import FastAPI, HTTPException

import hushgraph as hg


def app_of(model: hg.Model, graph: Any) -> FastAPI:
    """The service for one model and the graph that it was trained on."""
    ids = graph.get("user_ids")
    names = range(int(graph.num_nodes)) if ids is None else ids.tolist()
    number = {str(name): at for at, name in enumerate(names)}
    probabilities = model.predict_proba(graph)
    app, promise = FastAPI(title="hushgraph"), model.certificate

    @app.get("/promise")
    def tell_promise() -> dict[str, Any]:
        said = {"epsilon": promise.epsilon, "delta": promise.delta, "unit": promise.unit.name}
        return {**said, "private": promise.is_private, "words": model.explain()}

    @app.get("/predictions/{name}")
    def predict(name: str) -> dict[str, Any]:
        if name not in number:
            raise HTTPException(404, "nobody of that id is in the graph")
        shares = probabilities[number[name]].tolist()
        best = max(range(len(shares)), key=shares.__getitem__)
        return {"id": name, "class": model.class_names[best], "probabilities": dict(zip(model.class_names, shares))}

    return app


def main() -> None:
    """Serve one model on this machine."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(app_of(hg.load(given.model), hg.datasets.load(given.data)), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
