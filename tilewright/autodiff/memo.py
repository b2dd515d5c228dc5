"""Memoised recursion over values that share operands: x = f(x, x), 60 times, has 2^60 paths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tilewright.ir.core import Value

Given = ParamSpec("Given")
Result = TypeVar("Result")


def once_for_each_value(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A recursive function that is computed once for the same values and numbers, from a call from
    outside until that returns. The recursion must pass on other arguments as they are, and the IR
    must not change meanwhile."""
    here = threading.local()

    @wraps(function)
    def remembered(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        known: dict[object, Result] | None = getattr(here, "known", None)
        if known is None:
            here.known = {}
            try:
                return remembered(*args, **kwargs)
            finally:
                here.known = None
        key = tuple(arg for arg in args if isinstance(arg, Value | int))
        if key not in known:
            known[key] = function(*args, **kwargs)
        return known[key]

    return remembered
