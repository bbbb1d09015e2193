"""The connection lists, taken by PyNN's own connectors on its mock simulator."""

import json
import os

import numpy as np
import pytest
from export_helpers import small_network

from wirebound.export import ExportError, projections, read_network, read_projections, to_pynn

sim = pytest.importorskip("pyNN.mock")


def _network(folder, connector, receptor_weights=None):
    """The projections of a folder between populations, as dense matrices by (pre, receptor)."""
    described = json.loads((folder / "network.json").read_text())
    sim.setup()
    cell = sim.IF_cond_exp if receptor_weights == "conductance" else sim.IF_curr_exp
    populations = [sim.Population(size, cell()) for size in described["populations"]]
    found = {}
    for item in read_projections(folder):
        made = sim.Projection(
            populations[item.pre], populations[item.post], connector(item), sim.StaticSynapse(),
            receptor_type=item.receptor,
        )  # fmt: skip
        full = np.zeros((len(populations[item.post]), len(populations[item.pre])))
        for i, j, weight, delay in made.get(["weight", "delay"], format="list"):
            full[int(j), int(i)] += weight
            assert delay == 1.5
        found[item.pre, item.receptor] = full
    sim.end()
    return found


def _from_file(item):
    return sim.FromFileConnector(str(item.file))


def _from_list(item):
    return sim.FromListConnector(item.connections)


@pytest.mark.parametrize("connector", [_from_file, _from_list], ids=["file", "list"])
@pytest.mark.parametrize("kind", ["deep-r", "fixed", "dense-head"])
def test_pynn_makes_the_same_matrices(kind, connector, tmp_path):
    model = small_network(kind)
    to_pynn(model, tmp_path, delay=1.5)
    found = _network(tmp_path, connector)
    for number, layer in enumerate(read_network(model).layers):
        excitatory, inhibitory = found[number, "excitatory"], found[number, "inhibitory"]
        assert excitatory.min() >= 0 >= inhibitory.max()
        np.testing.assert_allclose(excitatory + inhibitory, layer.dense(), rtol=1e-7)


def test_conductances_are_positive_and_scaled(tmp_path):
    model = small_network("deep-r")
    to_pynn(model, tmp_path, delay=1.5, gain=0.25, conductance=True)
    found = _network(tmp_path, _from_file, "conductance")
    for number, layer in enumerate(read_network(model).layers):
        assert found[number, "inhibitory"].min() >= 0
        both = found[number, "excitatory"] - found[number, "inhibitory"]
        np.testing.assert_allclose(both, 0.25 * layer.dense(), rtol=1e-6)


def test_newborns_keep_their_side():
    model = small_network("deep-r")
    wiring = model[0].wiring
    silent = int((wiring.theta == 0).sum())
    assert silent > 0
    listed = projections(model)
    inhibitory = sum(len(item.connections) for item in listed if item.receptor == "inhibitory")
    assert inhibitory == int((wiring.packed_rows < 0).sum())
    assert sum(len(item.connections) for item in listed) == wiring.budget


def test_files_are_read_back_as_written(tmp_path):
    model = small_network("wide")
    written = to_pynn(model, tmp_path)
    assert read_projections(tmp_path) == written
    layer = read_network(model).layers[0]
    bias = json.loads((tmp_path / "network.json").read_text())["bias"][0]
    np.testing.assert_allclose(bias, layer.bias, rtol=1e-6)


@pytest.mark.parametrize(("settings", "message"), [({"delay": 0.0}, "delay"), ({"gain": -1.0}, "gain")])
def test_wrong_settings(settings, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        to_pynn(small_network("one-layer"), tmp_path / "x", **settings)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "..", ".", "", "sub/layer.txt", "..\\secret.txt",
                                  "C:secret.txt", "C:\\secret.txt", "a\0b", 7, None])  # fmt: skip
def test_only_files_of_the_folder_are_read(name, tmp_path):
    folder = tmp_path / "net"
    to_pynn(small_network("one-layer"), folder)
    (folder / "sub").mkdir()
    for place in (tmp_path / "secret.txt", folder / "sub" / "layer.txt", folder / "..\\secret.txt", folder / "C:secret.txt"):
        place.write_text("0\t0\t1.0\t1.0\n")
    described = json.loads((folder / "network.json").read_text())
    described["projections"][0]["file"] = name
    (folder / "network.json").write_text(json.dumps(described))
    with pytest.raises(ExportError, match="must be a name in its own folder, without a path"):
        read_projections(folder)


@pytest.mark.parametrize("link", ["layer_0.excitatory.txt", "network.json"])
def test_links_out_of_the_folder_are_not_followed(link, tmp_path):
    folder = tmp_path / "net"
    to_pynn(small_network("one-layer"), folder)
    outside = (folder / link).rename(tmp_path / "outside")
    (folder / link).symlink_to(outside)
    with pytest.raises(ExportError, match="not a link out of it"):
        read_projections(folder)
    (folder / link).unlink()
    outside.rename(folder / link)
    (tmp_path / "other-name").symlink_to(folder)  # the folder itself may be a link
    assert len(read_projections(tmp_path / "other-name")) == 2


def test_a_pipe_is_not_waited_for(tmp_path):
    to_pynn(small_network("one-layer"), tmp_path / "net")
    file = tmp_path / "net" / "layer_0.excitatory.txt"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ExportError, match="must be a regular file"):
        read_projections(tmp_path / "net")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "does not hold projections"),
        ("[]", "does not hold projections"),
        ('{"projections": [{"file": "x"}]}', "does not hold projections as to_pynn writes them .KeyError: 'pre'"),
        ('{"projections": [{"file": "x", "pre": 0, "post": "1", "receptor": "both"}]}', "receptor .='both'"),
        ('{"projections": [{"file": "x", "pre": 0, "post": 1, "receptor": "excitatory"}]}', "does not hold projections"),
        ('{"projections": [{"file": "network.json", "pre": 0, "post": 1, "receptor": "excitatory"}]}', "ValueError"),
    ],
)
def test_damaged_folders(text, message, tmp_path):
    (tmp_path / "network.json").write_text(text)
    with pytest.raises(ExportError, match=message):
        read_projections(tmp_path)
