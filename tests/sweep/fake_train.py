"""Stands in for ``wirebound train`` where the tests are about the sweep: settings in, run folder out, no torch.

The accuracy is a plain function of the settings; some settings ask for trouble.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path


def work(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(arguments)
    settings = json.loads(options.config.read_text())
    assert settings["threads"] == 1
    with (options.out.parent / "calls.txt").open("a") as calls:
        calls.write(options.out.name + "\n")
    if settings["gain"] == 99:
        os.kill(os.getpid(), 9)
    if settings["lr"] > 100:
        print("some progress\nwirebound: the loss (=nan) must be a finite number", file=sys.stderr)
        return 1
    if settings["epochs"] == 1000:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            return 130
    accuracy = 0.9 - 0.01 * (math.log10(settings["lr"]) + 1) ** 2 + 0.01 * settings["seed"]
    if settings["method"] != "dense":
        accuracy -= 0.001 / settings["connectivity"]
    evaluated_on = "validation" if settings["validation"] else "test"
    partial = options.out.with_name(options.out.name + ".partial")
    partial.mkdir()
    (partial / "config.json").write_text(json.dumps(settings))
    summary = {"test_accuracy": accuracy, "seconds": 0.1, "evaluated_on": evaluated_on}
    (partial / "summary.json").write_text(json.dumps(summary))
    partial.rename(options.out)
    return 0
