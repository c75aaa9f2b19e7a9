"""The benchmark data: files in the folder that HUSHGRAPH_DATA names."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_file(name: str) -> Path:
    """Where the file called `name` is expected; without the variable the program ends with one sentence."""
    folder = os.environ.get("HUSHGRAPH_DATA")
    if not folder:
        sys.exit(f"this benchmark reads {name}; set HUSHGRAPH_DATA to the folder of the benchmark data")
    return Path(folder).expanduser() / name
