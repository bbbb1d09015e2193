"""Which words the wiring of a classifier of texts chose: for each class the strongest, as a picture.

A column is a hash. Its words are found by hashing all words and pairs of words of the training texts again; where several
fall into one column, the most frequent stands for it; words that occur fewer than ``FEWEST`` times are left out. The strength
of a word for a class is the sum over its paths, from its column to the class, of the product of the weights, less the mean
over all classes, which a softmax does not notice. A word is shown where its strength is largest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction import FeatureHasher

from wirebound.sklearn import DeepRClassifier
from wirebound_lab.data import TextDataset
from wirebound_lab.report.markup import picture, tag, text

WORDS, ACROSS = 8, 5  # of each class, classes side by side
FEWEST = 20
_WIDTH, _LINE, _LEFT = 190, 17, 14
_STYLE = ".bar { fill: #9cc3e8; } .head { font-weight: 600; } @media (prefers-color-scheme: dark) { .bar { fill: #2b567f; } }"


def words_of_columns(texts: Sequence[str], hashed: Any) -> dict[int, str]:
    """The most frequent word or pair of words in each column, where it is frequent enough."""
    analyse = hashed.build_analyzer()
    counts = Counter(token for one in texts for token in analyse(one))
    tokens = [token for token, count in counts.most_common() if count >= FEWEST]
    hasher = FeatureHasher(hashed.n_features, input_type="string", alternate_sign=False)
    found: dict[int, str] = {}
    for token, column in zip(tokens, hasher.transform([token] for token in tokens).indices.tolist(), strict=True):
        found.setdefault(column, token)  # the most frequent comes first
    return found


def strengths(model: DeepRClassifier, columns: np.ndarray) -> np.ndarray:
    """[classes, columns]: the sum over all paths of the product of the weights, less the mean over classes."""
    layers = model.to_network().weighted
    product = layers[0].matrix().tocsc()[:, columns].toarray()
    for layer in layers[1:]:
        product = layer.matrix() @ product
    return product - product.mean(axis=0)


def strongest(model: DeepRClassifier, words: Mapping[int, str], count: int = WORDS) -> list[list[tuple[str, float]]]:
    """For each class the words that speak most for it, and how much."""
    columns = np.array(sorted(words))
    values = strengths(model, columns)
    owner, most = values.argmax(axis=0), values.max(axis=0)
    order = np.argsort(-most, kind="stable")
    found: list[list[tuple[str, float]]] = [[] for _ in range(len(values))]
    for i in order[most[order] > 0]:
        if len(found[owner[i]]) < count:
            found[owner[i]].append((words[int(columns[i])], float(most[i])))
    return found


def draw(title: str, names: Sequence[str], chosen: Sequence[Sequence[tuple[str, float]]]) -> str:
    """One field for each class: its words, and a bar for how much each says."""
    parts, height = [text(_LEFT, 26, title, "title", "start")], (WORDS + 3) * _LINE
    for number, (name, words) in enumerate(zip(names, chosen, strict=True)):
        left, top = _LEFT + number % ACROSS * _WIDTH, 58 + number // ACROSS * height
        parts.append(text(left, top, name, "head", "start"))
        most = max((strength for _, strength in words), default=1.0)
        for line, (word, strength) in enumerate(words, 1):
            y = top + line * _LINE + 4
            width = round((_WIDTH - 24) * strength / most, 1)
            parts.append(tag("rect", x=left, y=y - 12, width=width, height=_LINE - 3, class_="bar", rx=2))
            parts.append(text(left + 4, y, word if len(word) <= 26 else word[:25] + "…", "tick", "start"))
    rows = -(-len(names) // ACROSS)
    return picture(title, parts, ACROSS * _WIDTH + 2 * _LEFT, 58 + rows * height, _STYLE)


def draw_words(texts: TextDataset, hashed: Any, title: str, settings: dict[str, Any]) -> str:
    """Train on the training texts, and draw what the network listens to."""
    settings = {**settings, "hidden_layer_sizes": tuple(settings["hidden_layer_sizes"])}
    model = DeepRClassifier(random_state=0, **settings).fit(hashed.transform(texts.train_texts), texts.train_y)
    accuracy = model.score(hashed.transform(texts.test_texts), texts.test_y)
    words = words_of_columns(texts.train_texts, hashed)
    told = f"{title}, {hashed.n_features:,} columns: the words that speak most for each class ({100 * accuracy:.1f} % right)"
    return draw(told, texts.class_names, strongest(model, words))
