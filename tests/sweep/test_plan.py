"""From the command line and files to trials: names, order, and what is refused."""

import pytest

from wirebound_lab.run.config import ConfigError
from wirebound_lab.sweep.plan import Range, make_plan, parse_range, parse_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=0.05,0.5", ("lr", [0.05, 0.5])),
        ("hidden=[300,100],[50],[]", ("hidden", [[300, 100], [50], []])),
        ("schedule=cosine,constant", ("schedule", ["cosine", "constant"])),
        ("batch-size=10,20", ("batch_size", [10, 20])),
        ("bias=true,false", ("bias", [True, False])),
        ("temperature=null,1e-6", ("temperature", [None, 1e-6])),
    ],
)
def test_values(text, expected):
    assert parse_values(text) == expected


def test_ranges():
    assert parse_range("lr=0.01:1:log") == ("lr", Range(0.01, 1.0, True))
    assert parse_range("batch-size=5:50") == ("batch_size", Range(5, 50))


@pytest.mark.parametrize("text", ["lr", "lr=", "=1"])
def test_wrong_values(text):
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        parse_values(text)


@pytest.mark.parametrize("text", ["lr", "lr=1", "lr=1:x", "lr=2:1", "lr=0:1:log", "lr=0:1:cubic", "lr=0:inf", "=1:2"])
def test_wrong_ranges(text):
    with pytest.raises(ConfigError, match="range"):
        parse_range(text)


def test_a_grid_is_every_combination_once():
    plan = make_plan({}, grid={"method": ["deep-r", "dense"], "connectivity": [0.1, 0.2], "seed": [0, 1, 1]})
    names = [trial.name for trial in plan.trials()]
    # The dense method has no connectivity, so there is one dense run for each seed.
    assert names == [
        *("deep-r-0.1-s0", "deep-r-0.1-s1", "deep-r-0.2-s0", "deep-r-0.2-s1"),
        *("dense-s0", "dense-s1"),
    ]
    assert len({trial.key for trial in plan.trials()}) == 6


def test_names_tell_what_varies_and_are_safe():
    plan = make_plan({}, grid={"connectivity": [0.1], "hidden": [[30, 20], [5]], "data_path": ["/a/../b", "c"]})
    assert plan.trials()[0].name == "deep-r-0.1-hidden=30x20-data_path=_a_.._b-s0"
    many = {"connectivity": [0.1], "data_path": ["x" * 300, "y"]}
    assert max(len(t.name) for t in make_plan({}, grid=many).trials()) < 140


def test_threads_and_data_path_do_not_make_another_run():
    one, two = (make_plan({}, grid={"connectivity": [0.1], "threads": [n]}).trials()[0] for n in (1, 2))
    assert one.key == two.key


def test_a_file_and_options_over_it(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(
        '[settings]\ndata = "digits"\nbudget = 50\n[grid]\nseed = [0, 1]\nlr = [0.1]\n'
        "[search]\nl1 = { low = 1e-6, high = 1e-3, log = true }\n"
    )
    plan = make_plan({}, file, {"seed": [5], "connectivity": [0.2]})
    assert plan.search == {"l1": Range(1e-6, 1e-3, True)}
    (trial,) = make_plan({}, file, {"seed": [5], "connectivity": [0.2], "l1": [0.1]}, {}).trials()[:1]
    assert (trial.config.data, trial.config.seed, trial.config.connectivity, trial.config.budget) == ("digits", 5, 0.2, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\nlr = 0.1\n", "must be a list"),
        ("[grid]\nlr = []\n", "must be a list"),
        ("lr = [1]\n", "tables settings, grid and search"),
        ("grid = 3\n", "must be a table"),
        ("[search]\nlr = [1, 2]\n", "low, high"),
        ("[search]\nlr = { low = 'a', high = 2 }\n", "numbers"),
        ("[search]\nnothing = { low = 1, high = 2 }\n", "unknown setting 'nothing'"),
        ("[grid\n", "not valid TOML"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_plan({}, file)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"lr": [0.1]}, "needs connectivity or budget"),
        ({"connectivity": [0.1, 1.7]}, r"connectivity \(=1.7\)"),
        ({"connectivity": [0.1], "colour": ["red"]}, "unknown setting 'colour'"),
        ({"connectivity": [0.1], "method": ["deepr"]}, "must be one of"),
        ({"connectivity": [0.1], "seed": [0.5]}, r"seed \(=0.5\) must be int"),
    ],
)
def test_wrong_settings_are_found_before_anything_runs(grid, message):
    with pytest.raises(ConfigError, match=message):
        make_plan({}, grid=grid).trials()
