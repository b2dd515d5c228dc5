"""Derivatives of kernels: `grad`, `vjp` and `jvp`.

    bwd = tilewright.grad(kernel)
    bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

The arguments are those of the forward launch, after it has run. `derivatives.py` launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, overload

from tilewright.runtime.autotuner import Autotuner
from tilewright.runtime.derivatives import Call, Derivative, required_arrays
from tilewright.runtime.derived_launch import (
    MOST_TAPE_BYTES,
    NEW,
    Arrays,
    How,
    Launch,
    Plan,
    not_written,
    zero,
)
from tilewright.runtime.heuristics import Heuristics
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.tuning.call import Prepared
from tilewright.runtime.tuning.keys import HasParts

_USAGE = {
    "grads": '`grads={"y": dy}`: for a result y, the gradient of a loss with respect to it',
    "into": '`into={"x": dx}`: for an input x, the array for its gradient',
}
_USAGE_OF_TANGENTS = {
    "tangents": '`tangents={"x": tx}`: for an input x, the direction of the derivative',
    "into": '`into={"y": ty}`: for a result y, the array for its derivative',
}
_USAGE_OF_SECOND = {
    "grads": '`grads={"y": dy}`: what the gradient was launched with',
    "directions": '`directions={"x": ddx}`: for an input x, the gradient of another loss with '
    "respect to the gradient of x",
    "into": '`into={"x": gx}`: for an input x, the array for its gradient of the other loss',
}


class Gradient(Derivative, HasParts):
    """The gradients of a kernel's inputs; see `grad`."""

    mode = "reverse"
    further = ("gradient", "cotangent")
    keywords = ("into", "grads")
    more = frozenset(["accumulate"])

    def run(
        self,
        *args: Any,
        grid: Any,
        grads: Arrays | None = None,
        into: Arrays | None = None,
        accumulate: bool = False,
        warmup: bool = False,
        **kwargs: Any,
    ) -> Prepared | None:
        """Launch.

        Args:
            args, kwargs: the arguments of the kernel's own launch, as that left them.
            grid: the grid of the kernel's own launch.
            grads: for each result, the gradient of a loss with respect to it: an array of the same
                shape and strides.
            into: for each input, the array that its gradient is written to, likewise.
            accumulate: add to what is in these arrays. By default they are overwritten.
            warmup: only derive and compile.

        Raises:
            CompilationError: the kernel has no gradient, or none that is known to be right.
            ValueError: an array has another layout than the one that it belongs to, arrays share
                memory, or a name is none of the kernel's.
            TypeError: an argument is missing, or has a type that it cannot have.
        """
        what = f"the gradient of {self.__name__}"
        grads, into = required_arrays(what, _USAGE, {"grads": grads, "into": into})
        how = How(True) if accumulate else NEW
        call = Call(args, kwargs, grid, into, grads, how)
        if warmup:
            self._planned(call)
            return Prepared(tuple(into.values()))
        self._launch(call)
        return None

    def of(self, kernel: JITFunction) -> Gradient:
        """The gradients of another kernel with the same parameters."""
        return Gradient(
            kernel, self.wrt, self.outputs, self.aux, deterministic=self.deterministic,
            tape_bytes=self.tape_bytes, tables=self.tables, atomic=self.atomic,
        )  # fmt: skip

    def tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Which gradient is computed, for `autotune`."""
        into, grads = named.get("into", ()), named.get("grads", ())
        how = bool(named.get("accumulate")), self.deterministic, *self.atomic
        return "gradient", tuple(into), tuple(grads), self.aux, *how

    def parts(
        self, *args: Any, grid: Any, grads: Arrays, into: Arrays, accumulate: bool = False,
        **kwargs: Any,
    ) -> tuple[tuple[str, ...], ...]:  # fmt: skip
        """Launches that together are one with these arguments, each by its inputs: one for the
        gradients that each kernel computes. For `autotune`."""
        if into.keys() & grads.keys():  # updated in place: the result's gradient is overwritten
            return (tuple(into),)
        how = How(True) if accumulate else NEW
        plan, _ = self._planned(Call(args, kwargs, grid, into, grads, how))
        return plan.groups

    def keywords_of_part(
        self, names: tuple[str, ...], kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The keywords of one of these launches, in which it differs from the whole one."""
        return {"into": {name: kwargs["into"][name] for name in names}}

    def planned(
        self, *args: Any, grid: Any, grads: Arrays, into: Arrays, **kwargs: Any
    ) -> tuple[Plan, Launch]:
        """The plan of a launch with these arguments, see `run`, and its arguments; for callers
        that launch the derived kernel themselves."""
        return self._planned(Call(args, kwargs, grid, into, grads, NEW))

    def _zeroed(self, plan: Plan, call: Call) -> tuple[str, ...]:
        missing = not_written(plan, call.of_wrt)
        self._require_updated(missing, call)
        return () if call.how.accumulate else missing

    def _require_updated(self, missing: Sequence[str], call: Call) -> None:
        """Raise ValueError if elements of an array that is updated in place are not updated: their
        gradient is not zero, but that of the result."""
        for name in missing:
            if name in call.of_outputs:
                raise ValueError(
                    f"{name} is updated in place, and the kernel may leave elements unchanged, "
                    "whose gradients are those of the result: pass a view of the updated elements"
                )


