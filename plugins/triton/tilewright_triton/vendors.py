"""The parts of the text that depend on the back end of Triton: its libdevice, and its assembly."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Vendor:
    """The names of one back end.

    Attributes:
        name: as Triton's entry point names the back end.
        assembly: the language of inline assembly, as `FrontendOptions.assembly`.
        lanes: of a warp, by the beginning of an architecture's name; "" for all others.
        functions: of the back end's library, by the name of an op and the type of its operands;
            ops without one use the dialect `math`.
        clock: assembly that writes nanoseconds to the first of its registers; "" if there is none.
        without: features of the conformance suite that the back end lacks.
        options: defaults that differ from the back end's, as tile IR has subnormal numbers.
    """

    name: str
    assembly: str = ""
    lanes: dict[str, int] = field(default_factory=lambda: {"": 32})
    functions: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    clock: str = ""
    without: tuple[str, ...] = ()
    options: dict[str, object] = field(default_factory=dict[str, object])

    def lanes_of(self, arch: str) -> int:
        """The number of lanes of a warp of an architecture."""
        longest = max((k for k in self.lanes if arch.startswith(k)), key=len)
        return self.lanes[longest]


_LIBRARY = {
    "math.expm1": "expm1",
    "math.log10": "log10",
    "math.log1p": "log1p",
    "math.tan": "tan",
    "math.tanh": "tanh",
    "math.trunc": "trunc",
    "math.rint": "rint",
    "math.erf": "erf",
    "arith.rem": "fmod",
}
"""Functions that Triton's lowering of `math` lacks, or approximates."""


def _nvidia() -> dict[tuple[str, str], str]:
    single = {(op, "fp32"): f"__nv_{name}f" for op, name in _LIBRARY.items()}
    return single | {(op, "fp64"): f"__nv_{name}" for op, name in _LIBRARY.items()}


def _amd() -> dict[tuple[str, str], str]:
    single = {(op, "fp32"): f"__ocml_{name}_f32" for op, name in _LIBRARY.items()}
    return single | {(op, "fp64"): f"__ocml_{name}_f64" for op, name in _LIBRARY.items()}


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            "cuda",
            "PTX",
            functions=_nvidia(),
            clock="mov.u64 $0, %globaltimer;",
            without=("tl.exp",),  # an error of more than 4 units in the last place
            options={"enable_reflect_ftz": False},
        ),
        Vendor(
            "hip",
            lanes={"": 32, "gfx9": 64},
            functions=_amd(),
            without=("use of atomic_xchg",),  # of a tile: 3.6 and 3.7 call an unknown intrinsic
            options={"allow_flush_denorm": False},
        ),
    )
}


def vendor_of(name: str) -> Vendor:
    """The names of a back end; for an unknown one, only those that TTIR defines."""
    return VENDORS.get(name) or Vendor(name)
