"""Every reader, fed with mutations of good files: a clear error or a good result, no crash, no hang, no memory.

A share of the inputs is sealed again after the mutation, so that what lies behind the checksum is reached.
"""

import contextlib
import copy
import gzip
import io
import json
import random
import resource
import signal
import struct
import tarfile
import time
import zipfile
from abc import ABC, abstractmethod
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fuzz_mutate import Sealed, mutate_bytes, mutate_value
from reliability_helpers import config
from torch import nn

import wirebound as wb
from wirebound.checkpoint.tree import leaves
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import data_order
from wirebound.engine.window import Tally
from wirebound.methods import METHODS
from wirebound_lab.data import DataError
from wirebound_lab.data.content import File, parse_idx, read_file, read_members
from wirebound_lab.data.speech import parse_phones
from wirebound_lab.data.timit import read_audio, read_labels
from wirebound_lab.report.page import render
from wirebound_lab.report.records import read_records
from wirebound_lab.report.runs import Run
from wirebound_lab.run.config import ConfigError, make_config, read_settings, settings_of
from wirebound_lab.run.models import build_method, build_model, build_optimizer
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.run.resume import RunState, checkpoint_extra, load_checkpoint

SECONDS_EACH = 10
MEGABYTES = 150


class Target(ABC):
    """One reader: how to make an input, how to read it, and which errors are its clear ones."""

    errors: tuple[type[Exception], ...]

    @abstractmethod
    def make(self, chance: random.Random) -> object: ...

    @abstractmethod
    def read(self, made: object) -> None: ...


TASK = SimpleNamespace(per_epoch=29, state=dict, load_state=lambda stored: None)


class CheckpointTarget(Target):
    """A checkpoint of a run, read as ``wirebound train --resume`` reads it."""

    errors = (wb.CheckpointError, RunFolderError)
    sealed = True

    def __init__(self, folder, **settings):
        self.config = config(**{"hidden": [5], "optimizer": "adam", "eps": 1e-4, "lr": 0.01, **settings})
        self.method = self._method()
        self.x, self.y = torch.rand(20, 9), torch.randint(0, 3, (20,))
        self._train(4)
        self.folder = SimpleNamespace(checkpoint=folder / "checkpoint.safetensors")
        state = RunState([1] * len(self.method.shapes), taken=4, window=Tally(1, 4, 2.0, 4, 1, 1, [0, 0]))
        observer = Observer(self.method)
        observer.look(0)
        extra = checkpoint_extra(self.config, "fused", state, observer, TASK)
        wb.save(self.folder.checkpoint, method=self.method, extra=extra)
        self.good = self.folder.checkpoint.read_bytes()
        self.parts = Sealed(self.good)
        self.method = self._method()

    def _method(self):
        model = build_model(self.config, 9, 3)
        return build_method(self.config, model, build_optimizer(self.config, model))

    def _train(self, steps):
        if why_not_fused(self.method.model, self.method):
            return
        engine = FusedEngine(self.method.model, self.method, self.x, self.y)
        list(engine.epoch(data_order(20, 0, 1)[:steps], [0.01] * steps, 1, steps))

    def make(self, chance):
        return self.parts.mutate(chance) if self.sealed else mutate_bytes(self.good, [self.good], chance)

    def read(self, made):
        self.folder.checkpoint.write_bytes(made)
        try:
            observer = Observer(self.method)
            load_checkpoint(self.folder, self.config, self.method, "fused", TASK, observer)
            observer.look(1)
        except self.errors:
            for wiring in wb.wirings(self.method.model):
                wiring.check()
            if self.method.steps:  # the state was good, and what the run says of itself was not
                self.method = self._method()
            raise
        for wiring in wb.wirings(self.method.model):
            wiring.check()
        # What was accepted must be fit to train on, in the kernels that index memory by it.
        self.method.steps = min(self.method.steps, 1 << 40)
        with contextlib.suppress(ArithmeticError):  # huge numbers are finite numbers
            self._train(1)
        self.method = self._method()


class RawCheckpointTarget(CheckpointTarget):
    sealed = False


class MomentumCheckpointTarget(CheckpointTarget):
    def __init__(self, folder):
        super().__init__(folder, optimizer="momentum", scope="layer", newborns="uniform")


