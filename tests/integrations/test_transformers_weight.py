"""Hugging Face models that read ``.weight`` of a linear layer or a convolution: outputs and gradients are the twin's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import wirebound as wb
from wirebound.nn import sparse_layers

VISION: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8,
    "patch_size": 4, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0,
}  # fmt: skip
IMAGES = {"pixel_values": torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))}
TOKENS = torch.randint(0, 30, (2, 5), generator=torch.Generator().manual_seed(2))


def t5() -> tuple[nn.Module, dict[str, Tensor]]:
    config = hf.T5Config(
        vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0
    )
    return hf.T5Model(config), {"input_ids": TOKENS, "decoder_input_ids": TOKENS}


def mamba() -> tuple[nn.Module, dict[str, Tensor]]:
    config = hf.MambaConfig(vocab_size=30, hidden_size=16, state_size=4, num_hidden_layers=1, time_step_rank=4)
    return hf.MambaModel(config), {"input_ids": TOKENS}


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = {
    "t5": t5,
    "vit": lambda: (hf.ViTModel(hf.ViTConfig(**VISION)), IMAGES),
    "clip": lambda: (hf.CLIPVisionModel(hf.CLIPVisionConfig(**VISION)), IMAGES),
    "siglip": lambda: (hf.SiglipVisionModel(hf.SiglipVisionConfig(**VISION)), IMAGES),
    "dinov2": lambda: (hf.Dinov2Model(hf.Dinov2Config(**VISION)), IMAGES),
    "mamba": mamba,
}


def loss_of(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    output = model(**inputs).last_hidden_state
    return output, output.square().mean()


@pytest.mark.parametrize("name", MODELS)
def test_models_that_read_weight_equal_their_twin(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    wb.sparsify(model, connectivity=0.3)
    twin = wb.to_dense(model)
    (output, loss), (expected, twin_loss) = loss_of(model, inputs), loss_of(twin, inputs)
    torch.testing.assert_close(output, expected)
    loss.backward()
    twin_loss.backward()
    gradients = dict(twin.named_parameters())
    for own, parameter in model.named_parameters():
        if not own.endswith("theta"):
            mine, theirs = parameter.grad, gradients.get(own)
            if theirs is not None and theirs.grad is not None:
                torch.testing.assert_close(mine, theirs.grad)
    for own, layer in sparse_layers(model):
        if own.partition("head.attention.")[2]:  # the projections of SigLIP's pooling are one matrix in torch
            continue
        dense = twin.get_submodule(own).weight.grad
        if dense is None:
            continue
        index = layer.wiring.layer_index(layer.layer_id)
        weights = layer.dense_weight().flatten(1)
        theta = layer.wiring.theta.grad[index.start : index.end]
        # Weights that are exactly 0 are none here, so the active positions are those of the other ones, column by column.
        rows, columns = weights.t().nonzero().t().flip(0)
        torch.testing.assert_close(theta * 1.0, dense.flatten(1)[rows, columns] * weights[rows, columns].sign())
    made = sum(layer.made_dense for _, layer in sparse_layers(model))
    assert (made > 0) == (name == "mamba")  # which multiplies with dt_proj.weight itself; all others only ask its dtype


def test_the_initialisation_of_a_model_leaves_sparse_layers_alone() -> None:
    model, _ = t5()
    wb.sparsify(model, connectivity=0.3)
    before = [layer.dense_weight() for _, layer in sparse_layers(model)]
    for module in model.modules():
        if isinstance(module, wb.SparseLinear):
            model._init_weights(module)
    assert all(torch.equal(a, layer.dense_weight()) for a, (_, layer) in zip(before, sparse_layers(model), strict=True))
