"""The task gpt: its text, its batches in parts, whole small runs of every method, and runs that stop and resume."""

import json
import math
from pathlib import Path

import pytest
import torch

import wirebound as wb
from wirebound_lab.cli import main
from wirebound_lab.data import DataError
from wirebound_lab.data.text import PARTS, load_text, part_of
from wirebound_lab.run import train
from wirebound_lab.run.config import ConfigError, RunConfig, make_config
from wirebound_lab.tasks.gpt import TextGPT

SMALL = {
    "task": "gpt", "width": 16, "depth": 1, "heads": 2, "context": 8, "batch_size": 4, "steps": 3, "epochs": 2, "windows": 4,
    "threads": 1, "lr": 0.01,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("text")
    (root / "below").mkdir()
    for number in range(80):
        place = root / "below" if number % 2 else root
        (place / f"{number}.txt").write_text(f"line {number} of a text\n" * 4, encoding="utf-8")
    (root / "picture.png").write_bytes(b"\x89\0\1")
    return root


def settings(folder: Path, **other: object) -> RunConfig:
    given = {**SMALL, "text": str(folder), **other}
    return make_config(given if given.get("method") == "dense" else {"budget": 900, **given})


def test_whole_files_are_held_out_by_their_names_alone(folder: Path) -> None:
    one, two = load_text(folder), load_text(str(folder))
    assert one.sha256 == two.sha256
    assert sum(one.files.values()) == 80  # not the picture
    for part in PARTS:
        text = bytes(one.part(part).tolist()).decode()
        names = {int(line.split()[1]) for line in text.replace("\0", "").splitlines()}
        assert len(names) == one.files[part]
        assert all(part_of(f"below/{n}.txt" if n % 2 else f"{n}.txt") == part for n in names)
    with pytest.raises(DataError, match="must be a folder"):
        load_text(folder / "0.txt")


def test_the_standard_library_is_text() -> None:
    text = load_text()
    assert text.name == "python"
    assert len(text.train) > 1_000_000
    assert min(len(text.validation), len(text.test)) > 10_000


def test_parts_of_a_batch_have_the_gradient_of_the_whole(folder: Path) -> None:
    found = []
    for pieces in (1, 2):
        task = TextGPT(settings(folder, accumulate=pieces))
        engine = task.engine(task.config)
        batch = next(task.batches(1, 0))
        loss, where = engine._gradients(batch)  # type: ignore[attr-defined]
        assert not where
        found.append((loss, [p.grad for p in task.method.model.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["deep-r", "fixed", "top-k", "rigl", "set", "dense"])
def test_every_method_trains_it_and_keeps_its_number(folder: Path, method: str) -> None:
    result = train(settings(folder, method=method, accumulate=2, validation=1))
    summary = result.summary
    assert summary["evaluated_on"] == "validation"
    assert math.isfinite(summary["test_loss"])
    assert summary["bits_per_byte"] == pytest.approx(summary["test_loss"] / math.log(2))
    assert summary["tokens"] == 6 * 4 * 8
    assert summary["tokens_per_second"] > 0
    assert summary["hidden_neurons"] == 64
    if method != "dense":
        assert summary["min_active"] == summary["max_active"] == 900
    for wiring in wb.wirings(result.model):
        wiring.check()


def test_births_by_the_gradient_of_the_last_part(folder: Path) -> None:
    result = train(settings(folder, births="gradient", accumulate=4, l1=0.3, epochs=1))
    assert result.summary["min_active"] == result.summary["max_active"] == 900


def test_a_run_that_stops_resumes_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    class PulledPlugError(Exception):
        pass

    def pull(progress: object) -> None:
        if progress.step >= 4:  # type: ignore[attr-defined]
            raise PulledPlugError

    config = settings(folder, accumulate=2, checkpoint_every=1)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(PulledPlugError):
        train(config, tmp_path / "again", listener=pull)
    again = train(config, tmp_path / "again", resume=True)
    assert again.summary["test_loss"] == whole.summary["test_loss"]
    assert torch.equal(wb.wirings(again.model)[0].theta, wb.wirings(whole.model)[0].theta)
    assert again.summary["cpu_seconds"] > 0


def test_the_command_and_its_report(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, "text": folder, "budget": 900}.items()]
    assert main(["train", *options, "--out", str(tmp_path / "run")]) == 0
    assert "bits a byte" in capsys.readouterr().out.replace("\n", " ")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["min_active"] == 900
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_rate_rises_first(folder: Path) -> None:
    config = settings(folder, warmup=0.2, schedule="cosine", final_lr=0.1)
    factors = [config.lr_factor(p) for p in (0.0, 0.1, 0.2, 0.6, 1.0)]
    assert factors == pytest.approx([0.01, 0.5, 1.0, 0.55, 0.1])


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"heads": 3}, "width (=16) must be a multiple of heads (=3)"),
        ({"accumulate": 5}, "accumulate (=5) must be at most batch_size (=4)"),
        ({"context": 3000}, "has too few bytes"),
    ],
)
def test_wrong_settings_are_named(folder: Path, wrong: dict[str, int], rule: str) -> None:
    with pytest.raises(ConfigError) as error:
        TextGPT(settings(folder, **wrong))
    assert rule in str(error.value)
