"""1,000,000 steps of DEEP R with the invariant checked after each: exactly K, sorted, distinct, finite, no leak."""

import ctypes
import time

import numpy as np
import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.fused import FusedEngine
from wirebound.ops import library

pytestmark = pytest.mark.skipif(not ops.native_available(), reason="the native kernels were not built")

SHAPES = ((6, 8), (3, 6))  # (outputs, inputs) of each layer
BATCH = 2


class Watch:
    """The invariant of a wiring, on its own memory: quick enough to ask after every step."""

    def __init__(self, wiring):
        self.budget = wiring.budget
        self.theta, self.packed_rows, self.colptr = (
            t.detach().numpy() for t in (wiring.theta, wiring.packed_rows, wiring.colptr)
        )
        self.addresses = [a.ctypes.data for a in (self.theta, self.packed_rows, self.colptr)]
        heights = np.concatenate([np.full(n_in, n_out) for n_out, n_in in SHAPES])
        self.base = np.concatenate([[0], np.cumsum(heights)[:-1]])
        self.heights = heights

    def check(self):
        counts = np.diff(self.colptr)
        assert self.colptr[0] == 0
        assert self.colptr[-1] == self.budget
        assert counts.min() >= 0
        columns = np.repeat(np.arange(counts.size), counts)
        rows = self.packed_rows & 0x7FFFFFFF
        assert (rows < self.heights[columns]).all()
        assert (np.diff(self.base[columns] + rows) > 0).all()
        assert self.theta.min() >= 0  # NaN fails this too
        assert self.theta.max() < 1e6


def _resident() -> int:
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096


class OneByOne:
    """The native library, whose calls of many steps become that many calls of one step, each followed by a check."""

    def __init__(self, native, check):
        self.native, self.check, self.steps = native, check, 0

    def __getattr__(self, name):
        return getattr(self.native, name)

    def wb_fused_steps_f32(self, run_reference, status_reference):
        run = run_reference._obj
        single = type(run).from_buffer_copy(run)
        single.steps = 1
        for _ in range(run.steps):
            assert self.native.wb_fused_steps_f32(ctypes.byref(single), status_reference) == 1
            assert status_reference._obj.value == 0
            self.check()
            self.steps += 1
            single.first_step += 1
            single.order += 8 * BATCH
            single.batch += 8
            single.lr += 8
            single.loss += 8
            single.born += 8 * single.born_stride
        return run.steps


def _walk(steps, inner, monkeypatch):
    """Train ``steps`` steps of the fused path and check after each; newborns, and resident bytes along the way."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(64, 8, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    model = nn.Sequential(nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
    model = wb.sparsify(model, connectivity=0.35, seed=1, init="sparse-fan-in")
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.05), l1=0.01, temperature=1e-4)
    wiring = wb.wirings(model)[0]
    watch = Watch(wiring)
    one_by_one = OneByOne(library.load(), watch.check)
    monkeypatch.setattr("wirebound.ops.native.stack.KERNELS", one_by_one)
    engine = FusedEngine(model, method, x, y)
    order, rewired, resident = torch.arange(BATCH * inner) % 64, 0, []
    started = time.perf_counter()
    for start in range(0, steps, inner):
        for window in engine.epoch(order, [0.05] * inner, BATCH, inner):
            rewired += sum(window.newborns)
            assert window.active_min == window.active_max == wiring.budget
        wiring.check()
        assert method.steps == one_by_one.steps == start + inner
        resident.append(_resident())
    seconds = time.perf_counter() - started
    assert [t.data_ptr() for t in (wiring.theta, wiring.packed_rows, wiring.colptr)] == watch.addresses
    print(f"{steps:,} steps, each checked; {rewired:,} rewired; {seconds:.0f} s; resident {resident[-1] >> 20} MB")
    return rewired, resident


def test_ten_thousand_steps(monkeypatch):
    rewired, _ = _walk(10_000, 500, monkeypatch)
    assert rewired > 500


@pytest.mark.slow
def test_a_million_steps(monkeypatch):
    rewired, resident = _walk(1_000_000, 1000, monkeypatch)
    assert rewired > 50_000
    # After the first tenth, nothing grows: a leak of one byte a step would be a megabyte.
    assert max(resident[100:]) - resident[100] < 1 << 20
