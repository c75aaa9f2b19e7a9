"""MLflow: one run of the experiment "hushgraph" for each model, where the tracking URI says."""

from __future__ import annotations

import os
from typing import Any

from hushgraph.errors import InputError
from hushgraph.tracking.base import Entry, Tracker

EXPERIMENT = "hushgraph"
_AT_ONCE = 100
"""The most settings that MLflow takes in one message."""


class MLflow(Tracker):
    """Writes to a tracking URI: a server's address, `sqlite:///FILE`, or `file:FOLDER`.

    Nothing is read from the environment: a server that an environment variable names is not told anything. MLflow's own
    statistics of use are switched off before it is imported.
    """

    name = "mlflow"
    place_help = "a tracking URI, such as http://localhost:5000 or sqlite:///runs.db"

    def __init__(self, place: str) -> None:
        super().__init__(place)
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise InputError(f"track: expected the package mlflow; {error}; pip install 'hushgraph[track]'") from error
        self._problem: type[Exception] = MlflowException
        try:
            self._client: Any = MlflowClient(tracking_uri=place, registry_uri=place)
        except MlflowException as error:
            raise InputError(f"track: mlflow does not take '{place}': {error}") from error

    def log(self, entry: Entry) -> None:
        """One run, finished: settings as parameters, figures as metrics, the certificate as a file."""
        try:
            self._log(entry)
        except self._problem as error:
            raise InputError(f"track: mlflow at {self.place} did not take the run: {error}") from error

    def _log(self, entry: Entry) -> None:
        from mlflow.entities import Metric, Param

        client = self._client
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
        run = client.create_run(experiment, run_name=entry.name)
        number, started = run.info.run_id, run.info.start_time
        settings = [Param(name, str(value)) for name, value in entry.settings.items()]
        figures = [Metric(name, value, started, 0) for name, value in entry.numbers.items()]
        for first in range(0, max(len(settings), 1), _AT_ONCE):
            client.log_batch(number, params=settings[first : first + _AT_ONCE])
        client.log_batch(number, metrics=figures)
        client.log_text(number, entry.certificate, "certificate.json")
        client.set_terminated(number)
