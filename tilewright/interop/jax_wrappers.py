"""Autotuned kernels and kernels with heuristics in JAX programs, and grids.

A grid may be a function, and users write a new one for each call: `grid=lambda meta: …`. As a part
of a key it would make each call a new program. So grids are evaluated when the call is traced: once
for a plain kernel, and for each configuration of an autotuned one (`Grids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tilewright.interop.jax_static import Static
from tilewright.interop.kernel_wrappers import computed_names, inner_kernel, wrappers_of
from tilewright.runtime.autotuner import Autotuner
from tilewright.runtime.grid import Grid, extents_of
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction, MockTensor

Named = dict[str, Any]


# -- grids ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grids:
    """The grid of a kernel with wrappers, a function of the arguments by name.

    Attributes:
        names: the parameters that wrappers set.
        table: their values, with the extents.
    """

    names: tuple[str, ...]
    table: tuple[tuple[Static, Grid], ...]

    def __call__(self, named: Named) -> Grid:
        return dict(self.table)[_values(named, self.names)]


def _values(named: Named, names: Iterable[str]) -> Static:
    return Static(tuple(named.get(name) for name in names))


def grids_of(kernel: Any, grid: Any, named: Named, mocks: Named) -> Grid | Grids:
    """A grid in hashable form.

    Args:
        named: the arguments by name.
        mocks: the same, with arrays that have no memory; heuristics receive these.

    Raises:
        the errors of `grid_of`.
    """
    inner = inner_kernel(kernel, "tilewright.jax.call")
    if kernel is inner:
        return grid_of(inner, grid, named)
    names = tuple(dict.fromkeys(n for n in computed_names(kernel) if n in inner.arg_names))
    table: dict[Static, Grid] = {}
    for settings in _settings(kernel, mocks):
        known = {name: value for name, value in settings.items() if name in names}
        table[_values(known, names)] = grid_of(inner, grid, named | known)
    return Grids(names, tuple(table.items()))


def _settings(kernel: Any, named: Named) -> Iterator[Named]:
    """The parameters and options that the wrappers of a kernel may set, for each configuration."""
    if isinstance(kernel, Heuristics):
        yield from _settings_inside(kernel, named, _heuristic_values(kernel, named))
    elif isinstance(kernel, Autotuner):
        for config in kernel.configs:
            yield from _settings_inside(kernel, named, config.all_kwargs())
    else:
        yield {}


def _settings_inside(kernel: Any, named: Named, own: Named) -> Iterator[Named]:
    for rest in _settings(kernel.fn, named | own):
        yield own | rest


def _heuristic_values(kernel: Heuristics, named: Named) -> Named:
    result: Named = {}
    for name, compute in kernel.values.items():
        result[name] = compute({**named, **result})
    return result


def grid_of(inner: JITFunction, grid: Any, named: Named) -> Grid:
    """The extents of a grid, given the arguments by name.

    Raises:
        TypeError: it is not a tuple of ints, or depends on the contents of an array.
    """
    try:
        extents = grid(named) if callable(grid) else grid
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerIntegerConversionError) as error:
        raise _traced_grid(inner) from error
    if any(isinstance(extent, Tracer) for extent in jax.tree.leaves(extents)):
        raise _traced_grid(inner)
    return extents_of(extents)


def _traced_grid(inner: JITFunction) -> TypeError:
    return TypeError(
        f"the grid of {inner.__name__} depends on the value of a traced array. A grid must be "
        "known when the program is traced: compute it from shapes and from Python numbers, or name "
        "an argument of the function under jax.jit in static_argnames"
    )


# -- the choice of a configuration ----------------------------------------------------------------


def chosen_settings(kernel: Any, mocks: Named, options: Named, grid: Any, device: str) -> Named:
    """The settings of a kernel's wrappers for a call; configurations are measured on zeros.

    Args:
        mocks: the arguments by name; arrays have no memory.
        options: compile options by name.
        device: such as "cpu".

    Raises:
        ValueError: the configuration has a hook, which a program of JAX cannot call.
    """
    result: Named = {}
    for wrapper in wrappers_of(kernel):
        known = mocks | options | result
        if isinstance(wrapper, Heuristics):
            result |= _heuristic_values(wrapper, known)
        else:
            result |= _tuned(wrapper, known, grid, device)
    return result


def _tuned(tuner: Autotuner, known: Named, grid: Any, device: str) -> Named:
    """The keywords of the best configuration."""
    if len(tuner.configs) > 1:
        options = {
            name: _zeros(value, device) if isinstance(value, MockTensor) else value
            for name, value in known.items()
        }
        tuner.run(**options, grid=grid, warmup=True)
        config = tuner.known_config(options)
    else:
        config = tuner.configs[0]
    assert config is not None
    if config.pre_hook is not None:
        raise ValueError(
            f"a configuration of {tuner.__name__} has a pre_hook, which would have to run before "
            "each launch: a program of JAX cannot call it. Prepare the arrays in JAX, and pass "
            "them by input_output_aliases"
        )
    return config.all_kwargs()


def _zeros(mock: MockTensor, device: str) -> Any:
    if device == "cpu":
        return np.zeros(mock.shape, mock.dtype)
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.zeros(mock.shape, mock.dtype), jax.devices(device)[0])
