"""Program indices, structured control flow, and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.core import Region, Value
from tilewright.ir.define import Op, attr, operand, region, require, variadic
from tilewright.ir.traits import LOCAL, PURE, TERMINATOR, WRITES
from tilewright.ir.types import (
    I1,
    I32,
    Type,
    derivative_type,
    element_of,
    is_float,
    is_int,
    shape_of,
)
from tilewright.ops.numeric import Array


class _OfGridAxis(Op):
    """Base class of ops on an axis of the grid."""

    axis: int = attr()

    def result_type(self) -> Type:
        return I32

    def verify(self) -> None:
        require(
            self.axis in (0, 1, 2),
            self,
            "axis-range",
            "a grid has axes 0, 1 and 2, not {a}",
            a=self.axis,
        )


class ProgramId(_OfGridAxis, name="program.id", traits=PURE):
    """The index of the program along an axis of the grid.

    %0 = program.id axis=0 : () -> i32
    """

    no_evaluate = "it depends on the program; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        return np.array(state.program_id[self.axis], np.int32)


class NumPrograms(_OfGridAxis, name="program.count", traits=PURE):
    """The extent of the grid along an axis.

    %0 = program.count axis=0 : () -> i32
    """

    no_evaluate = "it depends on the launch; see execute"

    def execute(self, state: Any, *args: Any) -> Array:
        return np.array(state.grid[self.axis], np.int32)


class Barrier(Op, name="program.barrier", traits=WRITES | LOCAL):
    """Barrier: orders all memory accesses of the program before it before those after it.

    program.barrier : () -> ()
    """

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self) -> tuple[()]:
        return ()


class Yield(Op, name="control.yield", traits=TERMINATOR):
    """Terminates a region and returns its values.

    control.yield [%0, %1] : (fp32, 4xi32) -> ()
    """

    values: list[Value] = variadic()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    no_evaluate = "the parent op uses its operands"


class Return(Op, name="control.return", traits=TERMINATOR):
    """Terminates a function and returns its results.

    control.return [%0] : fp32 -> ()
    """

    values: list[Value] = variadic()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    no_evaluate = "the caller uses its operands"


class Condition(Op, name="control.condition", traits=TERMINATOR):
    """Terminates the first region of a `while` with the condition and the values passed to the
    body, or returned by the loop.

    control.condition %0, [%1] : (i1, fp32) -> ()
    """

    condition: Value = operand()
    values: list[Value] = variadic()

    def result_types(self) -> tuple[Type, ...]:
        return ()

    def verify(self) -> None:
        require(
            self.condition.type == I1,
            self,
            "condition",
            "the condition is {t}, not i1",
            t=self.condition.type,
        )

    no_evaluate = "the loop uses its operands"


def index_after(start: int, stop: int, step: int) -> int:
    """The value of the induction variable after the last iteration of a loop with `start < stop`,
    in exact arithmetic: ``index_after(0, 8, 3) == 9``."""
    return start - (start - stop) // step * step


class For(Op, name="control.for", traits=PURE):
    """A counted loop: `body` runs with i = start, start + step, … while i < stop.

    The body takes the induction variable and the loop-carried values, and yields the loop-carried
    values of the next iteration; the results are the final ones. `step` must be positive if
    `start < stop`; one below 1 counts as 1. If the trip count is 0, the results are `inits`.
    `num_stages`, `unroll` and `hints` are hints.

        %4 = control.for %0, %1, %2, [%3], num_stages=0, unroll=0, hints=()
          : (i32, i32, i32, fp32) -> fp32 {
          (%i: i32, %x: fp32)
          %y = arith.add %x, %x : (fp32, fp32) -> fp32
          control.yield [%y] : fp32 -> ()
        }
    """

    start: Value = operand()
    stop: Value = operand()
    step: Value = operand()
    inits: list[Value] = variadic()
    num_stages: int = attr(0)
    unroll: int = attr(0)
    hints: tuple[str, ...] = attr(())
    body: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.inits)

    def verify(self) -> None:
        t = self.start.type
        require(
            is_int(t) and t == self.stop.type == self.step.type and t == element_of(t),
            self,
            "bounds",
            "start, stop and step must be integers of one type",
        )
        expected = [t, *self.result_types()]
        require(
            [a.type for a in self.body.args] == expected,
            self,
            "carried",
            "the types of the body's arguments do not match the loop-carried values",
        )
        require(
            [v.type for v in self.body.terminator.operands] == expected[1:],
            self,
            "carried",
            "the types of the yielded values do not match the loop-carried values",
        )

    def rebuilt(self, inits: Sequence[Value], body: Region, start: Value | None = None) -> For:
        """A detached loop with these bounds and hints, that carries other values."""
        return For(
            self.start if start is None else start, self.stop, self.step, list(inits),
            self.num_stages, self.unroll, self.hints, body,
        )  # fmt: skip

    no_evaluate = "it runs a nested region; see execute"
    no_index_maps = "its results are computed by its regions"

    def execute(self, state: Any, *args: Any) -> tuple[Any, ...]:
        start, stop, step, *carried = args
        dtype = start.dtype
        for i in range(int(start), int(stop), max(1, int(step))):
            carried = state.run(self.body, [np.array(i, dtype), *carried])
        return tuple(carried)


class While(Op, name="control.while", traits=PURE):
    """A loop: runs `before`, and while its condition is true, `body` on the values that `before`
    passes on; `before` then runs on the values that the body yields.

    %1 = control.while [%0] : i32 -> i32 {
      (%a: i32)
      %c = arith.cmp %a, %a, predicate="ne" : (i32, i32) -> i1
      control.condition %c, [%a] : (i1, i32) -> ()
    } {
      (%b: i32)
      control.yield [%b] : i32 -> ()
    }
    """

    inits: list[Value] = variadic()
    before: Region = region()
    body: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.before.terminator.operands[1:])

    def verify(self) -> None:
        end = self.before.terminator
        require(isinstance(end, Condition), self, "condition", "needs a control.condition")
        require(
            [a.type for a in self.before.args] == [v.type for v in self.inits],
            self,
            "carried",
            "the types of the condition's arguments do not match the loop-carried values",
        )
        passed = list(self.result_types())
        require(
            [a.type for a in self.body.args] == passed,
            self,
            "carried",
            "the types of the body's arguments do not match the values passed by the condition",
        )
        require(
            [v.type for v in self.body.terminator.operands] == [v.type for v in self.inits],
            self,
            "carried",
            "the types of the yielded values do not match the loop-carried values",
        )

    no_evaluate = "it runs nested regions; see execute"
    no_index_maps = "its results are computed by its regions"

    def execute(self, state: Any, *args: Any) -> tuple[Any, ...]:
        carried = list(args)
        while True:
            go_on, *passed = state.run(self.before, carried)
            if not go_on:
                return tuple(passed)
            carried = state.run(self.body, passed)


class If(Op, name="control.if", traits=PURE):
    """A conditional: runs one of two regions; the results are the values that it yields.

    %1 = control.if %0 : i1 -> fp32 {
      %a = arith.constant value=1.0, type=fp32 : () -> fp32
      control.yield [%a] : fp32 -> ()
    } {
      %b = arith.constant value=2.0, type=fp32 : () -> fp32
      control.yield [%b] : fp32 -> ()
    }
    """

    condition: Value = operand()
    then: Region = region()
    otherwise: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.then.terminator.operands)

    def verify(self) -> None:
        require(
            self.condition.type == I1,
            self,
            "condition",
            "the condition is {t}, not i1",
            t=self.condition.type,
        )
        require(
            [v.type for v in self.otherwise.terminator.operands] == list(self.result_types()),
            self,
            "branches",
            "the two branches yield different types",
        )

    no_evaluate = "it runs a nested region; see execute"
    no_index_maps = "its results are computed by its regions"

    def execute(self, state: Any, condition: Any) -> tuple[Any, ...]:
        return tuple(state.run(self.then if condition else self.otherwise, []))


class WithRule(Op, name="control.with_rule", traits=PURE):
    """`values`, which `function` computes of `args`. Where the kernel is differentiated, the region
    computes the gradients of those of `args` whose indices are `of`.

    Its arguments are those of the op, `args` and then `values`, and the gradients of the values.

        %2 = control.with_rule [%0], [%1], function="square", of=(0,) : (fp32, fp32) -> fp32 {
          (%a: fp32, %b: fp32, %y: fp32)
          %c = arith.mul %a, %y : (fp32, fp32) -> fp32
          %d = arith.add %c, %c : (fp32, fp32) -> fp32
          control.yield [%d] : fp32 -> ()
        }
    """

    values: list[Value] = variadic()
    args: list[Value] = variadic()
    function: str = attr()
    of: tuple[int, ...] = attr()
    rule: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.values)

    def verify(self) -> None:
        operands = [v.type for v in (*self.args, *self.values)]
        floats = all(is_float(v.type) for v in self.values)
        require(floats, self, "element-type", "the values are not floats")
        require(
            [a.type for a in self.rule.args]
            == [*operands, *(derivative_type(v.type) for v in self.values)],
            self,
            "rule",
            "the types of the region's arguments do not match the operands",
        )
        yielded = [shape_of(v.type) for v in self.rule.terminator.operands]
        require(
            yielded == [shape_of(self.args[i].type) for i in self.of],
            self,
            "rule",
            "the shapes of the gradients do not match the operands",
        )
        require(self.pure, self, "rule", "the region has effects")

    no_evaluate = "it has several operands of which it returns some; see execute"
    no_index_maps = "derivation removes it"

    def execute(self, state: Any, *operands: Any) -> tuple[Any, ...]:
        return operands[: len(self.values)]


class Call(Op, name="control.call", traits=WRITES):
    """Calls a function of the module. `types` are the types of its results.

    %1 = control.call [%0], callee="f", types=(fp32,) : fp32 -> fp32
    """

    args: list[Value] = variadic()
    callee: str = attr()
    types: tuple[Type, ...] = attr(())

    def result_types(self) -> tuple[Type, ...]:
        return self.types

    no_evaluate = "it runs another function; see execute"
    no_index_maps = "its results are computed by the callee"

    def execute(self, state: Any, *args: Any) -> tuple[Any, ...]:
        return tuple(state.call(self.callee, list(args)))