class MethodCheckpointTarget(Target):
    """Checkpoints of every method with optimisers that torch steps itself, read by ``wb.load``."""

    errors = (wb.CheckpointError,)
    optimizers = (
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
        lambda p: torch.optim.Adadelta(p),
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.Adam(p),
        lambda p: torch.optim.Rprop(p),
    )

    def __init__(self, folder):
        self.path = folder / "checkpoint.safetensors"
        self.x, self.y = torch.rand(20, 9), torch.randint(0, 3, (20,))
        self.kinds = [(name, made) for name in METHODS for made in self.optimizers]
        random.Random(0).shuffle(self.kinds)
        self.made = {}  # parts of a good file, and objects to load into, of each kind that was asked for

    def _method(self, kind):
        settings = config(method=kind[0], hidden=[5], theta_min=-0.1, replace_every=2)
        model = build_model(settings, 9, 3)
        return build_method(settings, model, kind[1](model.parameters()), per_epoch=3)

    def _train(self, method, steps):
        for _ in range(steps):
            nn.functional.cross_entropy(method.model(self.x), self.y).backward()
            method.step()
            method.zero_grad()

    def _state(self, method):
        state = {"model": method.model.state_dict(), "optimizer": method.optimizer.state_dict(), "method": method.state_dict()}
        return copy.deepcopy(dict(leaves(state, "")))

    def make(self, chance):
        kind = chance.choice(self.kinds)
        if kind not in self.made:
            method = self._method(kind)
            self._train(method, 3)
            wb.save(self.path, method=method)
            self.made[kind] = (Sealed(self.path.read_bytes()), method, self._state(method))
        return kind, self.made[kind][0].mutate(chance)

    def read(self, made):
        kind, raw = made
        _, method, before = self.made[kind]
        self.path.write_bytes(raw)
        try:
            wb.load(self.path, method=method)
        except self.errors:
            after = self._state(method)
            assert after.keys() == before.keys()
            for name, value in before.items():
                same = torch.equal(value, after[name]) if isinstance(value, torch.Tensor) else value == after[name]
                assert same, f"{name} was changed"
            raise
        del self.made[kind]
        for wiring in wb.wirings(method.model):
            wiring.check()
        with contextlib.suppress(ArithmeticError):  # huge numbers are finite numbers
            self._train(method, 2)


class ModelTarget(Target):
    """A model file, sparse and dense layers together."""

    errors = (wb.CheckpointError,)

    def __init__(self, folder):
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))
        self.model = wb.sparsify(model, connectivity=0.4, exclude="2")
        self.path = folder / "model.safetensors"
        wb.save(self.path, model=self.model)
        self.parts = Sealed(self.path.read_bytes())

    def make(self, chance):
        return self.parts.mutate(chance)

    def read(self, made):
        self.path.write_bytes(made)
        wb.load(self.path, model=self.model)
        self.model[0].wiring.check()
        assert all(torch.isfinite(p).all() for p in self.model.parameters())


class IdxTarget(Target):
    errors = (DataError,)

    def __init__(self, folder):
        shapes = ((3, 4, 5), (60,), (2, 2, 2, 2), (1, 1))
        self.good = [
            bytes([0, 0, 8, len(shape), *np.array(shape, dtype=">i4").tobytes()]) + bytes(np.prod(shape).item())
            for shape in shapes
        ]

    def make(self, chance):
        return mutate_bytes(chance.choice(self.good), self.good, chance)

    def read(self, made):
        assert parse_idx(made, "input").nbytes <= len(made)


class PackedIdxTarget(IdxTarget):
    """Gzipped idx files, as MNIST has them."""

    def __init__(self, folder):
        super().__init__(folder)
        self.path = folder / "data.idx.gz"
        self.packed = [gzip.compress(raw) for raw in self.good]

    def make(self, chance):
        if chance.random() < 0.5:
            return gzip.compress(super().make(chance), compresslevel=1)
        return mutate_bytes(chance.choice(self.packed), self.packed, chance)

    def read(self, made):
        self.path.write_bytes(made)
        assert parse_idx(read_file(self.path, limit=1000), "f").nbytes <= 1000


class ConfigTarget(Target):
    errors = (ConfigError,)

    def __init__(self, folder):
        self.path = folder / "config.json"
        self.settings = config().as_dict()
        self.good = [json.dumps(self.settings).encode(), b'{"connectivity": 0.1, "hidden": [3, 4]}']

    def make(self, chance):
        if chance.random() < 0.5:
            return json.dumps(mutate_value(self.settings, chance)).encode()
        return mutate_bytes(chance.choice(self.good), self.good, chance)

    def read(self, made):
        self.path.write_bytes(made)
        found = make_config(read_settings(self.path))
        found.check()
        assert set(found.as_dict()) == set(settings_of(found.task, found.method))


