"""What others do to a model between two steps. Each habit leaves the model fit for the oracle, or asserts that it was refused."""

import copy
import gc
import io
import pickle
import tempfile
import threading
from pathlib import Path

import torch
from soak_models import loss_of
from soak_trial import Trial, close
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import AveragedModel

import wirebound as wb

_ONE_AT_A_TIME = threading.Lock()  # what torch itself keeps for the whole process


def train(trial: Trial) -> None:
    for _ in range(trial.rng.choice((1, 1, 3, 7))):
        trial.step()


def forward_hook(trial: Trial) -> None:
    seen = []
    module = trial.rng.choice(list(trial.model.modules()))
    handle = module.register_forward_hook(lambda module, args, output: seen.append(type(module)))
    trial.step()
    handle.remove()


def backward_hook(trial: Trial) -> None:
    children = [m for m in trial.model.children() if any(True for _ in m.parameters())]
    handle = trial.rng.choice(children).register_full_backward_hook(lambda module, grads, outputs: None)
    trial.step()
    handle.remove()


def gradient_hook(trial: Trial) -> None:
    """Clipping by hook: what the method gets is what the hook returned."""
    wiring = trial.rng.choice(trial.wirings)
    if wiring.theta.requires_grad:
        handle = wiring.theta.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        trial.gradients()
        assert wiring.theta.grad is None or wiring.theta.grad.abs().max() <= 0.0101
        trial.method.step()
        handle.remove()


def new_data(trial: Trial) -> None:
    """p.data = another tensor, some of it below 0: dormant until the method's next step."""
    for wiring in trial.wirings:
        shift = 0.0 if trial.rng.random() < 0.5 else 0.05
        wiring.theta.data = wiring.theta.data.clone() - shift
    trial.compare()
    trial.step()


def write_data(trial: Trial) -> None:
    """The same in place, which torch does not count."""
    wiring = trial.rng.choice(trial.wirings)
    wiring.theta.data[:: trial.rng.choice((1, 2, 3))] -= trial.rng.choice((0.0, 0.02, 10.0))
    trial.compare()
    trial.step()


def deep_copy(trial: Trial) -> None:
    """Model, optimiser and method copied as one train on like the original."""
    other = copy.deepcopy(trial.made)
    x = trial.x()
    for made in (trial.made, other):
        made.method.zero_grad()
        loss_of(made.model(x)).backward()
        made.method.step()
    for mine, theirs in zip(trial.wirings, wb.wirings(other.model), strict=True):
        close(mine.theta.detach(), theirs.theta.detach(), "θ of the copy")
        assert torch.equal(mine.packed_rows, theirs.packed_rows)
    if trial.rng.random() < 0.5:
        trial.made = other


def pickled(trial: Trial) -> None:
    x = trial.x()
    other = pickle.loads(pickle.dumps(trial.model))
    file = io.BytesIO()
    torch.save(trial.model, file)
    file.seek(0)
    third = torch.load(file, weights_only=False)
    training = trial.model.training
    for model in (trial.model, other, third):
        model.eval()
    with torch.no_grad():
        close(other(x), trial.model(x), "output of the pickled model")
        close(third(x), trial.model(x), "output of the saved model")
    trial.model.train(training)


def own_state(trial: Trial) -> None:
    kept = {name: value.clone() for name, value in trial.model.state_dict().items()}
    trial.step()
    trial.model.load_state_dict(kept, assign=False)
    for name, value in trial.model.state_dict().items():
        assert torch.equal(value, kept[name]), name


def state_of_another(trial: Trial) -> None:
    """The state of a model that has moved on elsewhere."""
    other = copy.deepcopy(trial.made)
    for _ in range(3):
        other.method.zero_grad()
        loss_of(other.model(trial.x())).backward()
        other.method.step()
    trial.model.load_state_dict(other.model.state_dict())
    x = trial.x()
    close(trial.model(x), other.model(x), "output with the state of another")


def edited_state(trial: Trial) -> None:
    before = {name: value.clone() for name, value in trial.model.state_dict().items()}
    state = {name: value.clone() for name, value in before.items()}
    name = trial.rng.choice([n for n in state if n.endswith(("packed_rows", "colptr"))])
    value = state[name]
    kind = trial.rng.randrange(4)
    if kind == 0:
        value[trial.rng.randrange(len(value))] = 2**30
    elif kind == 1:
        state[name] = value.float()
    elif kind == 2:
        state[name] = torch.full_like(value, 2**30)
    else:
        state[name] = value[:-1]
    try:
        trial.model.load_state_dict(state)
    except RuntimeError:
        pass
    else:
        raise AssertionError(f"{name} edited (kind {kind}) was loaded")
    for wiring in trial.wirings:
        wiring.check()
    trial.model.load_state_dict(before)


def averaged_states(trial: Trial) -> None:
    """Two state dicts averaged place by place: positions of another type, or positions that are none."""
    one = {name: value.clone() for name, value in trial.model.state_dict().items()}
    for _ in range(3):
        trial.step()
    two = trial.model.state_dict()
    mean = {name: (one[name].double() + two[name].double()) / 2 for name in one}
    try:
        trial.model.load_state_dict(mean)
    except RuntimeError:
        for wiring in trial.wirings:
            wiring.check()
    else:
        raise AssertionError("an average of state dicts was loaded")
    trial.model.load_state_dict(one)


def averaged_model(trial: Trial) -> None:
    """torch's average of a model whose connections move: a clear error or some output, no crash; the model is unharmed."""
    average = AveragedModel(trial.model, use_buffers=trial.rng.random() < 0.5)
    for _ in range(2):
        trial.step()
        try:
            average.update_parameters(trial.model)
            average(trial.x()).sum().backward()
        except RuntimeError:  # WiringError; or torch's own, which cannot average truth values
            return


