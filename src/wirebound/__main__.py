"""``python -m wirebound`` is the command ``wirebound``."""

import sys

from wirebound_lab.cli import main

sys.exit(main())
