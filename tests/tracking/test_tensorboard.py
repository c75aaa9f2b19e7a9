from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.methods.model import Model

from .conftest import PRIVATE

pytest.importorskip("tensorboard")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_a_run_is_a_folder_that_tensorboard_reads(model: Model, tmp_path: Path) -> None:
    hg.track(model, f"tensorboard:{tmp_path / 'runs'}")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == f"gap-{model.certificate.run}"
    found = read(folder)
    shown = {name: found.Scalars(name)[0].value for name in found.Tags()["scalars"]}
    assert shown["epsilon"] == pytest.approx(model.certificate.epsilon)
    assert all(value != pytest.approx(PRIVATE) for value in shown.values())
    assert found.Tags()["tensors"] == ["settings/text_summary", "certificate/text_summary"]
    text = found.Tensors("certificate/text_summary")[0].tensor_proto.string_val[0].decode()
    assert model.certificate.run in text


def test_nothing_of_the_evaluation_is_in_the_files(model: Model, tmp_path: Path) -> None:
    import struct

    hg.track(model, f"tensorboard:{tmp_path / 'without'}")
    hg.track(model, f"tensorboard:{tmp_path / 'with'}", evaluation=True)
    known = (struct.pack("<f", PRIVATE), struct.pack("<d", PRIVATE), str(PRIVATE)[:6].encode())

    def holds(folder: Path) -> bool:
        content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        return any(one in content for one in known)

    assert holds(tmp_path / "with")
    assert not holds(tmp_path / "without")


def test_a_folder_that_cannot_be_is_said(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another folder"):
        hg.track(model, f"tensorboard:{tmp_path / 'file'}")


def test_names_stay_inside_the_folder(model: Model, tmp_path: Path) -> None:
    from hushgraph.tracking.base import Entry
    from hushgraph.tracking.tensorboard import TensorBoard

    TensorBoard(str(tmp_path / "runs")).log(Entry("../../up, seed 1", {"a": 1}, {"epsilon": 1.0}, "{}"))
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == "..-..-up-seed-1"
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
