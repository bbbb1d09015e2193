"""speechocean762: 2,498 + 2,492 read English utterances, 250 speakers, MFCC and phone of every 10 ms, 38 classes.

Licence: CC BY 4.0; features and phone times (by forced alignment) made from the corpus.
Citation: J. Zhang, Z. Zhang, Y. Wang, Z. Yan, Q. Song, Y. Huang, K. Li, D. Povey, Y. Wang: speechocean762: an
open-source non-native English speech corpus for pronunciation assessment, Interspeech 2021.
"""

from __future__ import annotations

from pathlib import Path

from .content import File, read_known
from .kind import DataKind
from .phones_file import parse_phones
from .sequences import SequenceDataset

_UNPACKED_LIMIT = 64_000_000


class Speech(DataKind[SequenceDataset]):
    name = "speech"
    subfolders = ("speech",)
    files = (
        File("so762_phones.npz", 28_123_693, "f8fea46f61ba0149726c4a6379224a07a2aa8f23fd2e5317d3fabb80ff1df020"),
    )
    advice = (
        "It is one file, speech/so762_phones.npz, that is passed on by hand and has no public address;"
        " 'spoken' is a corpus of the same form that can be made on any machine."
    )

    def read(self, folder: Path, found: str) -> SequenceDataset:
        path = folder / self.files[0].name
        return parse_phones(read_known(path, self.files[0]), self.name, str(path), found, _UNPACKED_LIMIT)
