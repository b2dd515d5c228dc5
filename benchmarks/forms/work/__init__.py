"""The launches of each file of kernels, and all forms by name."""

from benchmarks.forms.form import Form as Form
from benchmarks.forms.form import union
from benchmarks.forms.work import (
    algebra,
    attention,
    chunks,
    fused,
    generated,
    heads,
    images,
    layers,
    numerics,
    persistent,
    products,
    quantised,
    reductions,
    scans,
    sequences,
    serving,
    serving_attention,
    streams,
    tables,
    tokens,
    training,
    weights,
)

_GROUPS = (
    products,
    weights,
    persistent,
    attention,
    serving_attention,
    heads,
    sequences,
    chunks,
    fused,
    numerics,
    algebra,
    layers,
    quantised,
    serving,
    tokens,
    scans,
    reductions,
    training,
    streams,
    generated,
    images,
    tables,
)
ALL = union(*(group.FORMS for group in _GROUPS))

FIRST = "transpose 8192, blocks of 64"
"""The form that a process compiles before it takes compile times: the first imports modules and
builds tables."""


def chosen(only: str) -> list[Form]:
    """The forms whose names have one of some parts, separated by commas; all for ""."""
    parts = [part for part in only.split(",") if part]
    return [form for name, form in ALL.items() if not parts or any(part in name for part in parts)]
