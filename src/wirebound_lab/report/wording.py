"""How numbers and names read on the page."""

import math
import re

NARROW = "\u202f"  # narrow no-break space, between a number and its unit
MISSING = "–"
MINUS = "\u2212"

# Of data, and of methods for folders of runs that do not hold the title of their method.
NAMES = {
    "deepr": "DEEP R", "softdeepr": "soft-DEEP R", "l1shrinkage": "ℓ1-shrinkage", "constantrate": "Constant rate",
    "pruning": "Magnitude pruning", "magnitudepruning": "Magnitude pruning", "fixed": "Fixed connectivity",
    "set": "SET", "rigl": "RigL", "gse": "GSE", "dense": "Dense", "mnist": "MNIST", "fashionmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10", "timit": "TIMIT",
}  # fmt: skip


def shown_name(name: str) -> str:
    """As the paper writes it; a name not known here stays as it is."""
    return NAMES.get(plain_name(name), name)


def plain_name(name: str) -> str:
    """A name without its spelling: deep_r, Deep-R and DEEP R are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def count(value: float | None) -> str:
    """2662 -> 2,662"""
    return MISSING if value is None else f"{value:,.0f}".replace("-", MINUS)


def percent(fraction: float | None, digits: int = 2) -> str:
    """0.9653 -> 96.53 %"""
    return MISSING if fraction is None else f"{100 * fraction:.{digits}f}{NARROW}%"


def share(fraction: float | None) -> str:
    """A connectivity, to three digits that count: 0.013 -> 1.30 %, 0.00012 -> 0.012 %, 1 -> 100 %"""
    if fraction is None:
        return MISSING
    value = 100 * fraction
    shown = 0 if value == 0 or value >= 99.95 else min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{shown}f}{NARROW}%"


def points(difference: float | None) -> str:
    """A difference of two fractions in percentage points, with its sign."""
    return MISSING if difference is None else f"{100 * difference:+.2f} points".replace("-", MINUS)


def unbroken(text: str) -> str:
    """A text in which no line ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) (?=%)", NARROW, text)


def joined(*parts: str | None) -> str:
    return " · ".join(part for part in parts if part)


def signed(value: float | None) -> str:
    """+53, −53, 0"""
    return f"{value:+,.0f}".replace("-", MINUS) if value else MISSING if value is None else "0"


def size(octets: float | None) -> str:
    """Bytes, in units of 1000."""
    if octets is None:
        return MISSING
    power = next((power for power in range(3) if abs(octets) < 1000 ** (power + 1)), 3)
    value, unit = octets / 1000**power, ("B", "kB", "MB", "GB")[power]
    return f"{value:,.0f}{NARROW}{unit}" if unit == "B" or value >= 100 else f"{value:.1f}{NARROW}{unit}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    if seconds < 1:
        return f"{1000 * seconds:.3g}{NARROW}ms"
    if seconds < 90:
        return f"{seconds:.1f}{NARROW}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes}{NARROW}min {rest:02d}{NARROW}s"
    return f"{minutes // 60}{NARROW}h {minutes % 60:02d}{NARROW}min"


def per_step(seconds: float | None, steps: int | None) -> str | None:
    if not seconds or not steps:
        return None
    value = seconds / steps
    return f"{1e6 * value:.3g}{NARROW}µs a step" if value < 1e-3 else f"{1e3 * value:.3g}{NARROW}ms a step"


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def tick(value: float, unit: str = "") -> str:
    """The shortest text that says the value: 60000 -> 60k, 0.0001 -> 1e-4."""
    if abs(value) >= 1e4:
        unit_size, letter = (1e9, "G") if abs(value) >= 1e9 else (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        text = f"{value / unit_size:.4g}{letter}"
    elif 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        text = f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value or 0:.4g}"  # no sign before a zero
    return f"{text}{unit}".replace("-", MINUS)
