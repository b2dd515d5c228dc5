"""The interpreter: programs, arguments, regions, calls, errors. Memory has `test_memory.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module
from tilewright.ir.interpret import Buffer, State, evaluate_function, interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Mul


def module_of(text: str) -> Module:
    module = parse_module(text, "kernel.ir")
    verify_module(module)
    return module


def value_of(text: str, args: Sequence[Any] = ()) -> Any:
    """The only result of a function given as text."""
    module = module_of(text)
    (result,) = evaluate_function(module.entry, args, module=module)
    return result


# Writes a running number, taken from a counter in memory, to where the program's place in an
# order with x fastest is: so the result shows in which order the programs ran.
ORDER = """
func @order(%counter: ptr<i32>, %out: ptr<i32>) {
  %x = program.id axis=0 : () -> i32
  %y = program.id axis=1 : () -> i32
  %z = program.id axis=2 : () -> i32
  %nx = program.count axis=0 : () -> i32
  %ny = program.count axis=1 : () -> i32
  %a = arith.mul %z, %ny : (i32, i32) -> i32
  %b = arith.add %a, %y : (i32, i32) -> i32
  %c = arith.mul %b, %nx : (i32, i32) -> i32
  %d = arith.add %c, %x : (i32, i32) -> i32
  %one = arith.constant value=1, type=i32 : () -> i32
  %n = atomic.rmw %counter, %one, _, kind="add" : (ptr<i32>, i32) -> i32
  %p = mem.addptr %out, %d : (ptr<i32>, i32) -> ptr<i32>
  mem.store %p, %n, _ : (ptr<i32>, i32) -> ()
  control.return [] : () -> ()
}
"""


def order_of_programs(grid: Any, seed: int | None = None) -> list[int]:
    counter, out = np.zeros(1, np.int32), np.full(24, -1, np.int32)
    interpret(module_of(ORDER), grid, [counter, out], seed=seed)
    return out[: counter[0]].tolist()


@pytest.mark.parametrize("grid", [(2, 3, 4), (24,), 24, (6, 4)])
def test_programs_run_with_x_fastest(grid: Any) -> None:
    assert order_of_programs(grid) == list(range(24))


def test_seed_shuffles_the_programs() -> None:
    shuffled = order_of_programs((2, 3, 4), seed=1)
    assert sorted(shuffled) == list(range(24))
    assert shuffled != list(range(24))
    assert shuffled == order_of_programs((2, 3, 4), seed=1)
    assert shuffled != order_of_programs((2, 3, 4), seed=2)


@pytest.mark.parametrize("grid", [0, (3, 0), (0, 0, 0)])
def test_empty_grid_runs_nothing(grid: Any) -> None:
    assert order_of_programs(grid) == []


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 1), (-1,)])
def test_wrong_grid_is_rejected(grid: Any) -> None:
    with pytest.raises(TypeError, match="a grid has one to three extents"):
        order_of_programs(grid)


COPY = """
func @copy(%x: ptr<const fp32>, %y: ptr<fp32>, %stride: i32) {
  %i = program.id axis=0 : () -> i32
  %o = arith.mul %i, %stride : (i32, i32) -> i32
  %p = mem.addptr %x, %o : (ptr<const fp32>, i32) -> ptr<const fp32>
  %v = mem.load %p, _, _ : ptr<const fp32> -> fp32
  %q = mem.addptr %y, %i : (ptr<fp32>, i32) -> ptr<fp32>
  mem.store %q, %v, _ : (ptr<fp32>, fp32) -> ()
  control.return [] : () -> ()
}
"""


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_pointer_is_the_first_element_whatever_the_strides(step: int) -> None:
    x = np.arange(12, dtype=np.float32)[::step]
    y = np.zeros(len(x), np.float32)
    interpret(module_of(COPY), len(x), [x, y, step])
    np.testing.assert_array_equal(x, y)


def test_arguments_may_be_buffers_and_numpy_scalars() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    interpret(module_of(COPY), 4, [Buffer.of(x), Buffer.of(y), np.int64(1)])
    np.testing.assert_array_equal(x, y)


def test_numbers_are_rounded_to_the_type_of_their_argument() -> None:
    text = "func @f(%a: fp16) -> fp16 {\n  control.return [%a] : fp16 -> ()\n}"
    assert [float(value_of(text, [v])) for v in (1e9, 1 + 2**-11, 3)] == [np.inf, 1.0, 3.0]


X = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([X, X], "@copy takes 3 arguments, not 2"),
        ([X, 1.5, 1], "argument 1 is ptr<fp32>: takes an array, a Buffer or an address, not 1.5"),
        (
            [X.astype(np.float64), X, 1],
            "elements have 4 bytes; those of the array, float64, have 8",
        ),
        ([X, X, 2**31], "argument 2 is i32, which does not hold 2147483648"),
        ([X, X, 1.0], "argument 2 is i32, which does not hold 1.0"),
        ([X, X, "1"], "argument 2 is i32, not '1'"),
        ([X, X, np.zeros((), np.int64)], "argument 2 is i32, not int64 of shape ()"),
        ([X, X, np.zeros(3, np.int32)], "argument 2 is i32, not int32 of shape (3,)"),
    ],
)
def test_wrong_arguments_are_rejected(args: list[Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        interpret(module_of(COPY), 1, args)
    assert message in str(caught.value)


def test_tiles_may_be_arguments_of_a_function_of_values() -> None:
    text = """
    func @f(%a: 2x3xi32) -> 3x2xi32 {
      %b = tile.permute %a, order=(1, 0,) : 2x3xi32 -> 3x2xi32
      control.return [%b] : 3x2xi32 -> ()
    }"""
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(value_of(text, [a]), a.T)
    with pytest.raises(TypeError, match="argument 0 is 2x3xi32, not 7"):
        value_of(text, [7])


def sum_loop(type: str) -> str:
    return f"""
    func @f(%start: {type}, %stop: {type}, %step: {type}) -> {type} {{
      %z = arith.constant value=0, type={type} : () -> {type}
      %s = control.for %start, %stop, %step, [%z] : ({type}, {type}, {type}, {type}) -> {type} {{
        (%i: {type}, %x: {type})
        %y = arith.add %x, %i : ({type}, {type}) -> {type}
        control.yield [%y] : {type} -> ()
      }}
      control.return [%s] : {type} -> ()
    }}"""


@pytest.mark.parametrize("bounds", [(0, 10, 1), (3, 20, 7), (5, 5, 1), (9, 2, 1), (-4, 3, 2)])
def test_for_counts_like_range(bounds: tuple[int, int, int]) -> None:
    assert value_of(sum_loop("i32"), bounds) == sum(range(*bounds))


def test_for_reaches_the_end_of_its_type() -> None:
    top = 2**64 - 1
    assert value_of(sum_loop("u64"), (top - 2, top, 1)) == (2 * top - 3) % 2**64


def test_while_and_if_nest_and_see_outer_values() -> None:
    # Collatz steps from n: the branch uses %n's successors and a constant from outside.
    text = """
    func @steps(%n: i32) -> i32 {
      %one = arith.constant value=1, type=i32 : () -> i32
      %two = arith.constant value=2, type=i32 : () -> i32
      %three = arith.constant value=3, type=i32 : () -> i32
      %zero = arith.constant value=0, type=i32 : () -> i32
      %k, %last = control.while [%zero, %n] : (i32, i32) -> (i32, i32) {
        (%a: i32, %v: i32)
        %go = arith.cmp %v, %one, predicate="ne" : (i32, i32) -> i1
        control.condition %go, [%a, %v] : (i1, i32, i32) -> ()
      } {
        (%a2: i32, %v2: i32)
        %r = arith.rem %v2, %two : (i32, i32) -> i32
        %odd = arith.cmp %r, %one, predicate="eq" : (i32, i32) -> i1
        %w = control.if %odd : i1 -> i32 {
          %t = arith.mul %v2, %three : (i32, i32) -> i32
          %u = arith.add %t, %one : (i32, i32) -> i32
          control.yield [%u] : i32 -> ()
        } {
          %h = arith.idiv %v2, %two : (i32, i32) -> i32
          control.yield [%h] : i32 -> ()
        }
        %a3 = arith.add %a2, %one : (i32, i32) -> i32
        control.yield [%a3, %w] : (i32, i32) -> ()
      }
      control.return [%k] : i32 -> ()
    }"""
    assert value_of(text, [27]) == 111


def test_recursive_calls_have_separate_values() -> None:
    text = """
    func @fib(%n: i32) -> i32 {
      %two = arith.constant value=2, type=i32 : () -> i32
      %one = arith.constant value=1, type=i32 : () -> i32
      %small = arith.cmp %n, %two, predicate="lt" : (i32, i32) -> i1
      %r = control.if %small : i1 -> i32 {
        control.yield [%n] : i32 -> ()
      } {
        %a = arith.sub %n, %one : (i32, i32) -> i32
        %b = arith.sub %n, %two : (i32, i32) -> i32
        %x = control.call [%a], callee="fib", types=(i32,) : i32 -> i32
        %y = control.call [%b], callee="fib", types=(i32,) : i32 -> i32
        %z = arith.add %x, %y : (i32, i32) -> i32
        control.yield [%z] : i32 -> ()
      }
      control.return [%r] : i32 -> ()
    }"""
    assert value_of(text, [15]) == 610


def test_call_of_a_missing_function_names_the_line() -> None:
    text = """func @f() {
      control.call [], callee="absent", types=() : () -> ()
      control.return [] : () -> ()
    }"""
    with pytest.raises(InterpreterError, match=r"kernel\.ir:2:1.*there is no function @absent"):
        evaluate_function(module_of(text).entry, [])


# A combine function with an `if` in it cannot run as one NumPy operation an op.
BRANCHING_MAX = """
func @f(%a: 3x5xi32) -> 3xi32 {
  %m = tile.reduce [%a], axis=1 : 3x5xi32 -> 3xi32 {
    (%x: i32, %y: i32)
    %c = arith.cmp %x, %y, predicate="gt" : (i32, i32) -> i1
    %z = control.if %c : i1 -> i32 {
      control.yield [%x] : i32 -> ()
    } {
      control.yield [%y] : i32 -> ()
    }
    control.yield [%z] : i32 -> ()
  }
  control.return [%m] : 3xi32 -> ()
}"""


def test_combine_function_with_control_flow_runs_lane_by_lane() -> None:
    a = np.random.default_rng(0).integers(-99, 99, (3, 5)).astype(np.int32)
    np.testing.assert_array_equal(value_of(BRANCHING_MAX, [a]), a.max(1))


def test_vectorised_region_broadcasts_captured_values() -> None:
    text = """
    func @f(%a: 4x2xi32, %k: i32) -> 4xi32 {
      %m = tile.reduce [%a], axis=1 : 4x2xi32 -> 4xi32 {
        (%x: i32, %y: i32)
        %c = arith.constant value=10, type=i32 : () -> i32
        %s = arith.add %c, %k : (i32, i32) -> i32
        control.yield [%s] : i32 -> ()
      }
      control.return [%m] : 4xi32 -> ()
    }"""
    result = value_of(text, [np.zeros((4, 2), np.int32), 5])
    np.testing.assert_array_equal(result, np.full(4, 15, np.int32))


def test_failure_names_line_program_and_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Mul, lhs: Any, rhs: Any) -> Any:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(Mul, "evaluate", fail)
    with pytest.raises(InterpreterError) as caught:
        interpret(module_of(COPY), (1, 2), [X, X, 7])
    assert str(caught.value).splitlines() == [
        "kernel.ir:4:1: arith.mul: no luck",
        "  in program (0, 0, 0) of the grid (1, 2, 1)",
        "  operand 0: i32 = 0",
        "  operand 1: i32 = 7",
    ]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("wrong", [np.zeros((), np.int64), np.zeros(1, np.int32), (0, 0)])
def test_evaluate_that_violates_the_type_rule_is_reported(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misbehave(self: Mul, lhs: Any, rhs: Any) -> Any:
        return wrong

    monkeypatch.setattr(Mul, "evaluate", misbehave)
    with pytest.raises(InterpreterError, match=r"arith\.mul: "):
        interpret(module_of(COPY), 1, [X, X, 1])


def test_results_do_not_alias_between_iterations() -> None:
    state = State(module_of(sum_loop("i32")))
    args = [np.array(v, np.int32) for v in (0, 4, 1)]
    first, second = state.call("f", args), state.call("f", args)
    assert first[0] == second[0] == 6
    assert first[0] is not second[0]