def toggled(trial: Trial) -> None:
    """A critic that is frozen for a pass of somebody else, and then trained."""
    trial.model.requires_grad_(False)
    trial.model(trial.x())
    trial.model.requires_grad_(True)
    trial.gradients()
    assert all(wiring.theta.grad is not None for wiring in trial.wirings)
    trial.method.step()


def functional(trial: Trial) -> None:
    x = trial.x()
    other = {name: p.detach() * 1.5 for name, p in trial.model.named_parameters()}
    buffers = {name: b.clone() for name, b in trial.model.named_buffers()}
    mine = torch.func.functional_call(trial.model, (other, buffers), (x,))
    twin = copy.deepcopy(trial.model)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(1.5)
    close(mine, wb.to_dense(twin)(x), "output of functional_call")


def by_vector(trial: Trial) -> None:
    vector = parameters_to_vector(trial.model.parameters()).detach()
    vector_to_parameters(vector * 0.5, trial.model.parameters())
    trial.compare()
    vector_to_parameters(vector, trial.model.parameters())


def double_and_back(trial: Trial) -> None:
    trial.model.double()
    trial.check()
    if trial.method.optimizer.defaults.get("momentum") == 0:  # SGD: torch does not convert what it keeps for a bias
        trial.step()
    trial.model.float()


def moved(trial: Trial) -> None:
    trial.model.to("cpu")
    trial.model.share_memory() if trial.rng.random() < 0.2 else trial.model.to(torch.float32)


def evaluated(trial: Trial) -> None:
    trial.model.eval()
    x, twin = trial.x(), wb.to_dense(trial.model)
    with torch.no_grad() if trial.rng.random() < 0.5 else torch.inference_mode():
        close(trial.model(x), twin(x), "output in evaluation")
    trial.model.train()


def plain_step(trial: Trial) -> None:
    """optimizer.step() by habit, once; the model is still one, and the method's next step sets it right."""
    trial.gradients()
    trial.method.optimizer.step()
    trial.compare()
    trial.step()


def bad_gradient(trial: Trial) -> None:
    """A gradient that is not finite leaves everything as it was."""
    trial.gradients()
    wiring = trial.rng.choice(trial.wirings)
    if wiring.theta.grad is None or not wiring.budget:
        return
    wiring.theta.grad[trial.rng.randrange(wiring.budget)] = trial.rng.choice((float("nan"), float("inf")))
    before = [value.clone() for value in trial.model.state_dict().values()]
    try:
        trial.method.step()
    except (FloatingPointError, ValueError, RuntimeError):
        pass
    else:
        raise AssertionError("a step with a gradient that is not finite was taken")
    for value, kept in zip(trial.model.state_dict().values(), before, strict=True):
        assert torch.equal(value, kept)
    trial.method.zero_grad()


def edited_index(trial: Trial) -> None:
    """Positions overwritten in place: refused at the next use; good again from a state dict."""
    kept = {name: value.clone() for name, value in trial.model.state_dict().items()}
    wiring = trial.rng.choice(trial.wirings)
    array = trial.rng.choice((wiring.packed_rows, wiring.colptr))
    array = array.data if trial.rng.random() < 0.5 else array
    array[trial.rng.randrange(len(array))] = trial.rng.choice((2**30, 2**31 - 1))
    for use in (lambda: trial.model(trial.x()), wiring.check):
        try:
            use()
        except wb.WiringError:
            continue
        raise AssertionError("edited positions were used")
    trial.model.load_state_dict(kept)


def kept_and_loaded(trial: Trial) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        with _ONE_AT_A_TIME:  # a checkpoint holds torch's global generator
            wb.save(path, method=trial.method)
        before = [value.clone() for value in trial.model.state_dict().values()]
        trial.step()
        with _ONE_AT_A_TIME:
            wb.load(path, method=trial.method)
        for value, kept in zip(trial.model.state_dict().values(), before, strict=True):
            assert torch.equal(value, kept)


def other_threads(trial: Trial) -> None:
    torch.set_num_threads(trial.rng.choice((1, 2)))
    gc.collect()


def batches(trial: Trial) -> None:
    sizes = [trial.made.fewest, 200]
    if isinstance(trial.model, nn.Sequential):
        sizes.append(0)
    for size in sizes:
        trial.gradients(trial.x(size))
        trial.method.step()


def autocast(trial: Trial) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(trial.model(trial.x())).all()


def frozen(trial: Trial) -> None:
    """wb.freeze leaves a layer's weights and places as they are."""
    freeze, unfreeze = getattr(wb, "freeze", None), getattr(wb, "unfreeze", None)
    if freeze is None or unfreeze is None:
        return
    freeze(trial.model)
    before = [value.clone() for value in trial.model.state_dict().values()]
    trial.method.zero_grad()
    y = trial.model(trial.x())
    if y.requires_grad:
        loss_of(y).backward()
    trial.method.step()
    norms = [name for name in trial.model.state_dict() if "running" in name or "num_batches" in name]
    for (name, value), kept in zip(trial.model.state_dict().items(), before, strict=True):
        assert name in norms or torch.equal(value, kept), name
    unfreeze(trial.model)


HABITS = (
    forward_hook, backward_hook, gradient_hook, new_data, write_data, deep_copy, pickled, own_state, state_of_another,
    edited_state, averaged_states, averaged_model, toggled, functional, by_vector, double_and_back, moved, evaluated,
    plain_step, bad_gradient, edited_index, kept_and_loaded, other_threads, batches, autocast, frozen,
)  # fmt: skip
