"""Trained networks for other tools: SciPy, ONNX, NIR, PyNN and C, one file a format.

Each takes a chain of layers (``to_onnx`` any model) and writes the K connections that the model has.
"""

from wirebound.export.formats import FORMATS, Format
from wirebound.export.layers import Conv, ExportError, Layer, Network, Pool
from wirebound.export.network import read_network
from wirebound.export.to_c import CHeader, to_c
from wirebound.export.to_nir import to_nir
from wirebound.export.to_onnx import to_onnx
from wirebound.export.to_pynn import Projection, projections, read_projections, to_pynn
from wirebound.export.to_scipy import to_scipy

__all__ = [
    "FORMATS",
    "CHeader",
    "Conv",
    "ExportError",
    "Format",
    "Layer",
    "Network",
    "Pool",
    "Projection",
    "projections",
    "read_network",
    "read_projections",
    "to_c",
    "to_nir",
    "to_onnx",
    "to_pynn",
    "to_scipy",
]
