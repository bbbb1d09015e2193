"""Kinds of processors: what this machine counts as, and what is said about several kinds together."""

from pathlib import Path

import pytest
import torch

from wirebound_lab.bench import kinds, machine, suite
from wirebound_lab.bench.contest import Goal, Section, Settings

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("isa", "capability", "kind"),
    [
        ("v4", "AVX512", "avx512"),
        ("v3", "AVX2", "avx2"),
        ("v3", "AVX512", "avx2-on-avx512"),
        ("baseline", "AVX2", "baseline-on-avx2"),
        ("baseline", "DEFAULT", "baseline"),
        (None, "AVX2", "plain-torch-on-avx2"),
    ],
)
def test_kind(monkeypatch, isa, capability, kind):
    monkeypatch.setattr(machine.library, "isa", lambda: isa)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    assert machine.kind() == kind


def test_an_arm_machine(monkeypatch):
    monkeypatch.setattr(machine.library, "isa", lambda: "neon")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    assert machine.kind() == "neon"


def results(speed, faster, memory, slowest):
    return Section("some", "Some", [], [
        Goal("speed", 3, speed),
        Goal("Linear: faster than dense up to a density of", 50, faster, "%"),
        Goal("memory", 1, memory, "GB", at_most=True),
        Goal("Linear: slowest at any density, ours ÷ dense", 1.15, slowest, at_most=True),
    ])  # fmt: skip


def test_the_worse_kind_is_quoted(tmp_path):
    for kind, section in {"avx2": results(4, 60, 0.9, 1.1), "avx512": results(2, 30, 0.8, 2.3)}.items():
        about = {**machine.describe(), "kind": kind, "processor": f"the {kind} one"}
        suite.write(tmp_path, [section], Settings(kind=kind), about)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| avx2 | the avx2 one |" in page
    assert "| goal | avx2 | avx512 | worse | met |" in page
    assert "| speed | 4× (≥ 3×) | 2× (≥ 3×) | 2× | no |" in page
    assert "| memory | 0.90 GB (≤ 1 GB) | 0.80 GB (≤ 1 GB) | 0.90 GB | yes |" in page
    sentence = (tmp_path / "density.md").read_text(encoding="utf-8")
    assert "up to 60 % on avx2, and at no density more than 1.10 times as long as dense; up to 30 % on avx512" in sentence


def test_what_only_one_kind_measured_is_not_met(tmp_path):
    suite.write(tmp_path, [results(4, 60, 0.9, 1.1)], Settings(kind="avx2"), machine.describe())
    suite.write(tmp_path, [], Settings(kind="neon"), machine.describe())
    assert "| speed | 4× (≥ 3×) | not measured | 4× | no |" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_published_results_are_whole():
    """The page shows every kind that was measured, and the summary is that of the results beside it."""
    found, page = kinds.read(ROOT / "results" / "bench"), (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert found
    for kind in found:
        assert f'--8<-- "results/bench/{kind}/bench.md:3"' in page
    summary = (ROOT / "results" / "bench" / "README.md").read_text(encoding="utf-8")
    assert summary == kinds.summary(found)
    sentence = (ROOT / "results" / "bench" / "density.md").read_text(encoding="utf-8")
    assert sentence == kinds.density_sentence(found)
