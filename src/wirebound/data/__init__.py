"""Real data sets, found or fetched, and checked to the last byte before use.

dataset = wirebound.data.load("mnist")
x = dataset.inputs("train", flatten=True)      # float32 in [0, 1], [60000, 784]
"""

from .catalogue import Status, fetch, load, names, status, verify
from .dataset import Dataset, split_validation
from .errors import Attempt, DataError, DataUnavailable

__all__ = [
    "Attempt",
    "DataError",
    "DataUnavailable",
    "Dataset",
    "Status",
    "fetch",
    "load",
    "names",
    "split_validation",
    "status",
    "verify",
]
