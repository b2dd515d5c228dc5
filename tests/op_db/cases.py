"""Cases of `op_db`, torch's own list of its operators with sample inputs, under torch.compile.

A case is an operator and an element type, by name: ``softmax:bfloat16``, ``std:unbiased:float32``.
Each of its samples is a function of tensors; compiled, it must give what eager execution gives,
and so must its gradients.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

TYPES = ("float32", "bfloat16", "int64")

UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
                 "new_empty_strided")  # fmt: skip
"""Operators whose results have no defined contents."""

NEEDS_CUDA = ("jiterator",)
"""The beginnings of names of operators that exist on NVIDIA GPUs only."""

UNSTABLE = ("msort",)
"""Operators that may put equal elements in any order, so that gradients of these are exchanged."""

LARGEST = 1 << 16
"""The most elements of a sample: larger ones only take longer."""

CANDIDATES = 40
"""The first samples of an operator, among which is chosen."""

SCALE = {"float16": 8.0, "bfloat16": 8.0}
"""Of low precision, how much more than eager execution's own error is accepted."""


@dataclass
class Outcome:
    """The outcome of a case, of all of its samples.

    Attributes:
        kind: "same"; "different", a result that differs from eager execution; "failed", an
            exception; "skipped", eager execution itself does not run.
        detail: the first line of what is wrong, if anything is.
        samples: how many samples were compared.
        kernels: how many kernels Inductor generated for them.
    """

    kind: str = "same"
    detail: str = ""
    samples: int = 0
    kernels: int = 0


@dataclass
class Sample:
    """A function of tensors.

    Attributes:
        call: the operator, with everything but tensors bound.
        tensors: its inputs. Those of a floating-point type have gradients if the operator does.
    """

    call: Callable[..., Any]
    tensors: list[Tensor] = field(default_factory=list[Tensor])


@cache
def _operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    named = {_name(op): op for op in op_db}
    return {name: op for name, op in named.items() if not name.startswith(NEEDS_CUDA)}


def _name(op: Any) -> str:
    return f"{op.name}:{op.variant_test_name}" if op.variant_test_name else op.name


def case_names(types: Iterable[str] = TYPES) -> list[str]:
    """All cases of element types, in the order of `op_db`."""
    return [
        f"{name}:{type_}"
        for name, op in _operators().items()
        for type_ in types
        if getattr(torch, type_) in op.dtypes
    ]


def _samples(case: str, count: int, seed: int) -> Iterator[Sample]:
    """`count` samples of a case, chosen by a seed."""
    name, _, type_ = case.rpartition(":")
    op, dtype = _operators()[name], getattr(torch, type_)
    gradients = op.supports_autograd and dtype.is_floating_point and name not in UNSTABLE
    gradients = gradients and dtype in op.backward_dtypes
    torch.manual_seed(0)
    found = op.sample_inputs("cpu", dtype, requires_grad=gradients)
    small = [s for s in islice(found, CANDIDATES) if _size(s) <= LARGEST]
    given = [s for s in small if _size(s)] or small  # rather those with elements to compare
    for chosen in random.Random(f"{case} {seed}").sample(given, min(count, len(given))):
        inputs = (chosen.input, tuple(chosen.args), dict(chosen.kwargs))
        leaves, tree = pytree.tree_flatten(inputs)
        yield _sample(op, leaves, tree)


def _size(sample: Any) -> int:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


def _sample(op: Any, leaves: list[Any], tree: Any) -> Sample:
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = [leaves[i] for i in places]
    rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def call(*tensors: Tensor) -> Any:
        filled = list(rest)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, tree)
        return op(first, *args, **kwargs)

    return Sample(call, tensors)


# --- running


def check(case: str, backend: str, samples: int, seed: int) -> Outcome:
    """Compile samples of a case for the CPU, and compare results with eager execution's.

    Args:
        backend: "triton", tiles compiled by tilewright, or "cpp", torch's C++ back end.
        samples: how many.
        seed: which.
    """
    outcome = Outcome("skipped")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in _samples(case, samples, seed):
            torch.manual_seed(0)
            try:
                expected = _results(sample.call, sample.tensors)
            except Exception as error:
                outcome.detail = outcome.detail or _line(error)
                continue
            outcome.samples += 1
            outcome.kind = "same"
            detail, kernels = _check_sample(case, sample, expected, backend)
            outcome.kernels += kernels
            if detail:
                outcome.kind, _, outcome.detail = detail.partition(": ")
                return outcome
    return outcome