class Tangents(Derivative):
    """The kernel with tangents; see `jvp`."""

    mode = "forward"
    further = ("tangent", "tangent")
    keywords = ("tangents", "into")

    def run(
        self,
        *args: Any,
        grid: Any,
        tangents: Arrays | None = None,
        into: Arrays | None = None,
        **kwargs: Any,
    ) -> None:
        """Launch the kernel together with its derivative in a direction.

        Args:
            args, kwargs: the arguments of the kernel. It runs, too.
            grid: the grid of the kernel.
            tangents: for each input the direction: an array of the same shape and strides.
            into: for each result, the array for its derivative. Elements that the kernel does not
                store stay as they are. The arrays of a result that is an input are the same.

        Raises:
            the errors of `Gradient.run`.
        """
        given = {"tangents": tangents, "into": into}
        what = f"the derivative of {self.__name__}"
        tangents, into = required_arrays(what, _USAGE_OF_TANGENTS, given)
        for name in tangents.keys() & into.keys():
            if tangents[name] is not into[name]:
                raise ValueError(
                    f"{name} is an input and a result: tangents[{name!r}] and into[{name!r}] must "
                    "be the same array"
                )
        results = {name: array for name, array in into.items() if name not in tangents}
        in_place = tuple(name for name in into if name in tangents)
        how = How(in_place=in_place) if in_place else NEW
        self._launch(Call(args, kwargs, grid, tangents, results, how))

    def push(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, tangents: Arrays,
        into: Arrays,
    ) -> None:  # fmt: skip
        """Launch the derivative alone: the kernel's own results are not stored."""
        self._launch(Call(args, kwargs, grid, tangents, into, How(results=False)))


class _OfTangents(Gradient):
    """The gradient of the kernel with tangents. Among `grads` are the directions, by input."""

    mode = "second"

    def _require_updated(self, missing: Sequence[str], call: Call) -> None:
        """An input is also in `grads`, by its direction."""


class SecondGradient:
    """The gradient of a gradient, `grad(grad(kernel))`.

        dx = J(x)ᵀ dy,  and a loss with ∂loss/∂dx = v

        ∂loss/∂dy = J(x) v                      forward mode, in the direction v
        ∂loss/∂x  = ∂/∂x ⟨dy, J(x) v⟩           reverse mode of the kernel that computes J(x) v

    The kernel of forward mode accesses tangents where the kernel accesses its arrays. So its
    gradient is derived as that of any kernel, with the same schedules, and no derived kernel is
    differentiated that adds atomically or records a loop.
    """

    def __init__(self, gradient: Gradient) -> None:
        kernel, wrt, outputs, aux = gradient.kernel, gradient.wrt, gradient.outputs, gradient.aux
        self.kernel = kernel
        self.outputs = outputs
        self._reverse = _OfTangents(
            kernel, wrt, None, aux,
            deterministic=gradient.deterministic, tape_bytes=gradient.tape_bytes,
            tables=gradient.tables,
        )  # fmt: skip
        self._forward = Tangents(kernel, wrt, outputs, aux)

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid)

    def run(
        self,
        *args: Any,
        grid: Any,
        grads: Arrays | None = None,
        directions: Arrays | None = None,
        into: Arrays | None = None,
        into_grads: Arrays | None = None,
        **kwargs: Any,
    ) -> None:
        """Launch.

        Args:
            args, kwargs: the arguments of the kernel's own launch, as that left them.
            grid: the grid of the kernel's own launch.
            grads: what the gradient was launched with: by result, the gradient of a loss.
            directions: by input, the gradient of another loss with respect to what the gradient
                wrote to `into`.
            into: by input, the array for the gradient of this other loss.
            into_grads: by result, the array for its gradient with respect to `grads`.

        Raises:
            the errors of `Gradient.run`.
        """
        given = {"grads": grads, "directions": directions, "into": into}
        what = f"the gradient of the gradient of {self.kernel.__name__}"
        grads, directions, into = required_arrays(what, _USAGE_OF_SECOND, given)
        for name in grads:
            if self.outputs is not None and name not in self.outputs:
                raise ValueError(f"grads has {name!r}, which is not one of {list(self.outputs)}")
        for name in grads.keys() & directions.keys():
            raise ValueError(f"{name} is updated in place: its gradient has no gradient")
        if into:
            both = {**grads, **directions}
            self._reverse.run(*args, grid=grid, grads=both, into=into, **kwargs)
        if into_grads:
            for name, array in into_grads.items():
                zero(name, array)
            self._forward.push(args, kwargs, grid, directions, into_grads)

    def explain(self) -> str:
        """For each variant that was launched, the schedule of each array, with the reason."""
        return self._reverse.explain()

    def source(self) -> str:
        """The derived kernels; see `Gradient.source`."""
        return "\n\n".join(filter(None, (self._reverse.source(), self._forward.source())))


