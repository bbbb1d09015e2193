"""The two numbers of a Langevin step: how far ℓ1 pulls, and how far noise pushes."""

from __future__ import annotations

import math

from wirebound import schedule
from wirebound.schedule import Scalar


def pull_and_push(l1: Scalar, temperature: Scalar, step: int, lr: float) -> tuple[float, float]:
    """ηα and √(2ηT) of this step."""
    schedule.check_lr(lr)
    eta_t = lr * schedule.at("temperature", temperature, step, lr)
    return lr * schedule.at("l1", l1, step, lr), math.sqrt(2 * eta_t)