class TomlTarget(ConfigTarget):
    def __init__(self, folder):
        super().__init__(folder)
        self.path = folder / "config.toml"
        self.good = [b'data = "digits"\nconnectivity = 0.2\nepochs = 3\nhidden = [20]\nbias = true\n', b"[a]\nb.c = 1\n"]

    def make(self, chance):
        return mutate_bytes(chance.choice(self.good), self.good, chance)


class ArchiveTarget(Target):
    """Packed archives, as packages of data come."""

    errors = (DataError,)

    def __init__(self, folder):
        self.path = folder / "package.tgz"
        content = bytes(range(256)) * 4
        sha = __import__("hashlib").sha256(content).hexdigest()
        self.files = [File("package/data", len(content), sha)]
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            for name in ("package/readme", "package/data"):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        self.plain = raw.getvalue()
        self.packed = gzip.compress(self.plain, compresslevel=1)

    def make(self, chance):
        if chance.random() < 0.7:
            head = mutate_bytes(self.plain[:2048], [self.plain], chance)
            return gzip.compress(head + self.plain[2048:], compresslevel=1)
        return mutate_bytes(self.packed, [self.packed], chance)

    def read(self, made):
        self.path.write_bytes(made)
        for file, content in read_members(self.path, self.files, limit=100_000):
            assert len(content) == file.size


class RecordsTarget(Target):
    """metrics.jsonl, which the report reads and draws; it refuses nothing and skips what it cannot use."""

    errors = ()

    def __init__(self, folder):
        self.path = folder / "metrics.jsonl"
        lines = [
            {"kind": "wiring", "epoch": 0, "step": 0, "inputs": [1, 2, 2], "shape": [3], **self._wiring([0], [5])},
            {"kind": "window", "step_from": 1, "step_to": 3, "loss": 1.5, "active_min": 5, "active_max": 5, "newborns": [1],
             "deaths": [1]},
            {"kind": "epoch", "epoch": 1, "step": 3, "train_loss": 1.0, "test_accuracy": 0.5, "layer_active": [5]},
            {"kind": "wiring", "epoch": 1, "step": 3, "inputs": [1, 2, 2], "shape": [3], **self._wiring([0, 1], [2, 3])},
        ]
        self.lines, self.good = lines, ["\n".join(map(json.dumps, lines)).encode()]

    def make(self, chance):
        if chance.random() < 0.5:
            return "\n".join(json.dumps(mutate_value(line, chance)) for line in self.lines).encode()
        return mutate_bytes(self.good[0], self.good, chance)

    def read(self, made):
        self.path.write_bytes(made)
        records = read_records(self.path)
        assert len(records.windows) <= len(made)
        assert render([Run(self.path.parent, {}, {}, records)]).endswith("</html>\n")

    @staticmethod
    def _wiring(starts, ages):
        layer = {"name": "a", "shape": [2, 3], "rows": [2, 3], "row_group": 1, "columns": [3, 2], "column_group": 2}
        return {"layers": [layer], "ages": {"from": starts, "layers": [ages], "since_start": [ages[-1]]}}


class PhonesTarget(Target):
    """Labelled speech in an .npz: mutated as it is, or an array of it mutated and packed again with a good checksum."""

    errors = (DataError,)

    def __init__(self, folder):
        total, utterances = 60, 5
        self.arrays = {
            "mfcc": (np.arange(total * 13).reshape(total, 13) * 37 % 901 - 450).astype(np.int16),
            "step": np.linspace(0.1, 0.4, 13).astype(np.float32),
            "labels": (np.arange(total) % 3).astype(np.uint8),
            "lengths": np.array([10, 5, 20, 1, 24], dtype=np.int32),
            "classes": np.array(["AA", "B", "SIL"]),
            "is_test": np.arange(utterances) % 3 == 2,
            "utt": np.array([f"u{i}" for i in range(utterances)]),
            "speaker": np.array([f"s{i % 2}" for i in range(utterances)]),
        }
        self.members = {f"{name}.npy": self._npy(array) for name, array in self.arrays.items()}
        self.good = [self._zip(self.members, kind) for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]

    @staticmethod
    def _npy(array):
        raw = io.BytesIO()
        np.lib.format.write_array(raw, array, allow_pickle=False)
        return raw.getvalue()

    @staticmethod
    def _zip(members, kind=zipfile.ZIP_STORED):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", kind) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, compress_type=kind)
        return raw.getvalue()

    def make(self, chance):
        if chance.random() < 0.4:
            return mutate_bytes(chance.choice(self.good), self.good, chance)
        members = dict(self.members)
        name = chance.choice(list(members))
        raw = members[name]
        # The header is as long as most of these arrays: mutate it or what follows.
        part = chance.choice((raw[:128], raw[128:]))
        changed = mutate_bytes(part, list(self.members.values()), chance)
        members[name] = changed + raw[128:] if part == raw[:128] else raw[:128] + changed
        return self._zip(members, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))

    def read(self, made):
        found = parse_phones(made, "speech", "input", "here", limit=100_000)
        for x, lengths, y in found.batches(2, found.part("train")):
            assert torch.isfinite(x).all()
            assert int(lengths.max()) == x.shape[1]
            assert int(y.max()) < found.classes


