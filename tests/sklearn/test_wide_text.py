"""The comparison on texts, made small: contenders are judged, columns become words again, tables and pictures are written."""

import json

import numpy as np
import pytest
import wide_text
import wide_text_contenders
import wide_text_words

from wirebound.sklearn import DeepRClassifier
from wirebound_lab.data.texts import Labelled, split_by_group

COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    made = [
        Labelled(f"{COLOURS[i % 3]} {' '.join(f'w{word}' for word in rng.integers(60, size=6))}", COLOURS[i % 3], f"g{i}")
        for i in range(300)
    ]
    return split_by_group("made", made, 0.2, 10, "here")


def test_columns_become_words_again(texts):
    hashed = wide_text.vectorizer(18)
    words = wide_text_words.words_of_columns(texts.train_texts, hashed)
    column = hashed.transform(["green"]).indices[0]
    assert words[column] == "green"
    model = DeepRClassifier((16,), budget=1000, epochs=12, random_state=0)
    model.fit(hashed.transform(texts.train_texts), texts.train_y)
    found = wide_text_words.strongest(model, words)
    for name, chosen in zip(texts.class_names, found, strict=True):
        assert name in [word for word, _ in chosen][:4]
    drawn = wide_text_words.draw("a <title>", texts.class_names, found)
    assert drawn.startswith("<svg")
    assert "a &lt;title&gt;" in drawn
    assert drawn.count('class="head"') == 3


def test_contenders_are_judged_on_their_part(texts, tmp_path):
    shape = wide_text.write_texts(texts, 12, tmp_path)
    assert shape["columns"] == 4096
    assert shape["rows"] == len(texts.train_texts)
    X, y = wide_text_contenders.read_rows(tmp_path, "held")
    assert X.shape == (len(y), 4096)
    settings = {"hidden_layer_sizes": (16,), "budget": 500, "epochs": 12}
    for name, own in (("DeepRClassifier", settings), ("SGDClassifier", {}), ("nothing", {})):
        found = wide_text_contenders.measure(tmp_path, name, "test", 0, own)
        assert found["accuracy"] > (0.9 if name != "nothing" else 0.2)
        assert found["weights"] <= 4096 * 3
    assert found["weights"] == 0


@pytest.mark.slow
def test_the_command(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(wide_text.data, "load_texts", lambda name: texts)
    monkeypatch.setitem(wide_text.GRIDS, "SGDClassifier", {"alpha": [1e-5, 1e-6]})
    arguments = ["--out", str(tmp_path), "--only", "SGD", "LogisticRegression", "--bits", "12", "--seeds", "0", "1"]
    assert wide_text.main(["choose", *arguments, "--tries", "1"]) == 0
    assert wide_text.main(["test", *arguments]) == 0
    (table,) = json.loads((tmp_path / "table.json").read_text())
    titles = [line["title"] for line in table["lines"]]
    assert titles == ["SGDClassifier, log loss", "LogisticRegression, l1"]
    assert [len(line["accuracy"]) for line in table["lines"]] == [2, 1]
    assert min(line["peak_bytes"][0] for line in table["lines"]) > 10**7
    assert "4,096 columns" in (tmp_path / "table.md").read_text()
