"""Framewise phone classification by a bidirectional LSTM inside a budget of connections (the paper's TIMIT experiment).

    python -m wirebound.experiments.phonemes --method deep-r --connectivity 0.1 --epochs 40 --seed 0 --out runs/x
    python -m wirebound.experiments.phonemes --method dense --weight-decay 1e-4 --out runs/dense

Claim (TIMIT): a dense network with ℓ2 has 28.3 % frame error; DEEP R is slightly better near 10 % connectivity, and
better than fixed connectivity at every level. Defaults are the paper's settings. The figure that it reports is the
test error at the epoch with the least validation error (``test_error_at_best_validation`` of summary.json).

Differs from the paper in that one budget spans both directions and the output, whose matrices start at the paper's
multiples of the connectivity, and in that the validation part is made of whole speakers.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirebound.checkpoint import CheckpointError
from wirebound.data import DataError
from wirebound.experiments.phoneme_config import PhonemeConfig
from wirebound.experiments.phoneme_run import run
from wirebound.train.config import ConfigError
from wirebound.train.engine import DivergedError
from wirebound.train.interrupt import Interrupted
from wirebound.train.record import RunFolderError

_PARSERS: dict[str, Any] = {"int": int, "float": float, "str": str}


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m wirebound.experiments.phonemes", description=(__doc__ or "").split("\n")[0])
    result.add_argument("--out", type=Path, required=True, help="run folder to write")
    result.add_argument("--overwrite", action="store_true", help="replace the run folder if it exists")
    result.add_argument("--resume", action="store_true", help="go on from the last epoch of an unfinished run")
    for setting in dataclasses.fields(PhonemeConfig):
        kind = str(setting.type).replace(" | None", "")
        text = setting.metadata["help"] + (f" (default: {setting.default})" if setting.default is not None else "")
        common = {"dest": setting.name, "help": text.replace("%", "%%"), "default": setting.default}
        flag = "--" + setting.name.replace("_", "-")
        if kind == "bool":
            result.add_argument(flag, action="store_true", **common)
        else:
            result.add_argument(flag, type=_PARSERS[kind], choices=setting.metadata.get("choices"), **common)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(parser().parse_args(arguments))
    out, overwrite, resume = options.pop("out"), options.pop("overwrite"), options.pop("resume")
    try:
        summary = run(PhonemeConfig(**options), out, overwrite=overwrite, resume=resume)
    except Interrupted as error:
        print(f"phonemes: {error}", file=sys.stderr)
        return error.code
    except (ConfigError, RunFolderError, CheckpointError, DataError, ValueError) as error:
        print(f"phonemes: {error}", file=sys.stderr)
        return 2
    except (DivergedError, OSError) as error:
        print(f"phonemes: {error}", file=sys.stderr)
        return 1
    print(
        f"test error {100 * summary['test_error_at_best_validation']:.2f} % at the least validation error (epoch"
        f" {summary['best_epoch']}), {100 * summary['test_error']:.2f} % after the last; {summary['max_active']:,} of"
        f" {summary['possible']:,} connections; run folder: {out}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
