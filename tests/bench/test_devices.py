"""``wirebound bench --device``: answers before tables, a file to send, and one sentence where the device is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import wirebound as wb
from wirebound import ops
from wirebound.ops.device.layers import DeviceLayers
from wirebound_lab.bench import devices
from wirebound_lab.cli import main


def test_the_command_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "SMALL", {"linear": devices.SMALL["linear"]})
    monkeypatch.setattr(devices, "METHODS", {name: devices.METHODS[name] for name in ("DeepR", "Fixed")})
    assert main(["bench", "--device", "cpu", "--quick", "--seconds", "0.01", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "device-cpu.json").read_text(encoding="utf-8"))
    assert [answer["what"] for answer in found["answers"]] == ["linear, DeepR", "linear, Fixed"]
    assert not any(answer["fault"] for answer in found["answers"])
    assert [timing["connectivity"] for timing in found["timings"]] == [None, 0.05]
    assert all(timing["eager"] > 0 for timing in found["timings"])
    assert "the same as on the CPU" in (tmp_path / "device-cpu.md").read_text(encoding="utf-8")


def test_wrong_answers_are_said_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "SMALL", {"linear": devices.SMALL["linear"]})
    monkeypatch.setattr(devices, "METHODS", {"DeepR": devices.METHODS["DeepR"]})
    forward = DeviceLayers.linear_forward
    monkeypatch.setattr(DeviceLayers, "linear_forward", lambda self, *given: forward(self, *given) * 1.5)
    report = devices.measure(torch.device("cpu"), {}, 0.01, True)
    assert not report.is_right
    assert not report.timings


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_a_device_that_is_not_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if getattr(torch, name).is_available():
        pytest.skip("it is there")
    assert main(["bench", "--device", name]) == 2
    assert f"device (='{name}') must be one that this machine has" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "rule"), [("mps", "float64"), ("toaster", "torch knows")])
def test_devices_that_cannot_be(name: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        devices.require_device(name)


def test_moving_to_mps_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = wb.SparseLinear(4, 3, budget=5)

    class There:
        device = torch.device("mps")

    with pytest.raises(ValueError, match="cannot be moved to mps"):
        layer.wiring._apply(lambda t: There())


def test_ledger_and_info_name_the_backend(capsys: pytest.CaptureFixture[str]) -> None:
    layer = wb.SparseLinear(4, 3, budget=5)
    name = ops.backend_of(layer.wiring.theta).name
    assert wb.ledger(layer).backends == (f"{name} on cpu",)
    assert f"{name} on cpu" in str(wb.ledger(layer))
    with ops.use("device"):
        assert wb.ledger(layer).backends == ("device on cpu",)
    assert main(["info"]) == 0
    assert "backend cpu" in capsys.readouterr().out
