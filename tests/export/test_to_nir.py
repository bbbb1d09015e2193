"""The NIR graph, read back by nir: as rates exactly, and as spikes in the limit."""

import numpy as np
import pytest
from export_helpers import inputs_for, outputs_of, small_network

import wirebound as wb
from wirebound.export import ExportError, to_nir

nir = pytest.importorskip("nir")


def _in_order(graph):
    """Nodes from input to output, along the edges."""
    after = dict(graph.edges)
    name, found = "input", []
    while name in after:
        name = after[name]
        found.append((name, graph.nodes[name]))
    assert name == "output"
    return found


def _linear(node, x):
    y = x @ node.weight.T
    return y + node.bias if isinstance(node, nir.Affine) else y


def _rates(graph, x):
    """The stationary rates: an IF neuron fires r I / threshold times a unit of time if I > 0."""
    for _, node in _in_order(graph):
        if isinstance(node, nir.IF):
            x = np.maximum(x * node.r / node.v_threshold, 0)
        elif not isinstance(node, nir.Output):
            x = _linear(node, x)
    return x


def _spikes(graph, x, seconds, dt):
    """Simulate the graph with constant inputs by Euler steps; the mean output."""
    order = [node for _, node in _in_order(graph)]
    v = {i: np.zeros((len(x), len(node.r))) for i, node in enumerate(order) if isinstance(node, nir.IF)}
    total = 0.0
    for _ in range(round(seconds / dt)):
        signal = x
        for i, node in enumerate(order):
            if i in v:
                v[i] += dt * node.r * signal
                fired = v[i] >= node.v_threshold
                # What is above the threshold is kept: the format resets in continuous time, where nothing is above.
                v[i] = np.where(fired, node.v_reset + v[i] - node.v_threshold, v[i])
                signal = fired / dt
            elif not isinstance(node, nir.Output):
                signal = _linear(node, signal)
        total = total + signal * dt
    return total / seconds


def test_rates_are_what_torch_computes(relu_network, tmp_path):
    x = inputs_for(relu_network)
    graph = nir.read(to_nir(relu_network, tmp_path / "n.nir"))
    np.testing.assert_allclose(_rates(graph, x), outputs_of(relu_network, x), rtol=2e-5, atol=3e-6)


def test_spikes_come_near_the_rates(tmp_path):
    model = small_network("deep-r")
    x = np.abs(inputs_for(model, 4))
    graph = nir.read(to_nir(model, tmp_path / "n.nir"))
    wanted = outputs_of(model, x)
    short, long = (np.abs(_spikes(graph, x, seconds, 0.01) - wanted).max() for seconds in (10, 200))
    assert long < 0.02
    assert long < short / 3  # one spike more or less weighs less in a longer time


def test_connections_are_in_the_metadata(tmp_path):
    model = small_network("deep-r")
    graph = nir.read(to_nir(model, tmp_path / "n.nir"))
    assert int(graph.metadata["connections"]) == wb.wirings(model)[0].budget
    for number, active in enumerate(wb.wirings(model)[0].layer_active):
        node = graph.nodes[f"layer_{number}"]
        listed = node.metadata
        assert len(listed["weight"]) == active
        full = np.zeros_like(node.weight)
        full[listed["row"], listed["column"]] = listed["weight"]
        np.testing.assert_array_equal(full, node.weight)


@pytest.mark.parametrize("kind", ["tanh", "sigmoid"])
def test_no_node_no_file(kind, tmp_path):
    with pytest.raises(ExportError, match=f"NIR has no node for {kind}"):
        to_nir(small_network(kind), tmp_path / "n.nir")
    assert not (tmp_path / "n.nir").exists()
