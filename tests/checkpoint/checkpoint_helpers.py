"""Small trainings to keep, files to take apart, and a way to seal them again."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

import wirebound as wb
from wirebound.checkpoint.container import CODES, DIGEST, DOCUMENT, METADATA, Container, content_hash, pack_header

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05),
}
METHODS = {
    "deep-r": lambda m, o: wb.DeepR(m, o, l1=0.01, temperature=1e-5, newborns="share", newborn_moments="own"),
    "fixed": wb.Fixed,
    "dense": wb.Dense,
}
# The others, each so that it keeps all that it can.
MORE_METHODS = {
    "soft": lambda m, o: wb.SoftDeepR(m, o, l1=0.01, temperature=1e-4, theta_min=-0.1, connectivity=0.3, seed=3),
    "constant rate": lambda m, o: wb.ConstantRate(m, o, rate=0.01, l1=0.05),
    "set": lambda m, o: wb.SET(m, o, every=3),
    "rigl": lambda m, o: wb.RigL(m, o, every=3),
    "signs": lambda m, o: wb.Evolve(m, o, drop=wb.drop.SignFlips(), grow=wb.grow.Random(), when=wb.when.Every(2, 0.2)),
    "pruning": lambda m, o: wb.MagnitudePruning(m, o, total_steps=6, connectivity=0.5),
    "shrinkage": lambda m, o: wb.L1Shrinkage(m, o, l1=0.1),
}
PLAIN_METHODS = ("dense", "soft", "pruning", "shrinkage")
EXAMPLES = 60
X = torch.randn(EXAMPLES, 10, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 4, (EXAMPLES,), generator=torch.Generator().manual_seed(2))


def build(method="deep-r", optimizer="sgd", seed=0, scope="global", dropout=0.0, hidden=8):
    """(method, scheduler) of a small network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(10, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 4)]
        model = nn.Sequential(*layers)
        if method not in PLAIN_METHODS:
            model = wb.sparsify(model, connectivity=0.4, scope=scope, seed=seed, init="sparse-fan-in")
    made = {**METHODS, **MORE_METHODS}[method](model, OPTIMIZERS[optimizer](model.parameters()))
    return made, torch.optim.lr_scheduler.StepLR(made.optimizer, 7, 0.5)


def take_steps(method, scheduler, count):
    for _ in range(count):
        first = method.steps * 6 % EXAMPLES
        nn.functional.cross_entropy(method.model(X[first : first + 6]), Y[first : first + 6]).backward()
        method.step()
        method.zero_grad()
        scheduler.step()


def everything(method, scheduler):
    """All state, as one flat list of (name, value)."""
    flat = []

    def walk(name, value):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}/{key}", item)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                walk(f"{name}/{i}", item)
        else:
            flat.append((name, value))

    walk("model", dict(method.model.state_dict()))
    walk("optimizer", method.optimizer.state_dict())
    walk("method", method.state_dict())
    walk("scheduler", scheduler.state_dict())
    return flat


def assert_same_state(one, two):
    """Bit for bit."""
    mine, theirs = everything(*one), everything(*two)
    assert [name for name, _ in mine] == [name for name, _ in theirs]
    for (name, a), (_, b) in zip(mine, theirs, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), name
        else:
            assert type(a) is type(b), name
            assert a == b, name


def take_apart(path: Path) -> tuple[dict, dict, bytearray]:
    """(header, document, data) of a file."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    return header, json.loads(header[METADATA][DOCUMENT]), bytearray(raw[end:])


def put_together(path: Path, header: dict, document: object, content: bytes) -> None:
    """A file with these parts and the right checksum: only its meaning can be wrong."""
    header = {**header, METADATA: {**header[METADATA], DOCUMENT: json.dumps(document)}}
    digest = content_hash(header)
    digest.update(content)
    header[METADATA][DIGEST] = digest.hexdigest()
    packed = pack_header(header)
    path.write_bytes(len(packed).to_bytes(8, "little") + packed + content)


def change_tensor(path: Path, name: str, change) -> None:
    """Change a tensor inside of a file, and seal it again."""
    header, document, content = take_apart(path)
    start, end = header[name]["data_offsets"]
    kind = {"F32": torch.float32, "I32": torch.int32, "I64": torch.int64, "BOOL": torch.uint8, "U8": torch.uint8}
    tensor = torch.frombuffer(content[start:end], dtype=kind[header[name]["dtype"]]).clone()
    change(tensor)
    content[start:end] = tensor.numpy().tobytes()
    put_together(path, header, document, content)


def rewrite(path: Path, change) -> None:
    """Let ``change(tensors, document)`` change a file's tensors (by name) and its document, and seal it again."""
    with Container(path) as file:
        tensors, document = {name: file.tensor(name) for name in file.entries}, file.document
    change(tensors, document)
    header, content = {METADATA: {"format": "pt"}}, bytearray()
    for name, tensor in tensors.items():
        raw = tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        places = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": places}
        content += raw
    put_together(path, header, document, content)
