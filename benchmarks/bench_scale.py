"""A million by a million: memory and time; and cost at fixed K."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "scale", *sys.argv[1:]]))
