"""``python -m wirebound`` is the command ``wirebound``."""

import sys

from wirebound.cli import main

sys.exit(main())
