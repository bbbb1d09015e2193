"""Tools that look at a model, count in it or change it: right numbers, or one sentence; never wrong in silence."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from training import X, Y, assert_trained, net, positions, rewiring

import wirebound as wb

pytestmark = pytest.mark.filterwarnings("ignore")  # of the tools


def outputs_equal(a: nn.Module, b: nn.Module) -> None:
    torch.testing.assert_close(a(X), b(X), rtol=0, atol=0)


def step(model: nn.Module) -> None:
    """A step of a method, for models that were changed by a tool."""
    method = rewiring(model)
    F.cross_entropy(model(X), Y).backward()
    method.step()
    for wiring in wb.wirings(model):
        wiring.check()


# Copies and files

PICKLERS = ["pickle", "cloudpickle", "joblib", pytest.param("dill", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", PICKLERS)
def test_picklers(name: str) -> None:
    package = pytest.importorskip(name)
    model, file = net(), io.BytesIO()
    package.dump(model, file)
    file.seek(0)
    other = package.load(file)
    outputs_equal(other, model)
    step(other)


def test_torch_save_and_load() -> None:
    model, file = net(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = net(seed=1)
    other.load_state_dict(torch.load(file, weights_only=True))
    outputs_equal(other, model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=True)
    file.seek(0)
    outputs_equal(torch.load(file, weights_only=False), model)


def test_safetensors(tmp_path: Any) -> None:
    from safetensors.torch import load_model, save_model

    model, other = net(), net(seed=1)
    save_model(model, str(tmp_path / "m.safetensors"))
    load_model(other, str(tmp_path / "m.safetensors"))
    outputs_equal(other, model)


def test_half_precisions_and_double() -> None:
    for dtype, near in ((torch.bfloat16, 0.1), (torch.float16, 0.02), (torch.float64, 1e-5)):
        model = net()
        expected = model(X)
        model.to(dtype)
        torch.testing.assert_close(model(X.to(dtype)).float(), expected, rtol=near, atol=near)


# What torch has for parameters and modules


def test_vectors_of_parameters() -> None:
    model, other = net(), net(seed=1)
    other.load_state_dict(model.state_dict())
    other(X)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()), other.parameters())
    outputs_equal(other, model)


def test_clipping_counts_theta() -> None:
    model = net()
    F.cross_entropy(model(X), Y).backward()
    norms = [parameter.grad.norm() for parameter in model.parameters()]
    total = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    torch.testing.assert_close(total, torch.stack(norms).norm())
    torch.testing.assert_close(torch.stack([p.grad.norm() for p in model.parameters()]).norm(), torch.tensor(0.01), rtol=1e-3, atol=0)


CHANGES = {
    "prune": (lambda layer: prune.l1_unstructured(layer, "weight", 0.5), "the weight of a sparse layer cannot be changed"),
    "weight_norm": (parametrizations.weight_norm, "does not have a parameter"),
    "spectral_norm": (parametrizations.spectral_norm, "does not have a parameter"),
    "orthogonal": (parametrizations.orthogonal, "does not have a parameter"),
    "old weight_norm": (nn.utils.weight_norm, "weight"),  # a bare KeyError of torch's
    "old spectral_norm": (nn.utils.spectral_norm, "weight"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_would_replace_the_weight_is_refused(name: str) -> None:
    model = net()
    expected = model(X)
    change, says = CHANGES[name]
    with pytest.raises((RuntimeError, ValueError, KeyError), match=f"(?s){says}"):
        change(model[0])
    torch.testing.assert_close(model(X), expected, rtol=0, atol=0)  # and nothing of it stays behind
    step(model)


def test_parametrized_bias() -> None:
    class Positive(nn.Module):
        def forward(self, bias: torch.Tensor) -> torch.Tensor:
            return bias.abs() + 1

    model = net()
    before = positions(model)
    parametrize.register_parametrization(model[0], "bias", Positive())
    twin = wb.to_dense(net())
    with torch.no_grad():
        twin[0].bias.copy_(model[0].bias)
    torch.testing.assert_close(model(X), twin(X))
    method = rewiring(model)
    for _ in range(3):
        method.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        method.step()
    assert_trained(model, before)


def test_fused_batch_norm() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    wb.sparsify(model, connectivity=0.3)
    with pytest.raises((RuntimeError, TypeError, AttributeError)) as refusal:
        nn.utils.fusion.fuse_conv_bn_eval(model[0], model[1])
    assert "sparse layer" in str(refusal.value)
    twin, x = wb.to_dense(model), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(nn.utils.fusion.fuse_conv_bn_eval(twin[0], twin[1])(x), model(x), rtol=1e-4, atol=1e-5)


def test_meta_is_refused_and_leaves_the_model_as_it_was() -> None:
    model = net()
    moved = copy.deepcopy(model).to("meta")
    with pytest.raises((RuntimeError, ValueError, TypeError, NotImplementedError)):
        moved(X)
    outputs_equal(model, net())


# torch.func


def test_functional_call() -> None:
    model = net()
    zeros = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    model(X)
    assert torch.func.functional_call(model, zeros, (X,)).abs().max() == 0


def _of_theta(model: nn.Module) -> tuple[dict[str, torch.Tensor], Any]:
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, values, (x,)), y)

    return parameters, loss


TRANSFORMS = {
    "grad": lambda loss, values: torch.func.grad(loss)(values, X, Y),
    "vmap": lambda loss, values: torch.func.vmap(lambda x, y: loss(values, x[None], y[None]))(X, Y),
    "per-sample gradients": lambda loss, values: torch.func.vmap(
        torch.func.grad(lambda v, x, y: loss(v, x[None], y[None])), in_dims=(None, 0, 0)
    )(values, X, Y),
    "jacrev": lambda loss, values: torch.func.jacrev(loss)(values, X, Y),
    "jacfwd": lambda loss, values: torch.func.jacfwd(loss)(values, X, Y),
    "jvp": lambda loss, values: torch.func.jvp(lambda x: loss(values, x, Y), (X,), (torch.ones_like(X),)),
    "hessian": lambda loss, values: torch.func.hessian(lambda x: loss(values, x[None], Y[:1]))(X[0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_transforms(name: str) -> None:
    model = net()
    twin = wb.to_dense(model)
    found, expected = (TRANSFORMS[name](loss, values) for values, loss in (_of_theta(model), _of_theta(twin)))
    if isinstance(found, dict):  # of the parameters: those of θ are compared by the gradient that autograd finds
        F.cross_entropy(model(X), Y).backward()
        for key, parameter in model.named_parameters():
            torch.testing.assert_close(found[key].mean(0) if name.startswith("per") else found[key], parameter.grad)
    else:
        torch.testing.assert_close(found, expected)
    outputs_equal(model, net())


# Who looks on


def test_hooks_on_parameters_and_modules() -> None:
    """As wandb.watch does it."""
    model, seen = net(), set()
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda gradient, name=name: seen.add(name))
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, inputs, output, name=name: seen.add(f"{name} out"))
    F.cross_entropy(model(X), Y).backward()
    assert {*(name for name, _ in model.named_parameters()), "0 out", "3 out"} <= seen
    step(model)


def test_tensorboard(tmp_path: Any) -> None:
    from torch.utils.tensorboard import SummaryWriter

    model = net()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, X)
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter)
    assert list(tmp_path.iterdir())
    step(model)


@pytest.mark.slow  # for its import
def test_torchmetrics() -> None:
    from torchmetrics.classification import MulticlassAccuracy

    model = net()
    accuracy = MulticlassAccuracy(3, average="micro")
    accuracy(model(X), Y)
    assert float(accuracy.compute()) == pytest.approx(float((model(X).argmax(1) == Y).float().mean()))


def test_hugging_face_folders(tmp_path: Any) -> None:
    """A folder that ``save_pretrained`` writes of a sparse model is for going on with it; ``from_pretrained`` finds
    no dense weights in it, and its report says which are missing."""
    from huggingface_models import ALL, TOKENS
    from safetensors.torch import load_model

    model, inputs = ALL["distilbert"]()
    wb.sparsify(model.eval(), connectivity=0.2)
    model.save_pretrained(tmp_path / "sparse")
    other, _ = ALL["distilbert"]()
    wb.sparsify(other.eval(), connectivity=0.2, seed=4)
    load_model(other, str(tmp_path / "sparse" / "model.safetensors"))
    expected = model(**inputs).last_hidden_state
    torch.testing.assert_close(other(**inputs).last_hidden_state, expected, rtol=0, atol=0)

    dense = wb.to_dense(model)
    dense.save_pretrained(tmp_path / "dense")
    published = type(dense).from_pretrained(tmp_path / "dense").eval()
    torch.testing.assert_close(published(input_ids=TOKENS).last_hidden_state, expected, rtol=1e-4, atol=1e-5)

    _, report = type(dense).from_pretrained(tmp_path / "sparse", output_loading_info=True)
    assert any(name.endswith("q_lin.weight") for name in report["missing_keys"])
    assert any(name.endswith("wiring.theta") for name in report["unexpected_keys"])


@pytest.mark.slow
def test_torchinfo() -> None:
    torchinfo = pytest.importorskip("torchinfo")
    model = net()
    found = torchinfo.summary(model, input_data=X, verbose=0)
    assert found.total_params == sum(parameter.numel() for parameter in model.parameters())
    step(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["IntegratedGradients", "Saliency", "InputXGradient", "DeepLift", "GradientShap"])
def test_captum(name: str) -> None:
    attr = pytest.importorskip("captum.attr")
    model = net()
    options = {"baselines": torch.zeros_like(X)} if name == "GradientShap" else {}
    found = []
    for each in (model, wb.to_dense(model)):
        torch.manual_seed(0)
        np.random.seed(0)
        found.append(getattr(attr, name)(each).attribute(X.clone().requires_grad_(), target=Y, **options))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_lora_of_peft() -> None:
    """LoRA takes layers by their type, so sparse ones are refused by name; on the dense layers beside them it works."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model = wb.sparsify(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)), 0.3, exclude="2")
    expected = model(X)
    with pytest.raises(ValueError, match="not supported"):
        peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(target_modules=["0"], r=2))
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["2"], r=2))
    torch.testing.assert_close(adapted(X), expected)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(X), expected)


@pytest.mark.slow
def test_opacus_refuses() -> None:
    opacus = pytest.importorskip("opacus")
    with pytest.raises((NotImplementedError, RuntimeError, opacus.validators.errors.UnsupportedModuleError)) as refusal:
        engine = opacus.PrivacyEngine()
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8)
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert len(str(refusal.value)) > 20


def test_nothing_here_warns_of_nothing() -> None:
    """Training a sparse model says nothing by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(net())
