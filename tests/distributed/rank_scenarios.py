"""What the ranks of the tests do; also what a single process does, to compare with."""

import functools
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import wirebound as wb
from wirebound import WiringError
from wirebound.distributed import RanksDifferError
from wirebound_lab import data as datasets
from wirebound_lab.run import TrainConfig
from wirebound_lab.run import train as train_run
from wirebound_lab.run.models import DistributedEngine, build_method, build_model, build_optimizer

STEPS = 40
SHARDED_HOW = ("fully_shard", "FSDP", "FSDP, original parameters")
SHARDED_WHEN = ("before the method", "after the method")
BATCH = 33  # uneven: ranks take 17 and 16


def perceptron(seed=0, **settings):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)).double()
    return wb.sparsify(model, **{"connectivity": 0.05, "init": "sparse-fan-in", "seed": seed, **settings})


def convolutional():
    """Dense convolutions under sparse linear layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        convolutions = [nn.Conv2d(1, 4, 5, stride=2), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2), nn.ReLU()]
        model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(200, 50), nn.ReLU(), nn.Linear(50, 10)).double()
    return wb.sparsify(model, connectivity=0.1, init="sparse-fan-in", seed=0)


def constrained():
    """Caps and signs of neurons, which rank 0 tells the others."""
    kept = wb.Constraints(max_fan_in=30, max_fan_out=5, dale=0.5)
    first = wb.SparseLinear(784, 64, budget=1800, constraints=kept, dtype=torch.float64, init="sparse-fan-in")
    return nn.Sequential(first, nn.ReLU(), wb.SparseLinear(64, 10, budget=200, dtype=torch.float64))


def _deep_r(model, optimizer):
    return wb.DeepR(model, optimizer, l1=1e-3, temperature=1e-6, newborns="share")


def _deep_r_by_gradient(model, optimizer):
    return wb.DeepR(model, optimizer, l1=1e-3, temperature=1e-6, births="gradient", rewire_every=5)


# name: (model, image shape, optimiser, method)
CASES = {
    "perceptron": (perceptron, (784,), lambda p: torch.optim.SGD(p, lr=0.5), _deep_r),
    "momentum, a budget for each layer": (
        lambda: perceptron(scope="layer"),
        (784,),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        _deep_r,
    ),
    "convolutional": (convolutional, (1, 28, 28), lambda p: torch.optim.Adam(p, lr=3e-3), _deep_r),
    "fixed": (perceptron, (784,), lambda p: torch.optim.SGD(p, lr=0.5), wb.Fixed),
    "rigl": (perceptron, (784,), lambda p: torch.optim.SGD(p, lr=0.2), lambda m, o: wb.RigL(m, o, every=10)),
    "births by gradient": (perceptron, (784,), lambda p: torch.optim.SGD(p, lr=0.5), _deep_r_by_gradient),
    "constrained": (constrained, (784,), lambda p: torch.optim.SGD(p, lr=0.5), _deep_r),
}


@functools.cache
def mnist():
    return datasets.load("mnist")


def batches(shape, steps=STEPS, last=1):
    data = mnist()
    x = data.to_inputs(data.train_x[: BATCH * steps]).double().reshape(-1, *shape)
    y = data.train_y[: BATCH * steps]
    sizes = [BATCH] * (steps - 1) + [last]  # the last batch is too small for two ranks: one has nothing to do
    return list(zip(x[: sum(sizes)].split(sizes), y[: sum(sizes)].split(sizes), strict=True))


def train(model, module, case, data, checks=True):
    """(losses, newborns of each step) of a training whose ranks each take their part of every batch."""
    _, _, make_optimizer, make_method = CASES[case]
    method = make_method(module, make_optimizer(model.parameters()))
    losses, rewired = [], []
    for x, y in data:
        mine_x, mine_y = wb.distributed.part(x), wb.distributed.part(y)
        loss = F.cross_entropy(module(mine_x), mine_y, reduction="sum") * wb.distributed.sum_weight(len(y))
        loss.backward()
        mean = loss.detach() / wb.distributed.world_size()
        if dist.is_initialized():
            dist.all_reduce(mean)
        rewired.append(method.step().rewired)
        method.zero_grad()
        losses.append(mean.item())
        if checks:
            wb.distributed.check(method)
    for wiring in wb.wirings(module):
        wiring.check()
    return losses, rewired


def result(case):
    """What a training ends with, in tensors; the same whoever runs it."""
    make_model, shape, *_ = CASES[case]
    model = make_model()
    module = wb.distributed.wrap(model, check_every=7) if dist.is_initialized() else model
    losses, rewired = train(model, module, case, batches(shape))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"losses": losses, "rewired": rewired, "state": state}


def counted_bytes():
    """Bytes of gradients that DDP sends in each step, with the number that there may be."""
    model = perceptron()
    ddp = wb.distributed.wrap(model)
    sent = []

    def count(state, bucket):
        sent.append(bucket.buffer().numel() * bucket.buffer().element_size())
        return allreduce_hook(state, bucket)

    ddp.register_comm_hook(None, count)
    train(model, ddp, "perceptron", batches((784,), steps=4), checks=False)
    budget, biases = wb.wirings(model)[0].budget, 64 + 10
    return {"sent": sum(sent), "steps": 4, "allowed": 8 * (budget + biases)}


def buffers_sent():
    """Names of the buffers that DDP sends in every forward pass."""
    model = nn.Sequential(nn.Linear(784, 64), nn.BatchNorm1d(64), nn.Linear(64, 10))
    model = wb.sparsify(model, connectivity=0.05)
    ddp = wb.distributed.wrap(model)
    names = {id(buffer): name for name, buffer in model.named_buffers()}
    return sorted(names[id(buffer)] for buffer in ddp.modules_buffers)


def other_seed():
    """Ranks that were built with other seeds start with what rank 0 has."""
    model = perceptron(seed=dist.get_rank())
    ddp = wb.distributed.wrap(model)
    losses, _ = train(model, ddp, "perceptron", batches((784,), steps=5))
    return {"losses": losses, "seed": wb.wirings(model)[0].seed}


def plain_ddp():
    """torch's wrapper without ours, and the method on the module inside it."""
    model = perceptron()
    ddp = DistributedDataParallel(model)
    method = _deep_r(ddp.module, torch.optim.SGD(ddp.parameters(), lr=0.5))
    for x, y in batches((784,), steps=5):
        F.cross_entropy(ddp(wb.distributed.part(x)), wb.distributed.part(y), reduction="sum").backward()
        method.step()
        method.zero_grad()
        wb.distributed.check(method)
    return [layer.name for layer in wb.wirings(ddp)[0].layers]


