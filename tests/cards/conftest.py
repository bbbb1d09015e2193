"""The tests here share modules; pytest's importlib mode puts no folder on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "nn"))
