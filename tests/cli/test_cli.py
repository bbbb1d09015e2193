"""The command as a user runs it: real processes where that matters, exit codes, readable errors.

What only reads options and prints is called in this process: each process of its own imports torch first.
"""

import json
import subprocess
import sys

import pytest

from wirebound_lab.cli import main
from wirebound_lab.run.config import ConfigError


def _run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "wirebound", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_train_report_and_info(tmp_path):
    arguments = ("--data", "digits", "--connectivity", "0.1", "--epochs", "2", "--seed", "3", "--lr", "0.5")
    done = _run("train", *arguments, "--out", str(tmp_path / "x"))
    assert done.returncode == 0, done.stderr
    assert "test accuracy, last epoch" in done.stdout
    assert "5,020, kept at every step" in done.stdout
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert (summary["seed"], summary["epochs"], summary["budget"]) == (3, 2, 5020)
    page = tmp_path / "page.html"
    done = _run("report", str(tmp_path), "--out", str(page))
    assert done.returncode == 0, done.stderr
    assert "<html" in page.read_text()
    again = _run("train", *arguments, "--out", str(tmp_path / "x"))
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_config_file_and_options_over_it(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text('data = "digits"\nconnectivity = 0.2\nepochs = 3\nhidden = [20]\n')
    done = _run("train", "--config", str(config), "--epochs", "1", "--out", str(tmp_path / "y"), "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    settings = json.loads((tmp_path / "y" / "config.json").read_text())
    assert (settings["epochs"], settings["hidden"], settings["connectivity"]) == (1, [20], 0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connectivity", "0"], "connectivity (=0.0) must be in (0, 1]"),
        (["--connectivity", "1.7"], "connectivity (=1.7) must be in (0, 1]"),
        (["--budget", "99999999"], "budget (=99999999) must be in [1, 50200]"),
        (["--connectivity", "0.1", "--config", "none.json"], "cannot be read"),
        (["--connectivity", "0.1", "--lr", "1e25"], "finite"),
        (["--connectivity", "0.1", "--lr", "-1"], "lr (=-1.0) must be a finite number > 0"),
        ([], "needs connectivity or budget"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--data", "digits", "--epochs", "1", *arguments]) in (1, 2)
    error, *advice = capsys.readouterr().err.strip().split("\n")
    assert message in error
    assert len(advice) <= 1
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("arguments", [("--debug", "train"), ("train", "--debug")])
def test_debug_shows_the_traceback(arguments):
    with pytest.raises(ConfigError):
        main([*arguments, "--connectivity", "1.7"])


def test_info_says_which_kernels_and_where_data_is(capsys):
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    assert "kernels" in said
    assert "data digits" in said


def test_data_list_and_verify(capsys):
    assert main(["data", "list"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["data", "verify", "digits"]) == 0


def test_the_command_itself_has_help():
    done = _run("--help")
    assert done.returncode == 0, done.stderr
    assert "1 % connectivity" in done.stdout
    assert "First steps" in done.stdout


@pytest.mark.parametrize("command", ["train", "report", "export", "refine", "data", "info", "demo", "bench", "sweep", "reproduce", "completion"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


def test_a_missing_package_is_one_line_that_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    monkeypatch.delitem(sys.modules, "wirebound_lab.cli.completion", raising=False)
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == "wirebound: this command needs the package shtab: pip install 'wirebound[lab]'\n"


def test_a_setting_of_another_task_is_refused(tmp_path, capsys):
    assert main(["train", "--task", "cifar", "--connectivity", "0.1", "--bias", "--out", str(tmp_path / "x")]) == 2
    assert "bias is no setting of task 'cifar'" in capsys.readouterr().err
    assert main(["train", "--task", "cifar", "--connectivity", "0.1", "--init", "dense-fan-in", "--out", str(tmp_path / "x")]) == 2
    assert "init (='dense-fan-in') must be one of tutorial, scaled" in capsys.readouterr().err


def test_train_without_an_alpha_of_ones_own(tmp_path, capsys):
    options = ["--data", "digits", "--connectivity", "0.05", "--epochs", "2", "--quiet"]
    assert main(["train", *options, "--l1", "auto", "--dense-lr", "--out", str(tmp_path / "a")]) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (config["l1"], config["dense_lr"], config["turnover"]) == ("auto", True, 0.07)
    assert main(["train", *options, "--l1", "mild", "--out", str(tmp_path / "b")]) == 2
    assert "l1 (='mild') must be float or 'auto'" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
