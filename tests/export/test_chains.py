"""User classes, batch norm, GELU, convolutions and pooling in every format, against torch on random inputs."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from c_export import FLAGS
from chain_models import CHAINS, NIR_CHAINS, SPATIAL, chain_inputs, chain_model, chain_outputs
from scipy import sparse
from torch import nn

import wirebound as wb
from wirebound.export import ExportError, projections, read_network, to_c, to_nir, to_onnx, to_scipy
from wirebound.export.c_code import quantised

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", CHAINS)
def test_the_network_computes_what_torch_does(name, sparse):
    model, x = chain_model(name, sparse=sparse), chain_inputs(name)
    before = [module.training for module in model.modules()]
    network = read_network(model, CHAINS[name][1])
    assert [module.training for module in model.modules()] == before
    np.testing.assert_allclose(network.forward(x), chain_outputs(model, x).reshape(len(x), -1), **CLOSE)
    if not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in model.modules()) and sparse:
        assert network.connections == sum(wiring.active for wiring in wb.wirings(model))


@pytest.mark.parametrize("name", CHAINS)
def test_onnx(name, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model, x = chain_model(name), chain_inputs(name)
    wanted = chain_outputs(model, x)
    for settings in ({}, {"dense": True, "input_shape": CHAINS[name][1]}):
        path = to_onnx(model, tmp_path / "n.onnx", **settings)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(["y"], {"x": x})[0], wanted, **CLOSE)


INT8 = tuple((name, scales) for name in ("lenet", "conv1d", "functional") for scales in ("row", "layer"))
_PROGRAM = """#include <stdio.h>
#include <stdlib.h>
%s
int main(int count, char **arguments) {
  (void)count;
  switch (atoi(arguments[1])) {
%s
  }
  return 0;
}
"""
_CASE = """  case {n}: {{
    static net{n}_input x[NET{n}_INPUTS];
    while (fread(x, sizeof x[0], NET{n}_INPUTS, stdin) == NET{n}_INPUTS) {{
      fwrite(net{n}_run(x), sizeof(float), NET{n}_OUTPUTS, stdout);
      if (net{n}_predict(x) < 0) return 1;
    }}
    break;
  }}"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """All networks in one program, because gcc takes longer to start than to compile one."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    place = tmp_path_factory.mktemp("c")
    keys = [*((name, None) for name in CHAINS), *INT8]
    for n, (name, scales) in enumerate(keys):
        settings = {} if scales is None else {"weights": "int8", "scales": scales, "pixels": 1 / 255}
        to_c(chain_model(name), place / f"{n}.h", name=f"net{n}", input_shape=CHAINS[name][1], **settings)
    includes = "\n".join(f'#include "{n}.h"' for n in range(len(keys)))
    cases = "\n".join(_CASE.format(n=n) for n in range(len(keys)))
    (place / "main.c").write_text(_PROGRAM % (includes, cases))
    subprocess.run(["gcc", *FLAGS, "-O1", "main.c", "-o", "main", "-lm"], cwd=place, check=True)

    def run(key, x):
        job = [str(place / "main"), str(keys.index(key))]
        done = subprocess.run(job, input=np.ascontiguousarray(x).tobytes(), capture_output=True, check=True)
        return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(x), -1)

    return run


@pytest.mark.parametrize("name", CHAINS)
def test_c(name, compiled):
    x = chain_inputs(name)
    wanted = chain_outputs(chain_model(name), x).reshape(len(x), -1)
    np.testing.assert_allclose(compiled((name, None), x), wanted, **CLOSE)


@pytest.mark.parametrize(("name", "scales"), INT8)
def test_int8_c_with_bytes_as_inputs(name, scales, compiled):
    pixels = np.random.default_rng(0).integers(0, 256, (4, *CHAINS[name][1]), dtype=np.uint8)
    network = read_network(chain_model(name), CHAINS[name][1])
    wanted = quantised(network, scales).forward(pixels / np.float32(255))
    np.testing.assert_allclose(compiled((name, scales), pixels), wanted, rtol=1e-4, atol=1e-4)


def _nir_outputs(graph, x):
    """Rates along the edges, by torch's functions on what the nodes say."""
    nir = pytest.importorskip("nir")
    after, name, y = dict(graph.edges), "input", torch.from_numpy(x)
    while name in after:
        name = after[name]
        node = graph.nodes[name]
        if isinstance(node, nir.IF):
            assert tuple(y.shape[1:]) == node.r.shape
            y = torch.clamp(y * torch.from_numpy(node.r / node.v_threshold), min=0)
        elif isinstance(node, nir.Affine | nir.Linear):
            bias = torch.from_numpy(node.bias) if isinstance(node, nir.Affine) else None
            y = nn.functional.linear(y, torch.from_numpy(node.weight), bias)
        elif isinstance(node, nir.Conv1d | nir.Conv2d):
            function = nn.functional.conv2d if isinstance(node, nir.Conv2d) else nn.functional.conv1d
            padding = node.padding.decode() if isinstance(node.padding, bytes) else node.padding
            settings = [v if isinstance(v, str) else tuple(np.atleast_1d(v).tolist()) for v in (node.stride, padding, node.dilation)]
            y = function(y, torch.from_numpy(node.weight), torch.from_numpy(node.bias), *settings, groups=int(node.groups))
        elif isinstance(node, nir.AvgPool2d):
            y = nn.functional.avg_pool2d(y, *(tuple(v.tolist()) for v in (node.kernel_size, node.stride, node.padding)))
        elif isinstance(node, nir.Flatten):
            y = y.flatten(1)
        else:
            assert isinstance(node, nir.Output), node
    return y.numpy()


