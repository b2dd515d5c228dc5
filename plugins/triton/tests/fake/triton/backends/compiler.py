"""The interface of back ends."""

from dataclasses import dataclass
from enum import Enum


class Language(Enum):
    TRITON = 0


@dataclass(frozen=True)
class GPUTarget:
    backend: str
    arch: int | str
    warp_size: int
