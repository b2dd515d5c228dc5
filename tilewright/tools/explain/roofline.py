"""How fast a launch could be at best: as its bytes or its operations allow, whichever is slower."""

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
    """One thing that takes time.

    Attributes:
        what: ``memory``, ``matrix products`` or ``arithmetic``.
        element: type of the elements; "" of memory.
        amount: bytes or operations of the launch.
        rate: bytes or operations a second of the device.
        seconds: that it takes at least.
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
        limits: each thing that takes time, the slowest first.
        seconds: least time of the launch, if all that it does is hidden behind the slowest.
        bound: what is slowest.
        intensity: operations for each byte of memory, at best.
        ridge: the intensity from which on `peak` is reached; below, memory is the limit.
        peak: operations a second where memory is no limit.
        gbps: gigabytes a second of memory.
    """

    device: str
    limits: list[Limit]
    seconds: float
    bound: str
    intensity: float
    ridge: float
    peak: float
    gbps: float


def roofline_of(cost: Cost | None, device: GPUTarget, wanted: str = "") -> Roofline | None:
    """The limits on the device that is wanted, or on a usual one of the target's architecture; None
    where these or the cost are not known.

    Raises:
        UsageError: no such device is known for the target.
    """
    peaks = _peaks_of(device, wanted) if wanted or cost is not None else None
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


def _peaks_of(device: GPUTarget, wanted: str) -> Peaks | None:
    known: list[Peaks] = []
    if driver.has_driver(device.backend):
        known += driver.driver_of(device.backend).known_peaks(device.arch)
    if not wanted:
        return known[0] if known else None
    found = next((p for p in known if wanted.lower() in p.device.lower()), None)
    if found is None:
        names = ", ".join(p.device for p in known) or "none"
        raise UsageError(f"no device {wanted!r} is known for this target; known: {names}")
    return found


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
    """Tera-operations a second; where a type has no arithmetic of its own, those of fp32."""
    for name in (element, "fp32"):
        try:
            return peaks.tflops(name, matrix)
        except ValueError:
            continue
    return 0.0
