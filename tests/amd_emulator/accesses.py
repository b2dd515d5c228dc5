"""What memory instructions do, from their names: loads, stores and atomics of all formats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_BYTES = {
    "ubyte": (1, "u"), "sbyte": (1, "i"), "ushort": (2, "u"), "sshort": (2, "i"), "byte": (1, "u"),
    "short": (2, "u"), "dword": (4, "u"), "dwordx2": (8, "u"), "dwordx3": (12, "u"),
    "dwordx4": (16, "u"), "dwordx8": (32, "u"), "dwordx16": (64, "u"), "u8": (1, "u"),
    "i8": (1, "i"), "u16": (2, "u"), "i16": (2, "i"), "b8": (1, "u"), "b16": (2, "u"),
    "b32": (4, "u"), "b64": (8, "u"), "b96": (12, "u"), "b128": (16, "u"),
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """A load, store or atomic.

    Attributes:
        action: load, store or an atomic operation such as add.
        size: bytes that each lane accesses at one address.
        kind: of atomics, the type: u32, i64, f32, v2f16, …; of others u or i, for the extension.
        half: of 16-bit accesses that leave the other half of the register alone: 0 or 1.
        addresses: 2 for read2 and write2 of the LDS.
        stride: bytes of a unit of the offsets of those.
        returns: whether an atomic may return the value before.
    """

    action: str
    size: int
    kind: str = "u"
    half: int | None = None
    addresses: int = 1
    stride: int = 1
    returns: bool = False

    @property
    def words(self) -> int:
        """Registers of the data at one address."""
        return -(-self.size // 4)


@cache
def access_of(base: str) -> Access | None:
    """The access of an instruction by its name on CDNA; None if it is something else."""
    family, _, rest = base.partition("_")
    if family == "s" and rest.startswith(("load_", "buffer_load_")):
        return _plain("load", rest.rpartition("_")[2])
    if family == "ds":
        return _lds(rest)
    if family not in ("global", "flat", "scratch", "buffer"):
        return None
    action, _, what = rest.partition("_")
    if action in ("load", "store"):
        return _plain(action, what)
    return _atomic(what) if action == "atomic" else None


def _plain(action: str, what: str) -> Access | None:
    half = None
    if what.endswith("_d16_hi"):
        what, half = what.removesuffix("_d16_hi"), 1
    elif what.endswith("_d16"):
        what, half = what.removesuffix("_d16"), 0
    if what not in _BYTES:
        return None
    size, kind = _BYTES[what]
    return Access(action, size, kind, half)


def _lds(rest: str) -> Access | None:
    for verb, action in (
        ("read", "load"),
        ("write", "store"),
        ("load", "load"),
        ("store", "store"),
    ):
        if rest.startswith((f"{verb}2_", f"{verb}2st64_")):
            size, _ = _BYTES[rest.rpartition("_")[2]]
            stride = size * (64 if "st64" in rest else 1)
            return Access(action, size, addresses=2, stride=stride)
        if rest.startswith(f"{verb}_"):
            return _plain(action, rest.removeprefix(f"{verb}_"))
    parts = rest.split("_")
    if parts[0] in ("swizzle", "permute", "bpermute"):
        return None
    returns = "rtn" in parts
    parts = [p for p in parts if p != "rtn"]
    action, kind = "_".join(parts[:-1]), parts[-1]
    if action == "pk_add":
        action, kind = "add", f"v2{kind}"
    size = 4 if kind.startswith("v2") else int(kind[1:]) // 8
    return Access(action, size, kind.replace("b", "u") if kind[0] == "b" else kind, returns=returns)


def _atomic(what: str) -> Access | None:
    wide = what.endswith("_x2")
    what = what.removesuffix("_x2")
    size, bits = (8, "64") if wide else (4, "32")
    if what.startswith("pk_add_"):
        return Access("add", 4, f"v2{what.removeprefix('pk_add_')}", returns=True)
    verb, _, kind = what.partition("_")
    if kind:
        verb = verb.removesuffix("_num")
        kind = kind.removeprefix("num_")
        return Access(verb, int(kind[1:]) // 8, kind.replace("b", "u"), returns=True)
    if verb in ("smin", "smax"):
        return Access(verb[1:], size, f"i{bits}", returns=True)
    if verb in ("umin", "umax"):
        return Access(verb[1:], size, f"u{bits}", returns=True)
    return Access(verb, size, f"u{bits}", returns=True)


def data_words(access: Access) -> int:
    """Registers of the data that the instruction writes to memory or returns."""
    return access.words * (2 if access.action == "cmpswap" else access.addresses)
