"""Real data sets, found or fetched, and checked to the last byte before use.

dataset = wirebound_lab.data.load("mnist")
x = dataset.inputs("train", flatten=True)      # float32 in [0, 1], [60000, 784]

speech = wirebound_lab.data.load_sequences("speech").split_validation(0.05, seed=0)
for x, lengths, y in speech.batches(32, speech.order("train", seed=0, epoch=1)): ...
"""

from .catalogue import Status, fetch, load, load_sequences, load_texts, names, status, verify
from .content import Attempt, DataError, DataUnavailable
from .dataset import Dataset, split_validation
from .sequences import Batch, SequenceDataset
from .texts import TextDataset

__all__ = [
    "Attempt", "Batch", "DataError", "DataUnavailable", "Dataset", "SequenceDataset", "Status",
    "TextDataset", "fetch", "load", "load_sequences", "load_texts", "names", "split_validation", "status", "verify",
]  # fmt: skip
