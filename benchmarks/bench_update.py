"""The update of a step against torch's Adam, and the normals it draws."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "update", *sys.argv[1:]]))
