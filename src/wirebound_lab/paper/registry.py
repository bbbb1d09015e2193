"""All figures, by the name that ``wirebound reproduce`` takes: one line each."""

from __future__ import annotations

from wirebound_lab.paper.fig1a import FIG1A
from wirebound_lab.paper.fig1b import FIG1B
from wirebound_lab.paper.fig2 import FIG2
from wirebound_lab.paper.fig3 import FIG3
from wirebound_lab.paper.fig4 import FIG4
from wirebound_lab.paper.fig5 import FIG5
from wirebound_lab.paper.fig6 import FIG6
from wirebound_lab.paper.figure import Figure
from wirebound_lab.paper.theory import THEORY

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (FIG1A, FIG1B, FIG2, FIG3, FIG4, FIG5, FIG6, THEORY)}
