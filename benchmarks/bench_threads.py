"""Two threads against one."""

import sys

from wirebound_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "--only", "threads", *sys.argv[1:]]))