@pytest.mark.parametrize("name", NIR_CHAINS)
def test_nir(name, tmp_path):
    nir = pytest.importorskip("nir")
    model, x = chain_model(name), chain_inputs(name)
    graph = nir.read(to_nir(model, tmp_path / "n.nir", input_shape=CHAINS[name][1]))
    np.testing.assert_allclose(_nir_outputs(graph, x), chain_outputs(model, x), **CLOSE)
    np.testing.assert_array_equal(graph.nodes["input"].input_type["input"], CHAINS[name][1])


@pytest.mark.parametrize("name", ["two-layers", "norm-before", "conv-settings", "conv1d"])
def test_scipy_has_kernels_and_what_they_mean(name, tmp_path):
    model, x = chain_model(name), chain_inputs(name)
    files = to_scipy(model, tmp_path / "net", input_shape=CHAINS[name][1])
    y = torch.from_numpy(x)
    listed = json.loads((tmp_path / "net" / "network.json").read_text())["layers"]
    assert [tmp_path / "net" / item["file"] for item in listed if "file" in item] == files
    for item in listed:
        if "pool" in item["kind"]:
            pool = {"max-pool1d": nn.functional.max_pool1d, "mean-pool1d": nn.functional.avg_pool1d}[item["kind"]]
            y = pool(y, item["kernel"], item["stride"])
            continue
        file = tmp_path / "net" / item["file"]
        more, weight = np.load(file), torch.from_numpy(sparse.load_npz(file).toarray())
        bias = torch.from_numpy(more["bias"])
        if item["kind"] == "linear":
            y = nn.functional.linear(y.flatten(1), weight, bias)
        else:
            assert list(y.shape[2:]) == item["input_size"]
            kernel = weight.view(item["shape"][0], item["in_channels"] // item["groups"], *item["kernel"])
            margins = [n for pair in reversed(list(zip(*item["padding"], strict=True))) for n in pair]
            function = nn.functional.conv2d if item["kind"] == "conv2d" else nn.functional.conv1d
            y = function(nn.functional.pad(y, margins), kernel, bias, item["stride"], 0, item["dilation"], item["groups"])
        y = {"relu": torch.relu, "tanh": torch.tanh, "linear": lambda y: y}[str(more["activation"])](y)
    np.testing.assert_allclose(y.numpy(), chain_outputs(model, x), **CLOSE)


def test_pynn_lists_each_connection_of_a_convolution_for_each_place():
    model, shape = chain_model("ends-with-conv"), CHAINS["ends-with-conv"][1]
    listed = projections(model, input_shape=shape)
    x = chain_inputs("ends-with-conv", 3)
    network = read_network(model, shape)
    y = x.reshape(3, -1)
    for number, layer in enumerate(network.layers):
        full = np.zeros((network.sizes[number + 1], network.sizes[number]))
        for item in listed[2 * number : 2 * number + 2]:
            for i, j, weight, _ in item.connections:
                full[j, i] = weight
        y = layer.activate(y @ full.T + np.repeat(layer.bias, 30))
    np.testing.assert_allclose(y, chain_outputs(model, x).reshape(3, -1), **CLOSE)


def test_batch_norm_leaves_no_layer_of_its_own_where_another_can_take_it():
    counts = {name: len(read_network(chain_model(name)).layers) for name in CHAINS if name.startswith("norm")}
    # One is left between a ReLU and nothing, one before a convolution with padding.
    assert counts == {"norm-behind": 2, "norm-before": 2, "norm-alone": 2, "norm-and-padding": 5}


def test_a_norm_of_channels_before_flattening(tmp_path):
    """One module that can mean two things: only the shape says which."""
    runtime = pytest.importorskip("onnxruntime")
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(15, 4)).eval()
    model[0].running_mean.normal_()
    x = torch.randn(6, 3, 5)
    wanted = model(x).detach().numpy()
    with pytest.raises(ExportError, match="a layer with 3 outputs is followed by '2' with 15 inputs"):
        read_network(model)
    network = read_network(model, (3, 5))
    assert len(network.layers) == 1
    np.testing.assert_allclose(network.forward(x.numpy()), wanted, **CLOSE)
    path = to_onnx(network, tmp_path / "n.onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["y"], {"x": x.numpy()})[0], wanted, **CLOSE)


@pytest.mark.parametrize("name", SPATIAL)
@pytest.mark.parametrize("write", [to_c, to_nir])
def test_convolutions_need_the_size_of_the_input(name, write, tmp_path):
    with pytest.raises(ExportError, match="give input_shape, the shape of one example"):
        write(chain_model(name), tmp_path / "x")
    with pytest.raises(ExportError, match=r"must have at most 3 sizes|takes inputs of shape"):
        write(chain_model(name), tmp_path / "x", input_shape=(7, *CHAINS[name][1]))
    assert not (tmp_path / "x").exists()
