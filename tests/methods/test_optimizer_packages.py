"""Optimisers of packages that people use: asked the same as torch's own, where the package is there."""

import contextlib
import importlib
import io
import warnings

import pytest
import torch
from optimizer_questions import X, Y, ask, run

import wirebound as wb

# Package: optimiser and the number of tensors by element that it keeps of θ, or the sentence that refuses it.
TABLE = {
    "pytorch_optimizer": {
        "A2Grad": "must have 'lr' in its parameter groups",
        "ADOPT": 2,
        "APOLLO": 2,
        "AccSGD": 1,
        "AdEMAMix": 3,
        "AdaBelief": 2,
        "AdaBound": 2,
        "AdaFactor": 2,
        "AdaMod": 3,
        "AdaNorm": 2,
        "AdaPNM": 4,
        "AdaShift": 8,
        "AdaSmooth": 4,
        "Adai": 3,
        "Adan": 4,
        "AggMo": 3,
        "Alice": "keeps 'U' of shape",
        "Amos": 0,
        "CAME": 2,
        "DAdaptAdaGrad": 3,
        "DAdaptAdam": 3,
        "DASH": "keeps 'blocks/0/exp_avg_sq' of shape",
        "DiffGrad": 3,
        "FTRL": 2,
        "FlashAdamW": "to move with connections",
        "Grams": 2,
        "Gravity": 1,
        "GrokFastAdamW": 3,
        "Kate": 2,
        "Kron": "keeps a preconditioner of all connections",
        "LARS": 1,
        "LaProp": 2,
        "Lamb": 2,
        "Lion": 1,
        "MADGRAD": 3,
        "MARS": 3,
        "Magma": 2,
        "NovoGrad": 1,
        "PNM": 2,
        "Prodigy": 4,
        "QHAdam": 2,
        "QHM": 1,
        "RAdam": 2,
        "Ranger": 3,
        "SGDP": 1,
        "SM3": 2,
        "SOAP": "keeps matrices with a row for each",
        "SPAM": 2,
        "SWATS": 2,
        "ScalableShampoo": "keeps matrices with a row for each",
        "ScheduleFreeAdamW": "evaluates at an average of θ",
        "Shampoo": "keeps matrices with a row for each",
        "SignSGD": 1,
        "StableAdamW": 2,
        "TAM": 2,
        "Tiger": 1,
        "VSGD": 3,
        "Yogi": 2,
    },
    "torch_optimizer": {
        "A2GradExp": 2,
        "AccSGD": 1,
        "AdaBelief": 2,
        "AdaBound": 2,
        "AdaMod": 3,
        "Adafactor": 1,
        "AdamP": 2,
        "AggMo": 3,
        "Apollo": 3,
        "DiffGrad": 3,
        "Lamb": 2,
        "MADGRAD": 3,
        "NovoGrad": 1,
        "QHAdam": 2,
        "QHM": 1,
        "RAdam": 2,
        "Ranger": 3,
        "RangerQH": 3,
        "RangerVA": 4,
        "SGDP": 1,
        "SWATS": 2,
        "Yogi": 2,
    },
    "lion_pytorch": {"Lion": 1},
    "adabelief_pytorch": {"AdaBelief": 2},
    "prodigyopt": {"Prodigy": 4},
    "dadaptation": {"DAdaptAdaGrad": 3, "DAdaptAdam": 3, "DAdaptAdan": 5, "DAdaptLion": 2, "DAdaptSGD": 3},
    "schedulefree": {
        "AdamWScheduleFree": "evaluates at an average of θ",
        "RAdamScheduleFree": "evaluates at an average of θ",
        "SGDScheduleFree": "evaluates at an average of θ",
    },
}
WRAPPERS = {
    ("torch_optimizer", "Lookahead"): lambda kind, p: kind(torch.optim.Adam(p, lr=0.01), k=2),
    ("pytorch_optimizer", "Lookahead"): lambda kind, p: kind(torch.optim.Adam(p, lr=0.01), k=2, pullback_momentum="none"),
    ("pytorch_optimizer", "OrthoGrad"): lambda kind, p: kind(torch.optim.Adam(p, lr=0.01)),
    ("pytorch_optimizer", "TRAC"): lambda kind, p: kind(torch.optim.Adam(p, lr=0.01)),
}


def _class(package, name):
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.importorskip(package)
        kind = getattr(importlib.import_module(package), name, None)
    if kind is None:
        pytest.skip(f"this {package} has no {name}")
    return kind


def _maker(kind):
    def make(parameters):
        parameters = list(parameters)
        try:
            return kind(parameters, lr=0.01)
        except TypeError:
            return kind(parameters)

    return make


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "name"), [(package, name) for package in TABLE for name in TABLE[package]])
def test_packages(package, name):
    make, expected = _maker(_class(package, name)), TABLE[package][name]
    with contextlib.redirect_stdout(io.StringIO()):
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                run(wb.DeepR, make, 3)
        else:
            assert ask(make) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "name"), WRAPPERS)
def test_wrappers(package, name):
    kind = _class(package, name)
    assert ask(lambda p: WRAPPERS[package, name](kind, list(p))) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE["schedulefree"])
@pytest.mark.parametrize("method", [wb.SET, wb.RigL])
def test_schedule_free_optimisers_evaluate_at_their_average(name, method):
    """Where signs are free: z moves along, so x, y and z belong to the same connections after eval() and train()."""
    kind = _class("schedulefree", name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ask(lambda p: kind(list(p), lr=0.05), deep_r=False) >= 1
        lr = 1.0 if name.startswith("SGD") else 0.05
        used, _ = run(method, lambda p: kind(list(p), lr=lr), 60, every=10)
    (wiring,) = wb.wirings(used.model)
    y = wiring.theta.detach().clone()
    used.optimizer.eval()
    wiring.check()
    assert not torch.equal(wiring.theta, y)
    assert torch.nn.functional.cross_entropy(used.model(X), Y) < 0.9
    used.optimizer.train()
    assert torch.allclose(wiring.theta, y, atol=1e-5)
