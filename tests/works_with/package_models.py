"""Small models of packages that the tests do not need: each is made only where its package is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

TOKENS = torch.arange(12).view(2, 6)


class _Output(nn.Module):
    """A model whose output holds tensors in an object of its own."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs: Tensor) -> Tensor:
        return getattr(self.model(*inputs), self.name)


def unet_of_diffusers() -> tuple[nn.Module, Any]:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )  # fmt: skip
    return _Output(model, "sample"), (torch.randn(2, 3, 8, 8), torch.tensor([1, 5]))


def autoencoder_of_diffusers() -> tuple[nn.Module, Any]:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2, sample_size=8)
    return _Output(model, "sample"), (torch.randn(2, 3, 8, 8),)


def decoder_of_x_transformers() -> tuple[nn.Module, Any]:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=16, depth=1, heads=2, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True)
    return TransformerWrapper(num_tokens=30, max_seq_len=8, attn_layers=layers), (TOKENS,)


def graph_network() -> tuple[nn.Module, Any]:
    from torch_geometric.nn import GCN

    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    return GCN(8, 16, 2, 3), (torch.randn(5, 8), edges)


def graph_attention() -> tuple[nn.Module, Any]:
    from torch_geometric.nn import GAT

    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    return GAT(8, 16, 2, 3, heads=2), (torch.randn(5, 8), edges)


def unet_of_monai() -> tuple[nn.Module, Any]:
    from monai.networks.nets import UNet

    return UNet(2, 1, 2, channels=(4, 8), strides=(2,)), (torch.randn(2, 1, 8, 8),)


def spiking_of_snntorch() -> tuple[nn.Module, Any]:
    import snntorch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 3)
            self.spike = snntorch.Leaky(beta=0.9)

        def forward(self, x: Tensor) -> Tensor:
            memory, out = self.spike.reset_mem(), 0
            for _ in range(4):
                spikes, memory = self.spike(self.first(x), memory)
                out = out + self.second(spikes)
            self.spike.reset_mem()  # the state of a pass is no part of the model
            return out

    return Net(), (3 * torch.randn(6, 12),)


def spiking_of_spikingjelly() -> tuple[nn.Module, Any]:
    from spikingjelly.activation_based import functional, layer, neuron

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(layer.Linear(12, 16), neuron.LIFNode(), layer.Linear(16, 3))

        def forward(self, x: Tensor) -> Tensor:
            functional.reset_net(self.net)
            out = sum(self.net(x) for _ in range(4))
            functional.reset_net(self.net)
            return out

    return Net(), (5 * torch.randn(6, 12),)


def tab_transformer() -> tuple[nn.Module, Any]:
    from rtdl_revisiting_models import FTTransformer

    model = FTTransformer(
        n_cont_features=4, cat_cardinalities=[3, 5], d_out=2, n_blocks=1, d_block=16, attention_n_heads=2,
        attention_dropout=0.0, ffn_d_hidden_multiplier=1.5, ffn_dropout=0.0, residual_dropout=0.0,
    )  # fmt: skip
    return model, (torch.randn(6, 4), torch.randint(0, 3, (6, 2)))


def tabnet() -> tuple[nn.Module, Any]:
    from pytorch_tabnet.tab_network import TabNet

    model = TabNet(12, 3, n_d=4, n_a=4, n_steps=2, virtual_batch_size=6, group_attention_matrix=torch.eye(12))
    return model, (torch.randn(6, 12),)


def neural_equation() -> tuple[nn.Module, Any]:
    from torchdiffeq import odeint

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 12))

        def forward(self, x: Tensor) -> Tensor:
            return odeint(lambda _, y: self.field(y), x, torch.linspace(0, 1, 3), method="rk4")

    return Net(), (torch.randn(6, 12),)


# Name: the package to import, how the model and its inputs are made, what sparsify is told.
PACKAGES: dict[str, tuple[str, Callable[[], tuple[nn.Module, Any]], dict[str, Any]]] = {
    "diffusers UNet2DModel": ("diffusers", unet_of_diffusers, {}),
    "diffusers AutoencoderKL": ("diffusers", autoencoder_of_diffusers, {}),
    "x-transformers": ("x_transformers", decoder_of_x_transformers, {}),
    "PyG GCN": ("torch_geometric", graph_network, {"include": "convs.*"}),
    "PyG GAT": ("torch_geometric", graph_attention, {"include": "convs.*"}),
    "MONAI UNet": ("monai", unet_of_monai, {}),
    "snntorch": ("snntorch", spiking_of_snntorch, {"connectivity": 0.4}),
    "spikingjelly": ("spikingjelly", spiking_of_spikingjelly, {"connectivity": 0.4}),
    "FT-Transformer": ("rtdl_revisiting_models", tab_transformer, {}),
    "TabNet": ("pytorch_tabnet", tabnet, {}),
    "torchdiffeq": ("torchdiffeq", neural_equation, {}),
}