def _check_sample(case: str, sample: Sample, expected: list[Any], backend: str) -> tuple[str, int]:
    """How a sample fails, "" if it does not, and the number of kernels."""
    from torch._inductor import metrics

    torch._dynamo.reset()
    before = metrics.generated_kernel_count
    compiled = torch.compile(sample.call, options={"cpu_backend": backend}, dynamic=False)
    torch.manual_seed(0)
    try:
        found = _results(compiled, sample.tensors)
    except Exception as error:
        return f"failed: {_line(error)}", 0
    kernels = metrics.generated_kernel_count - before
    difference = _difference(found, expected, _contents_matter(case, sample, expected))
    if difference and _no_worse(found, expected, sample):
        difference = ""
    return f"different: {difference}" if difference else "", kernels


def _line(error: BaseException) -> str:
    """The type of an exception and the first line that is not torch's description of the place."""
    lines = [line.strip() for line in str(error).splitlines()] or [""]
    kept = [line for line in lines if line and not line.startswith(("backend=", "While"))]
    return f"{type(error).__name__}: {' '.join(kept[:2])[:300]}"


def _results(call: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Any]:
    """All results of a function, and the gradients of its inputs by a fixed weighting of them."""
    copies = [_copy(tensor) for tensor in tensors]
    found = pytree.tree_leaves(call(*copies))
    outputs = [x for x in found if isinstance(x, Tensor) and x.grad_fn is not None]
    inputs = [x for x in copies if x.requires_grad]
    kept = [_detached(x) for x in found]
    if outputs and inputs:
        weights = [_weights(x) for x in outputs]
        gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        kept += [_detached(x) for x in gradients]
    return kept


def _copy(tensor: Tensor) -> Tensor:
    """A copy with the same strides, so that operators in place do not change the sample."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _detached(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x


def _weights(x: Tensor) -> Tensor:
    """Distinct weights, the same for equal shapes."""
    count = torch.arange(x.numel(), dtype=torch.float32)
    return torch.cos(count * 0.7 + 0.3).reshape(x.shape).to(x.dtype)


# --- comparing


def _contents_matter(case: str, sample: Sample, expected: list[Any]) -> bool:
    """Whether results are determined by the inputs: neither uninitialised nor random."""
    if case.partition(":")[0].rpartition(".")[2] in UNINITIALISED:
        return False
    torch.manual_seed(1)
    return not _difference(_results(sample.call, sample.tensors), expected, True)


def _difference(found: list[Any], expected: list[Any], contents: bool) -> str:
    """The first difference of two lists of results; "" if there is none."""
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"result {i}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
            if contents and (text := _unequal(a, b)):
                return f"result {i}: {text}"
        elif contents and type(a) is type(b) and a != b:
            return f"result {i}: {a} instead of {b}"
        elif type(a) is not type(b):
            return f"result {i}: {type(a).__name__} instead of {type(b).__name__}"
    return ""


def _unequal(found: Tensor, expected: Tensor) -> str:
    try:
        torch.testing.assert_close(found, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(line for line in str(error).splitlines()[2:] if line)[:200]
    except (RuntimeError, NotImplementedError):  # quantised and other types without a difference
        return ""
    return ""


def _no_worse(found: list[Any], expected: list[Any], sample: Sample) -> bool:
    """Whether results are as near to those in double precision as eager execution's are.

    Compiled code of low precision rounds once where eager execution rounds after each operator.
    """
    exact = [x.double() if x.is_floating_point() else x for x in sample.tensors]
    exact = [
        x.detach().requires_grad_(y.requires_grad)
        for x, y in zip(exact, sample.tensors, strict=True)
    ]
    try:
        reference = _results(sample.call, exact)
    except Exception:
        return False
    if not len(reference) == len(found) == len(expected):
        return False
    return all(map(_as_near, found, expected, reference))


def _as_near(found: Any, expected: Any, reference: Any) -> bool:
    if not isinstance(found, Tensor) or not isinstance(reference, Tensor):
        return found == expected
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if not found.is_floating_point():
        return torch.equal(found, expected)
    finite = torch.isfinite(reference)
    if found.shape != reference.shape or not torch.equal(finite, torch.isfinite(found)):
        return False
    type_ = str(found.dtype).removeprefix("torch.")
    exact = reference[finite].double()
    ours, eager = ((x[finite].double() - exact).abs() for x in (found, expected))
    largest = exact.abs().max() if exact.numel() else torch.tensor(0.0)
    rounding = torch.finfo(found.dtype).eps * largest
    limit = SCALE.get(type_, 2.0) * eager.max() + 4 * rounding if exact.numel() else rounding
    return bool((ours <= limit).all())
