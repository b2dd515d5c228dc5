"""The roofline bound of a launch: the time for its bytes or its operations, whichever is longer.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model (CACM 2009).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.runtime import driver
from tilewright.runtime.peaks import Peaks
from tilewright.targets.protocol import GPUTarget
from tilewright.tools.explain.cost import Cost
from tilewright.tools.load import UsageError

MEMORY, PRODUCTS, OPERATIONS = "memory", "matrix products", "arithmetic"


@dataclass(frozen=True)
class Limit:
    """The bound due to one resource.

    Attributes:
        what: ``memory``, ``matrix products`` or ``arithmetic``.
        element: the element type; "" for memory.
        amount: bytes or operations of the launch.
        rate: peak bytes or operations per second of the device.
        seconds: amount / rate.
    """

    what: str
    element: str
    amount: float
    rate: float

    @property
    def seconds(self) -> float:
        return self.amount / self.rate


@dataclass(frozen=True)
class Roofline:
    """The limits of a launch on a device.

    Attributes:
        device: its name.
        limits: the bound of each resource, the longest first.
        seconds: lower bound of the time of the launch, which assumes that memory traffic and
            arithmetic overlap perfectly.
        bound: the limiting resource.
        intensity: operations per byte of minimum traffic.
        ridge: the intensity at which the launch changes from memory-bound to compute-bound.
        peak: operations per second when compute-bound, for the launch's mix of operations.
        gbps: peak bandwidth of memory in GB/s.
    """

    device: str
    limits: list[Limit]
    seconds: float
    bound: str
    intensity: float
    ridge: float
    peak: float
    gbps: float


def roofline_of(cost: Cost | None, device: GPUTarget, model: str = "") -> Roofline | None:
    """The roofline on a device model, by default the first one known for the target's architecture;
    None if the device's peak rates or the cost are unknown.

    Raises:
        UsageError: no such model is known for the target.
    """
    peaks = _peaks_of(device, model) if model or cost is not None else None
    if cost is None or peaks is None:
        return None
    limits = sorted(_limits(cost, peaks), key=lambda limit: -limit.seconds)
    work = [limit for limit in limits if limit.what != MEMORY]
    memory = next(limit for limit in limits if limit.what == MEMORY)
    amount = sum(limit.amount for limit in work)
    busy = sum(limit.seconds for limit in work)
    peak = amount / busy if busy else 0.0
    return Roofline(
        peaks.device,
        limits,
        max(memory.seconds, busy),
        MEMORY if memory.seconds >= busy else work[0].what,
        amount / cost.least if cost.least else 0.0,
        peak / memory.rate,
        peak,
        peaks.gbps,
    )


def _peaks_of(device: GPUTarget, model: str) -> Peaks | None:
    known: list[Peaks] = []
    if driver.has_driver(device.backend):
        known += driver.driver_of(device.backend).known_peaks(device.arch)
    if not model:
        return known[0] if known else None
    result = next((p for p in known if model.lower() in p.device.lower()), None)
    if result is None:
        names = ", ".join(p.device for p in known) or "none"
        raise UsageError(f"unknown device {model!r} for this target; known: {names}")
    return result


def _limits(cost: Cost, peaks: Peaks) -> Iterator[Limit]:
    yield Limit(MEMORY, "", cost.least, peaks.gbps * 1e9)
    for what, amounts, matrix in (
        (PRODUCTS, cost.products, True),
        (OPERATIONS, cost.elements, False),
    ):
        for element, amount in amounts.items():
            rate = _rate(peaks, element, matrix)
            if rate:
                yield Limit(what, element, amount, rate * 1e12)


def _rate(peaks: Peaks, element: str, matrix: bool) -> float:
    """Peak Tera-operations per second; the rate of fp32 for types without arithmetic."""
    for name in (element, "fp32"):
        try:
            return peaks.tflops(name, matrix)
        except ValueError:
            continue
    return 0.0
