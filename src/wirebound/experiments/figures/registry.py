"""All figures, by the name that ``wirebound reproduce`` takes: one line each."""

from __future__ import annotations

from wirebound.experiments.figures.fig1a import FIG1A
from wirebound.experiments.figures.fig1b import FIG1B
from wirebound.experiments.figures.fig2 import FIG2
from wirebound.experiments.figures.fig3 import FIG3
from wirebound.experiments.figures.fig4 import FIG4
from wirebound.experiments.figures.fig5 import FIG5
from wirebound.experiments.figures.fig6 import FIG6
from wirebound.experiments.figures.figure import Figure
from wirebound.experiments.figures.theory_law import THEORY

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (FIG1A, FIG1B, FIG2, FIG3, FIG4, FIG5, FIG6, THEORY)}
