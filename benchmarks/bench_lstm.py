"""LSTM and GRU layers: torch's dense ones against ours, and the memory of a training step of both."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "lstm", *sys.argv[1:]]))
