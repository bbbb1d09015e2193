"""Rewiring with Adam's state, as a share of forward + backward."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "rewire", *sys.argv[1:]]))