class SphereTarget(Target):
    """SPHERE and RIFF recordings, as TIMIT has them."""

    errors = (DataError,)

    def __init__(self, folder):
        pytest.importorskip("soundfile")
        self.path = folder / "SX1.WAV"
        samples = (np.arange(500) * 31 % 4001 - 2000).astype("<i2").tobytes()
        fields = "channel_count -i 1\nsample_count -i 500\nsample_rate -i 16000\nsample_n_bytes -i 2\n"
        fields += "sample_byte_format -s2 01\nsample_sig_bits -i 16\nsample_coding -s3 pcm\nend_head\n"
        header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 1036, b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16, b"data", 1000)
        self.good = [f"NIST_1A\n   1024\n{fields}".encode().ljust(1024) + samples, header + samples]

    def make(self, chance):
        good = chance.choice(self.good)
        at = 300 if chance.random() < 0.7 else len(good)
        return mutate_bytes(good[:at], self.good, chance) + good[at:]

    def read(self, made):
        self.path.write_bytes(made)
        assert 2 * len(read_audio(self.path)) <= len(made)


class LabelsTarget(Target):
    """The .PHN files of TIMIT."""

    errors = (DataError,)

    def __init__(self, folder):
        self.path = folder / "SX1.PHN"
        self.good = [b"0 800 h#\n800 2000 sh\n2000 2400 q\n2400 4000 ix\n4000 4800 h#\n", b"0 100 b\r\n100 200 d\r\n"]

    def make(self, chance):
        return mutate_bytes(chance.choice(self.good), self.good, chance)

    def read(self, made):
        self.path.write_bytes(made)
        labels = read_labels(self.path, 30)
        assert len(labels) == 30
        assert -1 <= labels.min() <= labels.max() < 39


# How many inputs each reader gets in the long target; the quick one takes a fortieth.
COUNTS = {
    CheckpointTarget: 12_000,
    MomentumCheckpointTarget: 5_000,
    MethodCheckpointTarget: 8_000,
    RawCheckpointTarget: 10_000,
    ModelTarget: 10_000,
    IdxTarget: 40_000,
    PackedIdxTarget: 8_000,
    ConfigTarget: 20_000,
    TomlTarget: 10_000,
    ArchiveTarget: 4_000,
    RecordsTarget: 8_000,
    PhonesTarget: 12_000,
    SphereTarget: 6_000,
    LabelsTarget: 6_000,
}


def _fuzz(kind, folder, count, seed):
    target, chance = kind(folder), random.Random(seed)
    for _ in range(20):  # warm up: caches and imports are not what is measured
        _feed(target, target.make(chance))
    before, slowest, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    for _ in range(count):
        made = target.make(chance)
        started = time.perf_counter()
        refused += _feed(target, made)
        slowest = max(slowest, time.perf_counter() - started)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(f"{kind.__name__}: {count:,} inputs, {refused:,} refused, slowest {slowest:.2f} s, grown by {grown} MB")
    assert grown < MEGABYTES
    return count


def _feed(target, made):
    def too_slow(number, frame):
        raise TimeoutError(f"an input took more than {SECONDS_EACH} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(SECONDS_EACH)
    try:
        target.read(made)
    except target.errors as error:
        return 0 < len(str(error)) < 5000
    except BaseException:
        print(f"the input was {made!r}")
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return False


@pytest.mark.parametrize("kind", COUNTS, ids=lambda kind: kind.__name__)
def test_some_inputs(tmp_path, kind):
    assert _fuzz(kind, tmp_path, COUNTS[kind] // 40, seed=0) == COUNTS[kind] // 40


@pytest.mark.slow
def test_a_hundred_thousand_inputs(tmp_path):
    total = sum(_fuzz(kind, tmp_path, count, seed=1) for kind, count in COUNTS.items())
    print(f"{total:,} inputs in all")
    assert total >= 100_000
