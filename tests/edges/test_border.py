"""The border of the kernels: what they are given is what they were made for, or it is refused by name."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import wirebound as wb
from wirebound import WiringError
from wirebound.ops import faults


def _layers():
    return {
        "linear": (wb.SparseLinear(6, 4, connectivity=0.5), (3, 6)),
        "conv1d": (wb.SparseConv1d(2, 3, 3, connectivity=0.5), (2, 2, 8)),
        "conv2d": (wb.SparseConv2d(2, 3, 3, connectivity=0.5), (2, 2, 8, 8)),
        "lstm": (wb.SparseLSTM(6, 4, connectivity=0.5), (5, 3, 6)),
        "gru": (wb.SparseGRU(6, 4, connectivity=0.5), (5, 3, 6)),
        "stack": (wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), connectivity=0.5), (3, 6)),
    }


@pytest.fixture(params=["linear", "conv1d", "conv2d", "lstm", "gru", "stack"])
def layer_and_shape(request):
    return _layers()[request.param]


def test_an_input_on_meta(layer_and_shape):
    layer, shape = layer_and_shape
    with pytest.raises(ValueError, match="is on meta"):
        layer(torch.empty(shape, device="meta"))


def test_a_fake_input(layer_and_shape):
    layer, shape = layer_and_shape
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.zeros(shape))
        y = layer(fake)
    expected = layer(torch.zeros(shape))
    y, expected = (y[0], expected[0]) if isinstance(y, tuple) else (y, expected)
    assert y.shape == expected.shape


class _Hollow(torch.Tensor):
    """A subclass without memory of its own, as sharded tensors are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("nobody should compute with it")


def test_a_tensor_without_memory(layer_and_shape):
    layer, shape = layer_and_shape
    with pytest.raises(TypeError, match="not _Hollow"):
        layer(_Hollow(torch.zeros(shape)))


def test_a_parameter_without_memory(model, x):
    wiring = wb.wirings(model)[0]
    wiring._parameters["theta"] = _Hollow(wiring.theta.detach())
    with pytest.raises(WiringError, match="_Hollow, which kernels cannot read"):
        model(x)


@pytest.mark.parametrize("kind", ["conv1d", "conv2d", "lstm", "gru"])  # linear layers take sparse rows
def test_a_sparse_input(kind):
    layer, shape = _layers()[kind]
    with pytest.raises(ValueError, match="must be dense"):
        layer(torch.zeros(shape).to_sparse())


class _Marked(torch.Tensor):
    """A subclass with numbers in memory, as image libraries have them."""


def test_a_subclass_with_numbers_in_memory_is_taken(layer_and_shape):
    layer, shape = layer_and_shape
    x = torch.randn(shape)
    mine, plain = layer(x.as_subclass(_Marked)), layer(x)
    first = (mine[0], plain[0]) if isinstance(mine, tuple) else (mine, plain)
    torch.testing.assert_close(first[0].as_subclass(torch.Tensor), first[1])


def test_a_sign_that_is_still_to_be_taken(layer_and_shape):
    layer, shape = layer_and_shape
    x = torch.randn(*shape, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    mine, right = layer(x), layer(x.clone())
    torch.testing.assert_close(mine[0], right[0])


def test_a_gradient_whose_sign_is_still_to_be_taken():
    layer = wb.SparseLinear(6, 4, connectivity=0.5)
    x = torch.randn(3, 6)
    z = layer(x)
    torch.complex(torch.zeros_like(z), z).conj().imag.sum().backward()
    mine = layer.wiring.theta.grad.clone()
    layer.wiring.theta.grad = None
    (-layer(x)).sum().backward()
    torch.testing.assert_close(mine, layer.wiring.theta.grad)


@pytest.mark.parametrize(
    "bias",
    [torch.zeros(4, dtype=torch.float64), torch.zeros(3), torch.zeros(4, 1), torch.zeros(4, device="meta")],
    ids=["dtype", "length", "shape", "device"],
)
def test_a_bias_that_does_not_fit(bias):
    layer = wb.SparseLinear(6, 4, connectivity=0.5)
    layer.bias = nn.Parameter(bias)
    with pytest.raises(ValueError, match="the bias of SparseLinear"):
        layer(torch.randn(3, 6))


def test_a_bias_with_another_stride():
    layer = wb.SparseLinear(6, 4, connectivity=0.5)
    expected = layer(torch.ones(3, 6)) + torch.arange(4.0)
    layer.bias = nn.Parameter(torch.arange(8.0)[::2] / 2)
    torch.testing.assert_close(layer(torch.ones(3, 6)), expected)


def test_one_layer_of_a_stack_made_double():
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), connectivity=0.5)
    x = torch.randn(3, 6)
    model(x)
    model[2].double()  # its bias; θ belongs to the first layer
    with pytest.raises(ValueError, match=r"the bias of SparseLinear .*float64"):
        model(x)


