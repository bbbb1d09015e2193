"""The work of ranks lives in a module that other processes can import by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
