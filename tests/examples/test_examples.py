"""Every example runs, in its small form, and shows what its docstring says."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

import wirebound as wb

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
TESTED_ELSEWHERE = {"ddp"}  # tests/distributed runs it under torchrun


def _example(name: str):
    """The example as a module, without running it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _random_state():
    """Examples seed torch's global generator; other tests must not notice."""
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def test_deep_r_in_100_lines():
    text = (EXAMPLES / "deep_r_in_100_lines.py").read_text()
    assert len(text.splitlines()) <= 100
    assert "torch" not in text
    assert _example("deep_r_in_100_lines").train(epochs=8) > 0.85


def test_mnist(capsys):
    assert _example("mnist").main(["--quick", "--epochs", "4"]) > 0.9
    assert "5020 of 5020 connections" in capsys.readouterr().out


def test_your_own_model(capsys):
    assert _example("your_own_model").main(["--quick"]) > 0.85
    assert "shared 1117/32768" in capsys.readouterr().out


def test_char_transformer():
    first, last = _example("char_transformer").main(["--quick"])
    assert last < 0.8 * first
    assert last < 0.8 * math.log(90)  # guessing among the text's 90 or so characters


def test_sparse_gpt(capsys):
    first, last = _example("sparse_gpt").main(["--quick"])
    assert last < 0.75 * first
    assert abs(first - math.log(256)) < 1  # guesses are even at first
    assert "12,000 connections of 133,120" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(wb, "SparseLSTM"), reason="nn.LSTM has no sparse twin yet")
def test_lstm():
    assert _example("lstm").main(["--quick"]) > 0.5


def test_huge_layer(capsys):
    losses = _example("huge_layer").main(["--quick"])
    assert losses == sorted(losses, reverse=True)
    assert "200,000 of 1,000,000,000,000 possible" in capsys.readouterr().out


def test_many_labels(capsys):
    found = _example("many_labels").main(["--quick"])
    assert found["loss"] < found["loss_at_start"] - 0.05
    assert found["first_five"] > found["guess_first_five"]
    assert "8,000 connections" in capsys.readouterr().out


def test_online_adaptation():
    seen = _example("online_adaptation").main(["--quick"])
    for before, after in seen[1:]:
        assert before < 0.5
        assert after > before + 0.3


@pytest.mark.skipif(importlib.util.find_spec("wirebound.export") is None, reason="there is no export yet")
def test_microcontroller(capsys):
    accuracy, compiled = _example("microcontroller").main(["--quick"])
    assert accuracy > 0.8
    assert math.isnan(compiled) or compiled > accuracy - 0.05  # nan where there is no C compiler
    assert "bytes of flash" in capsys.readouterr().out


def test_every_example_is_tested_and_says_what_one_sees():
    source = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        name = path.stem
        assert f"def test_{name}(" in source or name in TESTED_ELSEWHERE, name
        if name not in TESTED_ELSEWHERE:
            assert "What one sees:" in path.read_text().split('"""')[1].replace("\n", " "), name


def test_wide_text(capsys):
    accuracy = _example("wide_text").main(["--quick"])
    said = capsys.readouterr().out
    assert accuracy > 0.3  # 8 topics
    assert "5000 connections" in said
    assert "listens most to:" in said
