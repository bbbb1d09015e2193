"""Sparse networks as samples of a posterior: kept along a run, averaged for prediction, measured against one network."""

from wirebound.posterior.measures import Quality, calibration_error, fit_power, quality, sharpen
from wirebound.posterior.samples import SampleCollector, Samples

__all__ = ["Quality", "SampleCollector", "Samples", "calibration_error", "fit_power", "quality", "sharpen"]
