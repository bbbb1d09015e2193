"""Training loops of other people and habits in one's own: exactly K connections afterwards, and they have moved.

Lightning, Hugging Face's Trainer and GradScaler have files of their own in ``tests/integrations``.
"""

from __future__ import annotations

import copy
import inspect
import multiprocessing
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.checkpoint import checkpoint
from training import X, Y, assert_trained, loader, net, positions, rewiring, rewiring_optimizer

import wirebound as wb
from wirebound.methods import attached

pytestmark = pytest.mark.filterwarnings("ignore")  # of the trainers


def train(model: nn.Module, method: Any, steps: int = 3, run: Any = None) -> None:
    for _ in range(steps):
        method.zero_grad()
        F.cross_entropy((run or model)(X), Y).backward()
        method.step()


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_accelerate(tmp_path: Any) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    bare = net()
    before = positions(bare)
    model, optimizer, batches = accelerator.prepare(bare, rewiring_optimizer(bare), loader())
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(x), y))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            for wiring in wb.wirings(bare):
                wiring.check()
            optimizer.zero_grad()
    assert_trained(bare, before)
    assert attached(optimizer).steps == 3
    accelerator.save_state(tmp_path)
    kept = copy.deepcopy(bare)
    train(bare, optimizer)
    assert not same(kept, bare)
    whole = copy.deepcopy(bare)
    accelerator.load_state(tmp_path)
    assert same(kept, bare)
    assert attached(optimizer).steps == 3
    train(bare, optimizer)
    assert same(whole, bare)


SCHEDULERS: dict[str, dict[str, Any]] = {
    "StepLR": {"step_size": 1}, "MultiStepLR": {"milestones": [1, 2]}, "ConstantLR": {}, "LinearLR": {},
    "ExponentialLR": {"gamma": 0.9}, "CosineAnnealingLR": {"T_max": 3}, "PolynomialLR": {}, "ReduceLROnPlateau": {},
    "LambdaLR": {"lr_lambda": lambda step: 0.9**step}, "MultiplicativeLR": {"lr_lambda": lambda step: 0.9},
    "OneCycleLR": {"max_lr": 0.05, "total_steps": 5}, "CosineAnnealingWarmRestarts": {"T_0": 2},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.05, "cycle_momentum": False},
}  # fmt: skip


@pytest.mark.parametrize("by_optimizer", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_lr_schedulers(name: str, by_optimizer: bool) -> None:
    model = net()
    before = positions(model)
    method = rewiring(model)
    scheduler = getattr(optim.lr_scheduler, name)(method.optimizer, **SCHEDULERS[name])
    rates = []
    for _ in range(4):
        train(model, method.optimizer if by_optimizer else method, 1)
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        rates.append(method.optimizer.param_groups[0]["lr"])
    assert_trained(model, before)
    if name not in ("ReduceLROnPlateau", "ConstantLR"):
        assert len(set(rates)) > 1


def test_all_lr_schedulers_of_torch_are_asked() -> None:
    known = {name for name, kind in vars(optim.lr_scheduler).items() if inspect.isclass(kind) and name.endswith(("LR", "Restarts"))}
    assert known - {"SequentialLR", "ChainedScheduler", "SWALR"} <= {*SCHEDULERS, "LRScheduler"}


def test_schedulers_one_after_another() -> None:
    model = net()
    method = rewiring(model)
    warm = optim.lr_scheduler.LinearLR(method.optimizer, 0.1, total_iters=2)
    cool = optim.lr_scheduler.ExponentialLR(method.optimizer, 0.5)
    scheduler = optim.lr_scheduler.SequentialLR(method.optimizer, [warm, cool], [2])
    for _ in range(4):
        train(model, method, 1)
        scheduler.step()
    assert_trained(model, positions(net()))


def test_accumulated_gradients_are_those_of_the_whole_batch() -> None:
    parts, whole = net(), net()
    for chunk in range(4):
        rows = slice(12 * chunk, 12 * (chunk + 1))
        (F.cross_entropy(parts(X[rows]), Y[rows]) / 4).backward()
    F.cross_entropy(whole(X), Y).backward()
    for a, b in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    model, plain = net(), net()
    before = positions(model)
    x = X.clone().requires_grad_()
    F.cross_entropy(checkpoint(model, x, use_reentrant=reentrant), Y).backward()
    F.cross_entropy(plain(X), Y).backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)
    train(model, rewiring(model), run=lambda x: checkpoint(model, x, use_reentrant=False))
    assert_trained(model, before)


def test_autocast_bfloat16() -> None:
    model = net()
    before = positions(model)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    train(model, rewiring(model), run=run)
    assert_trained(model, before)


