"""Lazily imported emitters of rare ops: each module is imported by the first kernel with its op.
Importing those of products takes as long as generating the code of a vector addition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import
from tilewright.ops import atomic, dot, histogram, map, reduce, sort
from tilewright.targets.cpu.steps import emits

if TYPE_CHECKING:
    from tilewright.targets.cpu import atomics, scan
    from tilewright.targets.cpu import histogram as histograms
    from tilewright.targets.cpu import map as maps
    from tilewright.targets.cpu import sort as sorts
    from tilewright.targets.cpu.dot import step as products
else:
    atomics = lazy_import("tilewright.targets.cpu.atomics")
    scan = lazy_import("tilewright.targets.cpu.scan")
    histograms = lazy_import("tilewright.targets.cpu.histogram")
    maps = lazy_import("tilewright.targets.cpu.map")
    sorts = lazy_import("tilewright.targets.cpu.sort")
    products = lazy_import("tilewright.targets.cpu.dot.step")

emits(atomic.AtomicRMW)(lambda *step: atomics.emit_rmw(*step))
emits(atomic.AtomicCAS)(lambda *step: atomics.emit_cas(*step))
emits(atomic.AtomicLoad)(lambda *step: atomics.emit_load(*step))
emits(atomic.AtomicStore)(lambda *step: atomics.emit_store(*step))
emits(atomic.AtomicPoll)(lambda *step: atomics.emit_poll(*step))
emits(dot.Dot)(lambda *step: products.emit_dot(*step))
emits(histogram.Histogram)(lambda *step: histograms.emit_histogram(*step))
emits(map.Map)(lambda *step: maps.emit_map(*step))
emits(reduce.Scan)(lambda *step: scan.emit_scan(*step))
emits(sort.Sort)(lambda *step: sorts.emit_sort(*step))