def plain_ddp_with_other_seeds(case, **settings):
    """torch's wrapper without ours, and another seed on each rank."""
    try:
        model = perceptron(seed=dist.get_rank())
        ddp = DistributedDataParallel(model, **settings)
        losses, rewired = train(model, ddp, case, batches((784,), steps=5))
    except RanksDifferError as error:
        return str(error)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {"losses": losses, "rewired": rewired, "state": state, "seed": wb.wirings(model)[0].seed}


def sharded(how, when):
    """What a user reads who shards a sparse model and trains it."""
    model = perceptron()
    try:
        method = _deep_r(model, torch.optim.SGD(model.parameters(), lr=0.5)) if when == "after the method" else None
        if how == "fully_shard":
            module = fully_shard(model)
        else:
            module = FullyShardedDataParallel(
                model, device_id=torch.device("cpu"), use_orig_params=how == "FSDP, original parameters"
            )
        if method is None and when == "before the method":
            method = _deep_r(module, torch.optim.SGD(module.parameters(), lr=0.5))
        x, y = batches((784,), steps=2)[0]
        F.cross_entropy(module(x), y).backward()
        if method is not None:
            method.step()
    except (ValueError, WiringError) as error:
        return str(error)
    return None


def distributed_input():
    mesh = init_device_mesh("cpu", (2,))
    try:
        perceptron()(distribute_tensor(torch.zeros(2, 784, dtype=torch.float64), mesh, [Replicate()]))
    except TypeError as error:
        return str(error)
    return None


def half(path, second):
    """One half of a training of ten steps: the first ends with a checkpoint, the second begins with one."""
    model = perceptron(seed=5 if second else 0)
    module = wb.distributed.wrap(model) if dist.is_initialized() else model
    method = _deep_r(module, torch.optim.Adam(module.parameters(), lr=3e-3))
    if second:
        wb.load(path, method=method)
    data = batches((784,), steps=11)[5 if second else 0 : 10 if second else 5]
    for x, y in data:
        loss = F.cross_entropy(module(wb.distributed.part(x)), wb.distributed.part(y), reduction="sum")
        (loss * wb.distributed.sum_weight(len(y))).backward()
        method.step()
        method.zero_grad()
    if not second and wb.distributed.rank() == 0:
        wb.save(path, method=method)
    return {name: value.clone() for name, value in model.state_dict().items()}


