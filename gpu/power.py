"""Read a GPU's energy counter through NVIDIA's management library (NVML), which is part of the driver."""

import ctypes
from typing import Any

from ..errors import BackendError
from .device import load_cupy

__all__ = ["EnergyCounter"]

_LIBRARY = "libnvidia-ml.so.1"
_TEMPERATURE = 0  #: NVML's index of the temperature sensor on the GPU chip


class EnergyCounter:
    """Energy counter and temperature of a GPU.

    Raise a `BackendError` if the driver has no management library, or the GPU has no energy counter.
    """

    def __init__(self) -> None:
        runtime = load_cupy().cuda.runtime
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise BackendError(f"energy measurements need {_LIBRARY}, a part of the driver ({error})") from None
        self._device = ctypes.c_void_p()
        self._call("Init_v2")
        place = runtime.deviceGetPCIBusId(runtime.getDevice())
        self._call("DeviceGetHandleByPciBusId_v2", str(place).encode(), ctypes.byref(self._device))
        self.joules()

    def joules(self) -> float:
        """Return the energy in J that the GPU has used since its driver was loaded, updated every few milliseconds."""
        energy = ctypes.c_ulonglong()
        self._call("DeviceGetTotalEnergyConsumption", self._device, ctypes.byref(energy))
        return energy.value / 1000

    def temperature(self) -> int:
        """Return the temperature of the GPU in degrees Celsius."""
        temperature = ctypes.c_uint()
        self._call("DeviceGetTemperature", self._device, _TEMPERATURE, ctypes.byref(temperature))
        return temperature.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvml{name}")(*arguments)
        if status:
            raise BackendError(f"the energy of the GPU cannot be read: nvml{name} returned status {status}")
