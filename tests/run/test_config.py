"""Settings: where they come from, and what is wrong with wrong ones."""

import json

import pytest

from wirebound_lab.run.config import PRESETS, ConfigError, TrainConfig, make_config, read_settings


def test_defaults_are_the_papers():
    config = make_config(PRESETS["paper"], {"connectivity": 0.01})
    assert (config.hidden, config.bias, config.batch_size, config.lr) == ([300, 100], False, 10, 0.05)
    assert (config.l1, config.noise, config.optimizer, config.schedule) == (1e-4, 1e-6, "sgd", "constant")


def test_methods_have_defaults_of_their_own():
    soft = make_config({"method": "soft-deep-r", "connectivity": 0.01})
    assert (soft.l1, soft.noise) == (1e-5, pytest.approx(1e-5 / 3))
    assert make_config({"method": "soft-deep-r", "theta_min": -1e-5, "l1": 0.1}).l1 == 0.1
    assert make_config({"method": "l1-shrinkage"}).l1 == pytest.approx(10**-4.5)
    assert make_config({"method": "pruning", "quality": 1.0}).connectivity is None


def test_later_sources_win_and_budget_replaces_connectivity():
    config = make_config({"connectivity": 0.01, "lr": 1.0}, {"budget": 100}, {"lr": 0.1})
    assert (config.connectivity, config.budget, config.lr) == (None, 100, 0.1)


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_files(tmp_path, suffix):
    path = tmp_path / f"settings.{suffix}"
    text = {"json": '{"lr": 1, "hidden": [5, 6]}', "toml": "lr = 1\nhidden = [5, 6]\n"}[suffix]
    path.write_text(text)
    config = make_config(read_settings(path), {"connectivity": 0.5})
    assert (config.lr, config.hidden) == (1.0, [5, 6])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[1]", "must hold one table"),
        ("a.json", "[" * 100_000, "not valid JSON"),
        ("a.toml", "lr = = 1", "not valid TOML"),
        ("a.json", b"\xff\xfe", "cannot be read"),
    ],
)
def test_wrong_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        read_settings(path)


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs connectivity or budget"),
        ({"method": "soft-deep-r"}, "needs connectivity or budget"),
        ({"connectivity": 0.1, "theta_min": 0.0}, r"theta_min \(=0.0\) must be a finite number < 0"),
        ({"connectivity": 0.1, "rate": 1.5}, r"rate \(=1.5\) must be in \[0, 1\]"),
        ({"connectivity": 0.1, "quality": -1.0}, r"quality \(=-1.0\)"),
        ({"method": "pruning", "connectivity": 0.1, "quality": 1.0}, "not both"),
        ({"connectivity": 0.0}, r"connectivity \(=0.0\) must be in \(0, 1\]"),
        ({"connectivity": 1.7}, r"connectivity \(=1.7\) must be in \(0, 1\]"),
        ({"connectivity": float("nan")}, "connectivity"),
        ({"connectivity": 0.1, "lr": -1.0}, r"lr \(=-1.0\) must be"),
        ({"connectivity": 0.1, "lr": float("inf")}, r"lr \(=inf\) must be"),
        ({"connectivity": 0.1, "l1": -1.0}, r"l1 \(=-1.0\) must be"),
        ({"connectivity": 0.1, "epochs": 0}, r"epochs \(=0\) must be"),
        ({"connectivity": 0.1, "epochs": 1.5}, r"epochs \(=1.5\) must be int"),
        ({"connectivity": "much"}, r"connectivity \(='much'\) must be float"),
        ({"connectivity": 0.1, "hidden": [0]}, "hidden"),
        ({"connectivity": 0.1, "hidden": "big"}, "hidden"),
        ({"connectivity": 0.1, "method": "prune"}, "method"),
        ({"connectivity": 0.1, "speed": 1}, "unknown setting 'speed'"),
        ({"connectivity": 0.1, "bias": 1}, r"bias \(=1\) must be bool"),
        ({"connectivity": 0.1, "momentum": 1.0}, "momentum"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_config(settings)


@pytest.mark.parametrize("schedule", ["exponential", "cosine", "linear"])
def test_learning_rate_goes_from_one_to_its_final_share(schedule):
    config = TrainConfig(schedule=schedule, final_lr=0.1)
    factors = [config.lr_factor(i / 10) for i in range(11)]
    assert factors[0] == pytest.approx(1)
    assert factors[-1] == pytest.approx(0.1)
    assert factors == sorted(factors, reverse=True)


def test_settings_survive_json():
    config = make_config({"connectivity": 0.1})
    assert make_config(json.loads(json.dumps(config.as_dict()))) == config


def test_alpha_by_itself_is_the_default_and_the_papers_preset_says_otherwise():
    assert make_config({"connectivity": 0.01}).l1 == "auto"
    assert make_config({"connectivity": 0.01, "l1": "auto"}, {"l1": 0.5}).l1 == 0.5
    assert make_config(PRESETS["paper"], {"connectivity": 0.01, "l1": "auto"}).l1 == "auto"
    assert make_config(PRESETS["paper"], {"connectivity": 0.01}).newborn_moments == "own"
    for name in PRESETS:  # what a preset says of one method is about that one alone
        assert make_config(PRESETS[name], {"method": "l1-shrinkage"}).l1 == pytest.approx(10**-4.5)
    with pytest.raises(ConfigError, match=r"l1 \(='much'\) must be float or 'auto'"):
        make_config({"connectivity": 0.01, "l1": "much"})
    with pytest.raises(ConfigError, match=r"l1 \(='auto'\) must be float"):
        make_config({"connectivity": 0.01, "method": "constant-rate", "l1": "auto"})


@pytest.mark.parametrize("task", ["cifar", "phonemes"])
def test_every_task_takes_auto(task):
    assert make_config({"task": task, "connectivity": 0.1, "l1": "auto"}).l1 == "auto"
