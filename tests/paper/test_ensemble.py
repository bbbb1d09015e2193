"""The ensemble experiment on the digits data set, from choice to table."""

import json

import mnist_ensemble
import pytest


@pytest.fixture
def small(monkeypatch):
    for name, value in {
        "DATA": "digits", "HELD_OUT": 300, "COUNTS": (2, 4), "BURN_IN": 1, "CHOICE_SAMPLES": 2,
        "CHOICES": ((0.2, 0.0), (0.2, 1e-6)), "SAMPLING": {"lr": 0.2, "temperature": 1e-6},
    }.items():  # fmt: skip
        monkeypatch.setattr(mnist_ensemble, name, value)
    whole = mnist_ensemble.config_of
    quick = {"connectivity": 0.05, "epochs": 3, "lr": 0.5}
    monkeypatch.setattr(mnist_ensemble, "config_of", lambda seed, **more: whole(seed, **quick, **more))


def test_choose_and_run(small, tmp_path):
    mnist_ensemble.main(["choose", "--out", str(tmp_path)])
    choice = json.loads((tmp_path / "choice.json").read_text())
    assert [row["nll"] for row in choice["choices"]] == sorted(row["nll"] for row in choice["choices"])
    mnist_ensemble.main(["run", "--out", str(tmp_path), "--seeds", "0", "1"])
    found = json.loads((tmp_path / "ensemble.json").read_text())
    names = [row["name"] for row in found["table"]]
    assert names == ["single, 3 epochs", "single, 8 epochs", "the last sample alone", "ensemble of 2", "ensemble of 4"]
    assert found["connections"] == round(0.05 * (64 * 300 + 300 * 100 + 100 * 10))
    by_name = {row["name"]: row for row in found["table"]}
    assert all(len(row["each"]) == 2 and row["accuracy"] > 0.8 for row in found["table"])
    gain = found["gains"][0]
    assert gain["nll"]["mean"] == pytest.approx(by_name["ensemble of 2"]["nll"] - by_name["single, 3 epochs"]["nll"])
    assert "| ensemble of 4 |" in (tmp_path / "ensemble.md").read_text()


def test_what_is_found_on_held_out_data_sharpens_the_test(small, tmp_path):
    mnist_ensemble.main(["sharpen", "--out", str(tmp_path), "--seeds", "0"])
    powers = json.loads((tmp_path / "sharpness.json").read_text())["powers"]
    assert set(powers) >= {"single, 3 epochs", "ensemble of 4"}
    mnist_ensemble.main(["run", "--out", str(tmp_path), "--seeds", "0"])
    found = {row["name"]: row for row in json.loads((tmp_path / "ensemble.json").read_text())["table"]}
    for name in powers:
        assert found[f"{name}, sharpened"]["accuracy"] == found[name]["accuracy"]


def test_sampling_goes_on_where_training_stopped(small):
    config = mnist_ensemble.config_of(0)
    data = mnist_ensemble.datasets.load("digits")
    model = mnist_ensemble.train(config).model
    samples = mnist_ensemble.sample(model, config, data, lr=0.2, temperature=1e-6, samples=3)
    assert samples.steps == [2, 3, 4]
    for one in samples.models():
        for wiring in mnist_ensemble.wirings(one):
            wiring.check()
    assert not (samples.states[0]["0.wiring.packed_rows"] == samples.states[-1]["0.wiring.packed_rows"]).all()
