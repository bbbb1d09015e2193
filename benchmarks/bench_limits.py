"""The machine's limits, and the share of them that the kernels reach."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "limits", *sys.argv[1:]]))
