"""The experiment on bytes and accuracy of C code, made small."""

import shutil

import c_export
import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(c_export, "CONNECTIVITIES", (0.01,))
    monkeypatch.setattr(c_export, "SEEDS", (0,))
    assert c_export.main(["--out", str(tmp_path), "--epochs", "1"]) == 0
    table = (tmp_path / "c.md").read_text()
    assert table.count("| 2,662 (1 %) |") == 3
