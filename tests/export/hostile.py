"""Model files that declare far more than they hold, whole in every other way: checksum, wiring, names."""

from __future__ import annotations

from pathlib import Path

import torch

import wirebound as wb
from wirebound.checkpoint.container import Container, write_container

HUGE = (1 << 31) - 1


def huge_outputs(path: Path, *, caps: bool = False) -> Path:
    """A file of little more than a kilobyte whose layer has 2^31 - 1 outputs and three connections."""
    model = torch.nn.Sequential(wb.SparseLinear(4, 50, False, budget=3))
    wb.save(path, model=model)
    document, tensors = _content(path)
    document["model"]["wirings"][0]["layers"][0][1] = HUGE
    if caps:
        tensors["0.wiring.fan_caps"] = torch.tensor([[4], [HUGE]])
        document["model"]["state"]["0.wiring.fan_caps"] = {"$": "tensor", "name": "0.wiring.fan_caps"}
    write_container(path, tensors, document)
    return path


def empty_matrix(path: Path, *, bias: bool) -> Path:
    """A dense layer of 2^40 outputs without inputs: a matrix of no bytes."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    wb.save(path, model=model)
    document, tensors = _content(path)
    tensors["0.weight"] = torch.empty(1 << 40, 0)
    document["model"]["stack"][0]["bias"] = bias
    del tensors["0.bias"], document["model"]["state"]["0.bias"]
    write_container(path, tensors, document)
    return path


def wide_and_tall(path: Path) -> Path:
    """A layer whose matrix would take 2^40 bytes, in a file of half a megabyte that holds two connections."""
    n = 1 << 16
    model = torch.nn.Sequential(wb.SparseLinear(n, 8, False, budget=2))
    wb.save(path, model=model)
    document, tensors = _content(path)
    document["model"]["wirings"][0]["layers"][0][1] = 1 << 20
    write_container(path, tensors, document)
    return path


def _content(path: Path):
    with Container(path) as file:
        return file.document, {name: file.tensor(name) for name in file.entries}
