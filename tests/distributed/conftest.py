"""The work of ranks lives in a module that other processes can import by name, and all import the same things once."""

import sys
from pathlib import Path

from wirebound_lab.run import launch

sys.path.append(str(Path(__file__).resolve().parent))
launch.PRELOAD += ["sklearn.datasets"]
