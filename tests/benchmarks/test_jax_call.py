"""The cost of a kernel's call in a jitted JAX function."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from benchmarks import jax_call


def test_a_call_of_a_kernel_costs_at_most_three_microseconds_more_than_xla_s_code() -> None:
    ours, theirs = jax_call.measure(16, 50)
    assert ours - theirs < 3
