"""Models of other people: outputs and gradients are those of the dense twin, and the budget holds while they train."""

from __future__ import annotations

import pytest
import torch
from huggingface_models import ALL, OPTIONS
from model_questions import ask, loss_of, run, tensors, zero_if_none
from package_models import PACKAGES
from torch import Tensor
from torch_models import MODELS

import wirebound as wb

QUICK = ("bert", "gpt2", "llama", "mixtral", "t5", "vit", "resnet", "clip", "whisper", "mamba")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages, and of sparsify about embeddings that stay dense


@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch(name: str) -> None:
    torch.manual_seed(0)
    make, inputs, options = MODELS[name]
    ask(make(), inputs, **{"connectivity": 0.2, **options})


@pytest.mark.parametrize("name", MODELS)
def test_function_transforms_of_models(name: str) -> None:
    """``torch.func.grad`` gives the gradients of ``backward``."""
    torch.manual_seed(0)
    make, inputs, options = MODELS[name]
    if name == "packed GRU":
        pytest.skip("lengths need values, which transforms do not show")
    model = wb.sparsify(make().eval(), **{"connectivity": 0.2, **options})
    loss_of(run(model, inputs)).backward()
    parameters = {key: parameter.detach() for key, parameter in model.named_parameters()}

    def loss(values: dict[str, Tensor]) -> Tensor:
        torch.manual_seed(7)
        return loss_of(list(tensors(torch.func.functional_call(model, values, inputs))))

    found = torch.func.grad(loss)(parameters)
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(found[key], zero_if_none(parameter), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_models_of_hugging_face(name: str) -> None:
    ask(*ALL[name](), **OPTIONS.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALL if name not in QUICK])
def test_more_models_of_hugging_face(name: str) -> None:
    ask(*ALL[name](), **OPTIONS.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_models_of_packages(name: str) -> None:
    package, make, options = PACKAGES[name]
    pytest.importorskip(package)
    torch.manual_seed(0)
    ask(*make(), **options)
