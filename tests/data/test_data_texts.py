"""Labelled texts: Debian's descriptions from index files in miniature, and the docstrings of this Python."""

import lzma

import numpy as np
import pytest

from wirebound_lab import data
from wirebound_lab.data.debian import Debian, read_descriptions, stanzas, without
from wirebound_lab.data.texts import Labelled, split_by_group

PACKAGES = """Package: chess
Source: chess-suite (1.2)
Section: games
Description-md5: aa

Package: chess-data
Source: chess-suite
Section: games
Description-md5: ab

Package: libchess-doc
Source: chess-suite
Section: doc
Description-md5: ac

Package: python3-mailer
Section: contrib/mail
Description-md5: ad

Package: lost
Section: mail
Description-md5: missing
"""
TRANSLATION = """Package: chess
Description-md5: aa
Description-en: plays one of the best Games
 A game for two, by mail or python3-chess.
 .
 Second paragraph.

Package: chess-data
Description-md5: ab
Description-en: data of it

Package: libchess-doc
Description-md5: ac
Description-en: documentation

Package: python3-mailer
Description-md5: ad
Description-en: sends letters
 It sends.
"""


def packed(text: str) -> bytes:
    return lzma.compress(text.encode())


def test_one_text_a_source_and_topic_without_the_names_of_sections() -> None:
    found = list(read_descriptions(packed(PACKAGES), packed(TRANSLATION)))
    assert [(one.label, one.group) for one in found] == [("games", "chess-suite"), ("mail", "python3-mailer")]
    assert found[0].text == "plays one of the best A game for two, by or python3-chess. Second paragraph."
    assert found[1].text == "sends letters It sends."


def test_hidden_words_go_in_every_spelling() -> None:
    assert without("Perl perl5 libfoo-perl properly PERL, c++", {"perl"}) == "properly , c++"


def test_damaged_index_files_are_refused() -> None:
    with pytest.raises(data.DataError, match=r"must be an intact \.xz"):
        list(stanzas(packed(PACKAGES)[:-40], "Packages.xz"))


def test_other_bytes_than_the_published_ones_are_refused(tmp_path) -> None:
    for file in Debian.files:
        (tmp_path / file.name).write_bytes(packed(PACKAGES))
    with pytest.raises(data.DataError, match="size of the content"):
        data.load_texts("debian", path=tmp_path)
    with pytest.raises(data.DataError, match="load_texts"):
        data.load("debian")


def test_groups_stay_together_and_small_classes_go() -> None:
    texts = [Labelled(f"text {i}", "ab"[i % 2], f"group {i // 4}") for i in range(400)]
    texts += [Labelled("text 0", "b", "again"), Labelled("alone", "c", "alone")]
    made = split_by_group("made", texts, 0.25, 10, "here")
    assert made.class_names == ("a", "b")
    assert len(made.train_texts) + len(made.test_texts) == 400  # the same text once, class c dropped
    assert 60 <= len(made.test_texts) <= 140
    assert not len(made.test_texts) % 4  # whole groups
    held = made.split_validation(0.2, seed=1)
    assert sorted(held.train_texts + held.test_texts) == sorted(made.train_texts)
    assert not set(held.train_groups) & {f"group {int(text[5:]) // 4}" for text in held.test_texts}
    assert held.test_y.dtype == np.int64
    with pytest.raises(data.DataError, match="share"):
        made.split_validation(1.5)


def test_docstrings_of_this_python() -> None:
    stdlib = data.load_texts("stdlib")
    assert stdlib.classes >= 6
    assert len(stdlib.train_texts) == len(stdlib.train_y) > len(stdlib.test_texts) > 300
    assert not set(stdlib.train_texts) & set(stdlib.test_texts)
    assert "stdlib" in data.names()
