"""Texts over a million hashed columns, inside a budget of connections, without a download:

    python examples/wide_text.py

Docstrings of Python's standard library, each with the topic of its module. Their words are hashed into 2^20 columns; dense, the
first layer of 64 units would have 67 million weights. What one sees: the network has exactly its budget of connections, knows
topics of modules that it has never seen far better than chance, and names the words that it listens to.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline

import wirebound as wb
from wirebound.sklearn import DeepRClassifier
from wirebound_lab import data

COLUMNS = 2**20


def main(arguments: Sequence[str] | None = None) -> float:
    """Return the accuracy on modules that were not trained on."""
    parser = argparse.ArgumentParser(description="Texts over a million hashed columns.")
    parser.add_argument("--quick", action="store_true", help="fewer connections and epochs")
    parser.add_argument("--texts", choices=("stdlib", "debian"), default="stdlib", help="debian: 32,000 texts, fetched once")
    parser.add_argument("--budget", type=int, default=50_000)
    options = parser.parse_args(arguments)
    settings = {"budget": 5_000, "epochs": 3} if options.quick else {"budget": options.budget}

    texts = data.load_texts(options.texts)
    hashing = HashingVectorizer(n_features=COLUMNS, alternate_sign=False, dtype=np.float32)
    model = make_pipeline(hashing, DeepRClassifier((64,), random_state=0, **settings))
    model.fit(texts.train_texts, texts.train_y)
    network = model[-1]
    accuracy = model.score(texts.test_texts, texts.test_y)
    active = sum(wiring.active for wiring in wb.wirings(network.model_))
    print(f"{accuracy:.1%} of {len(texts.test_texts)} texts right ({1 / texts.classes:.1%} by chance), {active} connections")

    words = sorted({word for text in texts.train_texts for word in hashing.build_analyzer()(text)})
    columns = hashing.transform(words).indices  # one for each word
    strongest = np.argsort(-network.feature_importances_[columns], kind="stable")[:12]
    print("it listens most to:", ", ".join(words[i] for i in strongest))
    return accuracy


if __name__ == "__main__":
    main()
