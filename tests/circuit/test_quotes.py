"""The task whose answer is known: its texts, its measures, and a run of it from training to page."""

import json

import pytest
import torch

import wirebound as wb
from wirebound_lab.cli import main
from wirebound_lab.data.quoted import MARKS, Quoted
from wirebound_lab.run import RunConfig
from wirebound_lab.tasks import TASKS


@pytest.mark.parametrize("marks", MARKS)
def test_the_mark_that_opens_is_the_one_that_closes(marks):
    text = Quoted(25, marks)
    drawn = text.draw("train", 300, seed=0, step=5)
    assert torch.equal(text.closing_places(drawn.tokens), drawn.closing)
    pairs = {opening: closing for opening, closing in MARKS[marks]}
    for tokens, closing, kind in zip(*drawn, strict=True):
        line = text.written(tokens)
        opening = next(place for place, letter in enumerate(line) if letter in pairs)
        assert pairs[line[opening]] == line[closing] == MARKS[marks][kind][1]
        assert closing - opening >= 2
        assert sum(letter in "".join(MARKS[marks]) for letter in line) == 2
    assert len(drawn.kinds.unique()) == len(pairs)
    assert torch.equal(text.draw("train", 300, 0, 5).tokens, drawn.tokens)
    assert not torch.equal(text.draw("train", 300, 1, 5).tokens, drawn.tokens)


def test_held_out_texts_have_other_words_and_places():
    text = Quoted(25)
    words, places = {}, {}
    for part in ("train", "held-out"):
        drawn = text.draw(part, 2000, 0, 0)
        lines = [text.written(tokens) for tokens in drawn.tokens]
        words[part] = {word for line in lines for word in line.split() if len(word) == 3 and word.isalpha()}
        places[part] = {(min(line.find(mark) for mark in "'\"" if mark in line), int(end)) for line, end in zip(lines, drawn.closing, strict=True)}
    assert not places["train"] & places["held-out"]
    assert len(words["train"] & words["held-out"]) < 0.1 * len(words["train"])  # the rest of a word beside a mark


def test_loss_is_on_all_tokens_and_on_the_closing_one():
    task = TASKS["quotes"](RunConfig(task="quotes", budget=300, width=16, context=12))
    (batch,) = [next(task.batches(1, 0))]
    logits = task.method.model(*batch.inputs)
    every = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.y)
    task.config.emphasis = 0.0
    assert torch.isclose(task.loss(logits, batch.y), every)
    task.config.emphasis = 1.0
    closing = task.text.closing_places(batch.y)
    last = torch.nn.functional.cross_entropy(logits[torch.arange(len(closing)), closing], batch.y[torch.arange(len(closing)), closing])
    assert torch.isclose(task.loss(logits, batch.y), last)
    for wiring in wb.wirings(task.method.model):
        wiring.check()


def test_from_training_to_the_page(tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    shape = ["--width", "16", "--context", "12", "--heads", "1", "--mlp-factor", "1", "--steps", "12", "--epochs", "1"]
    assert main(["train", "--task", "quotes", "--budget", "200", *shape, "--batch-size", "8", "--out", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["min_active"] == summary["max_active"] == summary["budget"] == 200
    assert main(["circuit", str(run), "--out", str(page)]) == 0
    assert "next token {}" in page.read_text(encoding="utf-8")
    assert main(["circuit", str(run), "--out", str(page), "--find"]) == 2  # twelve steps teach nothing
    assert "accuracy of the network" in capsys.readouterr().err
    assert main(["circuit", str(tmp_path / "none"), "--out", str(page)]) == 2
    assert main(["circuit", str(run), "--out", str(page), "--most", "0"]) == 2
