"""Training by the C library for microcontrollers: on this computer, or on an emulated chip, one example a step."""

from wirebound_lab.device.engine import DeviceEngine
from wirebound_lab.device.machine import MACHINES, DeviceError, Machine, Report, build, connect
from wirebound_lab.device.run import device_network, train_on_device

__all__ = [
    "MACHINES", "DeviceEngine", "DeviceError", "Machine", "Report", "build", "connect", "device_network", "train_on_device",
]  # fmt: skip
