"""One convolution's work: dense, masked dense and ours; and peak memory of a wide network, sparse and dense."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "conv", *sys.argv[1:]]))
