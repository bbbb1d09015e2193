"""What is written and shown: JSON, Markdown, picture, goals, and the command."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from wirebound_lab.bench import machine, suite, text
from wirebound_lab.bench.contest import Goal, Measurement, Section, Settings, Table, Timing
from wirebound_lab.bench.text import draw
from wirebound_lab.cli import main


def example():
    times = {"dense": Timing(2e-3, 3e-3, 9), "kernel": Timing(5e-5, 6e-5, 9)}
    sweep = [Measurement("Linear", curve={10.0: 5.0, 50.0: 0.9}), Measurement("LSTM", curve={10.0: 4.0, 50.0: 1.2})]
    goals = [
        Goal("faster <than> dense", 25, 40),
        Goal("slower", 3, 2),
        Goal("memory", 1.0, 0.9, "GB", at_most=True),
        Goal("time", 1.1, 1.2, at_most=True),
    ]
    tables = [Table("Layers", [Measurement("a | b", times, {"dense ÷ kernel": 40.0})]), Table("Sweep", sweep)]
    return Section("linear", "Linear layers", tables, goals, ["a note"])


def test_goals_are_met_or_not():
    assert [goal.met for goal in example().goals] == [True, False, True, False]
    assert text.goal_row(example().goals[0]) == ["faster <than> dense", "≥ 25×", "40×", "yes"]
    assert text.goal_row(example().goals[2]) == ["memory", "≤ 1 GB", "0.90 GB", "yes"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2.5, "2.50 s"),
        (1.234e-3, "1.23 ms"),
        (45.67e-6, "45.7 µs"),
        (123.4e-6, "123 µs"),
        (4.56e-8, "45.6 ns"),
    ],
)
def test_times_read_with_three_digits(value, words):
    assert text.seconds(value) == words


def test_files(tmp_path):
    about = machine.describe()
    paths = suite.write(tmp_path / "new", [example()], Settings(kind="avx2"), about)
    names = ["avx2/bench.json", "avx2/bench.md", "avx2/bench.svg", "README.md"]
    assert [str(path.relative_to(tmp_path / "new")) for path in paths] == names
    record = json.loads(paths[0].read_text(encoding="utf-8"))
    assert record["machine"]["torch"]
    section = record["sections"][0]
    assert [goal["met"] for goal in section["goals"]] == [True, False, True, False]
    assert section["tables"][0]["measurements"][0]["times"]["kernel"]["best"] == 5e-5
    page = paths[1].read_text(encoding="utf-8")
    assert "| dense | 2 ms |" in page
    assert "a \\| b" in page
    assert "| dense ÷ ours at 10 % | 5 | 4 |" in page
    ElementTree.fromstring(paths[2].read_text(encoding="utf-8"))


@pytest.mark.parametrize(("load", "warned"), [(None, False), (0.2, False), (4.0, True)])
def test_a_busy_machine_is_said_to_be_busy(monkeypatch, load, warned):
    monkeypatch.setattr(machine, "load", lambda: load)
    about = machine.describe()
    assert (about["warning"] is not None) == warned
    assert ("Other work was running" in text.markdown([example()], about)) == warned


def test_work_that_began_during_the_run_is_said_too(monkeypatch):
    monkeypatch.setattr(machine, "load", lambda: 0.1)
    about = machine.describe()
    for load, warned in ((2.2, False), (3.5, True)):
        monkeypatch.setattr(machine, "load", lambda load=load: load)
        assert (machine.describe_after(about, 2)["warning"] is not None) == warned
    assert machine.describe_after({**about, "warning": "before"}, 2)["warning"] == "before"


def test_picture_is_complete_without_anything_from_outside():
    picture = draw([example()])
    assert picture is not None
    assert "faster &lt;than&gt; dense" in picture
    assert "memory" not in picture  # only ratios are drawn
    assert "href" not in picture
    assert "<script" not in picture
    assert draw([Section("limits", "Limits", [])]) is None


def test_sections_are_chosen_by_name():
    assert suite.choose(None) == list(suite.SECTIONS)
    assert suite.choose("mnist, linear") == ["linear", "mnist"]
    with pytest.raises(ValueError, match="only \\(='liner'\\) must name sections"):
        suite.choose("liner")
    with pytest.raises(ValueError, match="at least one"):
        suite.choose(",")


def test_command(tmp_path, monkeypatch, capsys):
    seen = []

    def measure(settings):
        seen.append(settings)
        settings.say("something")
        return example()

    monkeypatch.setitem(suite.SECTIONS, "linear", measure)
    assert main(["bench", "--quick", "--only", "linear", "--threads", "2", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "2 of 4 goals reached" in shown
    assert "a note" in shown
    assert (seen[0].quick, seen[0].threads, seen[0].seconds) == (True, 2, 0.05)
    assert (tmp_path / machine.kind() / "bench.json").exists()
    assert main(["bench", "--only", "linear", "--seconds", "2"]) == 0
    assert (seen[1].quick, seen[1].seconds) == (False, 2.0)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--threads", "0", "threads (=0)"),
        ("--only", "x", "only (='x')"),
        ("--seconds", "0", "seconds (=0.0)"),
        ("--seconds", "nan", "seconds (=nan)"),
    ],
)
def test_command_says_what_is_wrong(option, value, says, capsys):
    assert main(["bench", option, value]) == 2
    assert says in capsys.readouterr().err
