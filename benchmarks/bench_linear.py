"""One linear layer's work: dense, masked dense, torch's CSR and ours; and the density sweep."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "linear", *sys.argv[1:]]))