def drift(watched):
    """Rank 1 changes one θ on its own."""
    model = perceptron()
    ddp = wb.distributed.wrap(model, check_every=3 if watched else 0)
    method = _deep_r(ddp, torch.optim.SGD(ddp.parameters(), lr=0.5))
    try:
        for x, y in batches((784,), steps=12):
            F.cross_entropy(ddp(wb.distributed.part(x)), wb.distributed.part(y), reduction="sum").backward()
            method.step()
            method.zero_grad()
            if method.steps == 5 and dist.get_rank() == 1:
                with torch.no_grad():
                    wb.wirings(model)[0].theta[7] += 1e-12
            if not watched:
                wb.distributed.check(method, every=4)
    except RanksDifferError as error:
        return str(error)
    return None


def other_budget():
    try:
        wb.distributed.wrap(perceptron(connectivity=0.05 + 0.01 * dist.get_rank()))
    except RanksDifferError as error:
        return str(error)
    return None


def everything(folder):
    """All of the above in one start of the processes."""
    torch.set_num_threads(1)
    found = {name: result(name) for name in CASES}
    found |= {"bytes": counted_bytes(), "buffers": buffers_sent(), "other seed": other_seed(), "plain": plain_ddp()}
    found["plain, other seeds"] = {case: plain_ddp_with_other_seeds(case) for case in ("perceptron", "rigl")}
    found["plain, other seeds, no buffers"] = plain_ddp_with_other_seeds("perceptron", broadcast_buffers=False)
    found["sharded"] = {how: {when: sharded(how, when) for when in SHARDED_WHEN} for how in SHARDED_HOW}
    found["distributed input"] = distributed_input()
    path = Path(folder) / "half.safetensors"
    half(path, False)
    dist.barrier()
    found["second half"] = half(path, True)
    found |= {"drift": drift(False), "drift, watched": drift(True), "other budget": other_budget()}
    torch.save(found, Path(folder) / f"rank{dist.get_rank()}.pt")
    return 0


def fail(how):
    """Rank 1 ends in some way while the ranks work together."""
    value = torch.ones(1)
    for step in range(50):
        dist.all_reduce(value)
        if step == 20 and dist.get_rank() == 1:
            if how == "killed":
                os.kill(os.getpid(), 9)
            raise ArithmeticError("the loss is not finite")
    return 0


def wrong_input():
    if dist.get_rank() == 0:
        raise ValueError("lr (=-1) must be > 0")
    dist.barrier()
    return 0


SETTINGS = {"data": "digits", "connectivity": 0.1, "epochs": 3, "batch_size": 50, "lr": 1.0, "engine": "module"}


def run_and_lose_rank_1(out, step, settings=SETTINGS):
    """A run with checkpoints, in which rank 1 is killed before a certain step."""
    gradients = DistributedEngine._gradients

    def dying(self, batch):
        if dist.get_rank() == 1 and self.method.steps == step:
            os.kill(os.getpid(), 9)
        return gradients(self, batch)

    DistributedEngine._gradients = dying
    train_run(TrainConfig(**settings, checkpoint_every=20), Path(out))
    return 0


def run(out, resume):
    """A whole run, new or gone on with."""
    result = train_run(TrainConfig(**SETTINGS), Path(out), resume=resume)
    assert result.folder == (Path(out) if dist.get_rank() == 0 else None)
    return 0


def skipping(folder):
    """An example that is not finite, in the part of rank 1: both ranks leave out the same step."""
    config = TrainConfig(**{**SETTINGS, "on_nan": "skip"})
    data = datasets.load("digits")
    x = data.inputs("train", flatten=True).clone()
    x[17] = torch.nan
    model = build_model(config, x.shape[1], data.classes)
    method = build_method(config, model, build_optimizer(config, model))
    engine = DistributedEngine(model, method, x, data.train_y)
    engine.on_nan = "skip"
    order = torch.arange(200)
    windows = list(engine.epoch(order, [0.5] * 20, 10, 20))
    wb.distributed.check(method)
    skips = [[skip.step, skip.where] for window in windows for skip in window.skipped]
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps({"skips": skips, "steps": method.steps}))
    return 0


SMALL_TASKS = {
    "cifar": {"connectivity": 0.05, "batch_size": 25, "lr": 0.02, "epochs": 2},
    "phonemes": {"connectivity": 0.3, "batch_size": 7, "hidden": [8], "epochs": 2},
    "shuffled": {"data": "digits", "connectivity": 0.1, "batch_size": 50, "lr": 0.5, "epochs": 2, "engine": "module"},
}


def small_task(task, out, resume=False):
    """A run of a task on small data, in one process or several."""
    from small_data import corpus_data, stripes_data

    from wirebound_lab.tasks import cifar, phonemes

    torch.set_num_threads(1)
    cifar.load = lambda name, path: stripes_data()
    phonemes.load_sequences = lambda name, path, partial: corpus_data()
    train_run(TrainConfig(task=task, **SMALL_TASKS[task]), Path(out), resume=resume)
    return 0
