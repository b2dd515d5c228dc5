"""The machine to compile for: this one, or one given by name.

For this machine LLVM is not loaded, so that kernels in the disk cache are found without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.amx import amx_permitted
from tilewright.base.host import host
from tilewright.base.lazy_import import lazy_import
from tilewright.targets.cpu.machine import CACHE_BYTES, Machine

if TYPE_CHECKING:
    from tilewright.targets.cpu import processor
else:
    processor = lazy_import("tilewright.targets.cpu.processor")


def host_machine(cpu: str | None = None, features: str | None = None) -> Machine:
    """This machine, or the one with LLVM's processor name `cpu`, with features added and removed.

    Raises:
        ValueError: the processor or a feature is unknown to LLVM.
    """
    here = host()
    sve_bytes = here.sve_bytes
    if cpu in (None, here.cpu):
        named = here.features
        if not amx_permitted():
            named = frozenset(f for f in named if not f.startswith("amx-"))
    else:
        named = processor.features_of(cpu, here.triple)
        sve_bytes = processor.sve_bytes_of(cpu, here.triple)
    found, without = named, frozenset[str]()
    if features is not None:
        # LLVM lists the features that a processor lacks on x86 only.
        known = here.features | here.lacks if here.lacks else ()
        found, without = processor.changed(named, features, known)
    cache = None if cpu else _last_cache_bytes()
    cache = cache or CACHE_BYTES
    return Machine(here.triple, cpu or here.cpu, found, cache, without, sve_bytes)


def _last_cache_bytes() -> int | None:
    """The size of this machine's last-level cache; None if the system does not report it."""
    found: dict[int, int] = {}
    for index in range(10):  # there are about four
        try:
            level, size = (_cache_fact(index, fact) for fact in ("level", "size"))
            found[int(level)] = int(size.removesuffix("K")) << 10
        except FileNotFoundError:
            break
        except (OSError, ValueError):
            continue
    return found[max(found)] if found else None


def _cache_fact(index: int, fact: str) -> str:
    with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{fact}", encoding="ascii") as file:
        return file.read().strip()
