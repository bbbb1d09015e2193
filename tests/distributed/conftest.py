"""The work of ranks lives in a module that other processes can import by name, and all import the same things once."""

import sys
from pathlib import Path

from wirebound_lab.run import processes

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "paper")]
processes.PRELOAD += ["sklearn.datasets"]