@overload
def grad(kernel: Gradient) -> SecondGradient: ...
@overload
def grad(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
    atomic: Sequence[str] = (),
) -> Gradient: ...
@overload
def grad(
    kernel: Any,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
    atomic: Sequence[str] = (),
) -> Any: ...
def grad(
    kernel: Any,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
    *,
    deterministic: bool = False,
    tape_bytes: int = MOST_TAPE_BYTES,
    tables: Sequence[str] = (),
    atomic: Sequence[str] = (),
) -> Any:
    """The gradient kernel of a kernel, derived from it.

        bwd = tilewright.grad(gelu)
        gelu[grid](x, y, n, BLOCK=128)
        bwd[grid](x, y, n, BLOCK=128, grads={"y": dy}, into={"x": dx})

    computes dx = Jᵀ dy, where J is the Jacobian of y with respect to x. Each gradient has the
    layout of its primal array, but may have another float type.

    The gradient of a gradient, `second = grad(bwd)`, is launched with the arguments of `bwd`, and

        second[grid](x, y, n, BLOCK=128, grads={"y": dy}, directions={"x": ddx}, into={"x": gx},
                     into_grads={"y": gdy})

    computes gx and gdy, the gradients of ⟨ddx, dx⟩ with respect to x and dy.

    Compile-time values, such as tile sizes, may differ from those of the forward launch. The
    gradient of an autotuned kernel is autotuned over the same configurations; for others, autotune
    the gradient: ``tilewright.autotune(configs, key)(tilewright.grad(kernel))``.

    Args:
        kernel: the kernel, whose results must not overlap its inputs; or a gradient, from which the
            other arguments are taken.
        wrt: the inputs that may be named in `into`; by default all arrays of floats.
        outputs: the results that may be named in `grads`.
        aux: arrays that the kernel stores, and whose gradients are zero.
        deterministic: raise an error if gradients require atomic additions, in any order.
        tape_bytes: the maximum memory of a launch for tapes of loop-carried values.
        tables: arrays of integers or bools from which the kernel computes addresses, masks and the
            bounds of loops, such as the starts of sequences of several lengths. Each launch reads
            them on the host, which synchronises with their device, and proves the gradient for
            their elements.
        atomic: inputs whose gradients may be added atomically, so that results vary with the order
            of programs, if that avoids computing the same twice: the queries of attention, for
            example. Their gradients need elements of 32 bits.

    Raises:
        TypeError: `kernel` is not a kernel.
        ValueError: it has no such parameter.
    """

    if isinstance(kernel, Gradient):
        if wrt is not None or outputs is not None or aux:
            raise ValueError("the gradient of a gradient takes wrt, outputs and aux from that")
        return SecondGradient(kernel)

    def derived(inner: Any) -> Any:
        match inner:
            case Autotuner():
                return inner.around(derived(inner.fn))
            case Heuristics():
                return Heuristics(derived(inner.fn), inner.arg_names, inner.values)
            case _:
                return Gradient(
                    inner, wrt, outputs, aux,
                    deterministic=deterministic, tape_bytes=tape_bytes, tables=tables,
                    atomic=atomic,
                )  # fmt: skip

    return derived(kernel)


vjp = grad
"""`grad` under the name of its result: a vector-Jacobian product."""


def jvp(
    kernel: JITFunction,
    wrt: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    aux: Sequence[str] = (),
) -> Tangents:
    """The kernel with forward-mode derivatives: a Jacobian-vector product.

        both = tilewright.jvp(gelu)
        both[grid](x, y, n, BLOCK=128, tangents={"x": tx}, into={"y": ty})

    computes y as the kernel does, and ty = J tx. See `grad` for the arguments.
    """
    return Tangents(kernel, wrt, outputs, aux)