def test_theta_of_another_length(model, x):
    model(x)
    wiring = wb.wirings(model)[0]
    short = dict(model.named_parameters())
    name = next(n for n, p in short.items() if p is wiring.theta)
    short[name] = torch.zeros(3)
    with pytest.raises(WiringError, match="θ has shape"):
        torch.func.functional_call(model, short, (x,))


@pytest.mark.parametrize("way", ["copy_", "item", "data =", "data item", "numpy"])
@pytest.mark.parametrize("what", ["row", "order", "pointer"])
def test_positions_that_were_edited(model, x, way, what, implementation):
    model(x)
    wiring = wb.wirings(model)[0]
    name = "colptr" if what == "pointer" else "packed_rows"
    buffer = getattr(wiring, name)
    edited = buffer.clone()
    if what == "row":
        edited[0] = 2**30
    elif what == "order":
        edited[wiring.bounds[0] : wiring.bounds[1]] = edited[wiring.bounds[0] : wiring.bounds[1]].flip(0)
    else:
        edited[1] = 2**40
    if way == "copy_":
        buffer.copy_(edited)
    elif way == "item":
        buffer[:] = edited
    elif way == "data =":
        buffer.data = edited
    elif way == "data item":
        buffer.data[:] = edited
    else:
        buffer.numpy()[:] = edited.numpy()
    unseen = way in ("data item", "numpy")  # torch does not count these writes: only the kernels look
    if implementation == "reference" and unseen:
        pytest.skip("torch's own operators check what they index")
    with pytest.raises(WiringError):
        model(x)
    with pytest.raises(WiringError):
        wiring.check()


def test_an_edited_index_is_refused_by_load_state_dict(model, x):
    expected = model(x)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    code = next(name for name in state if name.endswith("packed_rows"))
    state[code][0] = 2**30
    with pytest.raises(RuntimeError, match="must be inside of its layer"):
        model.load_state_dict(state)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_dict_of_another_type_is_refused(model, x, dtype):
    expected = model(x)
    state = {name: value.to(dtype) for name, value in model.state_dict().items()}  # a habit of weight averaging
    with pytest.raises(RuntimeError, match=r"must be torch\.\w+, is torch\.\w+: positions are whole numbers"):
        model.load_state_dict(state)
    assert torch.equal(model(x), expected)


def test_an_average_of_state_dicts_is_refused(model):
    """Federated averaging: positions cannot be averaged."""
    other = wb.sparsify(wb.to_dense(model), connectivity=0.2, seed=3)
    mine, theirs = model.state_dict(), other.state_dict()
    average = {name: (mine[name] + theirs[name]) / 2 for name in mine if "sign_bound" not in name}
    with pytest.raises(RuntimeError, match="positions are whole numbers"):
        model.load_state_dict(average, strict=False)
    rounded = {name: value.to(mine[name].dtype) for name, value in average.items()}
    with pytest.raises(RuntimeError, match="Error"):
        model.load_state_dict(rounded, strict=False)


def test_a_kernel_without_memory_raises(tmp_path):
    """std::bad_alloc must not end the process: run with little memory left."""
    script = tmp_path / "little.py"
    script.write_text(
        "import resource, torch, wirebound as wb\n"
        "torch.set_num_threads(1)\n"
        "layer = wb.SparseLinear(64, 3_000_000, budget=1000)\n"
        "x = torch.randn(32, 64)\n"
        "with torch.no_grad():\n"
        "    y = layer(x[:1])\n"
        "import os\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (370 << 20), used + (370 << 20)))\n"
        "try:\n"
        "    with torch.no_grad():\n"
        "        y = layer(x)\n"
        "except (MemoryError, RuntimeError) as error:\n"
        "    print('refused:', error)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "refused: a kernel of wirebound found no memory" in done.stdout


def test_what_kernels_return_becomes_an_exception():
    with pytest.raises(MemoryError, match="smaller batch"):
        faults.raise_fault(faults.NO_MEMORY)
    with pytest.raises(WiringError, match="overwritten"):
        faults.raise_fault(faults.BAD_INDEX)


def test_a_bias_of_a_stack_that_is_no_parameter_any_more():
    """As FSDP leaves it: a plain tensor under the same name."""
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), connectivity=0.5)
    x = torch.randn(3, 6)
    expected = model(x) + 1
    bias = model[2].bias.detach() + 1
    del model[2].bias
    model[2].bias = bias
    torch.testing.assert_close(model(x), expected)