@pytest.mark.slow  # tests/nn/test_compile_and_autocast.py has a quick one
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_give_the_same_numbers(backend: str) -> None:
    torch._dynamo.reset()
    model, plain = net(), net()
    before = positions(model)
    compiled = torch.compile(model, backend=backend)
    train(model, rewiring(model), run=compiled)
    train(plain, rewiring(plain))
    assert_trained(model, before)
    torch.testing.assert_close(compiled(X), plain(X))
    torch._dynamo.reset()


def test_data_parallel_of_one_process(tmp_path: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = net()
        before = positions(model)
        parallel = nn.parallel.DistributedDataParallel(model)
        train(model, rewiring(model), run=parallel)
        assert_trained(model, before)
    finally:
        dist.destroy_process_group()


def _answer(model: nn.Module, queue: Any) -> None:
    torch.set_num_threads(1)
    model = copy.deepcopy(model)  # what another process is given may lie in memory that both share, as with all tensors
    train(model, rewiring(model))
    queue.put([wiring.active for wiring in wb.wirings(model)] + [round(float(model(X).sum().detach()), 4)])


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_models_in_other_processes(start: str) -> None:
    model = net()
    before = copy.deepcopy(model)
    context = multiprocessing.get_context(start)
    queue = context.Queue()
    process = context.Process(target=_answer, args=(model, queue))
    process.start()
    found = queue.get(timeout=60)
    process.join()
    train(model, rewiring(model))
    expected = [wiring.active for wiring in wb.wirings(model)] + [round(float(model(X).sum().detach()), 4)]
    assert found == expected
    assert not same(before, model)


def test_workers_of_a_data_loader() -> None:
    model = net()
    before, optimizer = positions(model), rewiring_optimizer(model)
    for x, y in loader(num_workers=1):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert_trained(model, before)


def test_ordinary_loop_with_a_closure() -> None:
    model = net()
    before, optimizer = positions(model), rewiring_optimizer(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(10)]
    assert losses[-1] < losses[0]
    assert_trained(model, before)


@pytest.mark.slow
def test_skorch(tmp_path: Any) -> None:
    skorch = pytest.importorskip("skorch")

    class Rewired(skorch.NeuralNetClassifier):
        def initialize_optimizer(self, *args: Any, **kwargs: Any) -> Any:
            super().initialize_optimizer(*args, **kwargs)
            wb.DeepR(self.module_, self.optimizer_, l1=0.1)
            return self

    def made(epochs: int) -> Any:
        return Rewired(
            net(), criterion=nn.CrossEntropyLoss, optimizer=optim.Adam, lr=0.02, max_epochs=epochs, batch_size=8, verbose=0
        )

    before = positions(net())
    whole = made(4).fit(X.numpy(), Y.numpy())
    assert_trained(whole.module_, before)
    assert whole.predict(X.numpy()).shape == (48,)

    files = {"f_params": tmp_path / "model.pt", "f_optimizer": tmp_path / "optimizer.pt"}
    made(2).fit(X.numpy(), Y.numpy()).save_params(**files)
    resumed = made(2).initialize()
    resumed.load_params(**files)
    resumed.partial_fit(X.numpy(), Y.numpy())
    assert same(whole.module_, resumed.module_)


@pytest.mark.slow
def test_stable_baselines(tmp_path: Any) -> None:
    baselines = pytest.importorskip("stable_baselines3")
    agent = baselines.PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, device="cpu", seed=0)
    wb.sparsify(agent.policy, connectivity=0.2)
    before = positions(agent.policy)
    agent.policy.optimizer = rewiring_optimizer(agent.policy)
    agent.learn(64)
    assert attached(agent.policy.optimizer).steps == 8
    assert_trained(agent.policy, before)


@pytest.mark.slow
def test_ignite() -> None:
    engine = pytest.importorskip("ignite.engine")
    model = net()
    before = positions(model)
    trainer = engine.create_supervised_trainer(model, rewiring_optimizer(model), nn.CrossEntropyLoss())
    trainer.run(loader(), max_epochs=2)
    assert_trained(model, before)


@pytest.mark.slow
def test_poutyne() -> None:
    poutyne = pytest.importorskip("poutyne")
    model = net()
    before = positions(model)
    poutyne.Model(model, rewiring_optimizer(model), "cross_entropy").fit_generator(loader(), epochs=2, verbose=False)
    assert_trained(model, before)


@pytest.mark.slow
def test_sentence_transformers_modules() -> None:
    models = pytest.importorskip("sentence_transformers.models")
    model = wb.sparsify(nn.Sequential(nn.Linear(12, 24), nn.ReLU()), connectivity=0.3)
    pooled = models.Dense(24, 3)
    wb.sparsify(pooled, connectivity=0.3)
    assert pooled({"sentence_embedding": model(X)})["sentence_embedding"].shape == (48, 3)
