"""Whole training steps: dense, ours by modules, ours fused."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "step", *sys.argv[1:]]))
