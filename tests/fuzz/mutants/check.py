"""Mutates real kernels and their launches, and compares targets with the interpreter.

    check_mutant(7)

The generator of `tests.fuzz.programs` draws what its authors thought of, in shapes that they gave
it. Here the shapes are those of kernels that people write, and edits (`edits`, `arguments`) know
nothing of the compiler: the interpreter, which checks every access, decides whether an edited
kernel is a program at all. Those that are must leave the same memory everywhere.

Not compared is what has several right results: stores of different values to one address by one
op, programs that race, combine functions that are not associative, promises (`tl.multiple_of`) that
do not hold, on the emulated GPU also accesses that threads of a program do not order, and elements
of floats that depend on how sums are rounded.
"""

from __future__ import annotations

import ast
import inspect
import random
import signal
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from tests.amd_emulator import conformance as amd
from tests.arrays import copied
from tests.fuzz.disabled import random_disabled
from tests.fuzz.mutants import edits
from tests.fuzz.mutants.arguments import mutated_arguments, roomy
from tests.fuzz.mutants.corpus import Launch, families
from tests.fuzz.mutants.rounding import alternatives, differs, is_inexact
from tests.fuzz.programs.check import AMD_PROCESSORS, Difference, build, machine_of, ops_of
from tests.gpu.programs import Program
from tests.ir_values import same_bits
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import run_compiled
from tilewright.base.diagnostics import CompilationError, OutOfResources
from tilewright.compiler.pipeline import STEPS
from tilewright.conformance.case import NotInLanguage
from tilewright.conformance.text_kernels import kernel_from
from tilewright.frontend.source import JITCallable
from tilewright.ir.core import Module, Op
from tilewright.ir.interpret import InterpreterError, interpret
from tilewright.ir.memory import Checks, Memory
from tilewright.ir.passes import PassContext, run
from tilewright.ops import arith, reduce

SECONDS = 4  # of the interpreter, for one program
MOST_ELEMENTS = 1 << 14  # of a tile
LAWFUL = 1000  # random elements with which a combine function is tested for its laws


class Invalid(Exception):
    """The mutant is no program, or one with several right results."""


# -- what a mutant is -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A kernel as syntax trees, and a launch of it.

    Attributes:
        launch: what the kernel is given; its `kernel` is that of the corpus.
        function: the kernel.
        helpers: functions that it calls, which may be edited as well.
        names: its globals.
        edits: the names of the edits so far.
    """

    launch: Launch
    function: ast.FunctionDef
    helpers: list[ast.FunctionDef]
    names: dict[str, Any]
    edits: tuple[str, ...] = ()

    def text(self) -> str:
        parts = [ast.unparse(ast.fix_missing_locations(f)) for f in (*self.helpers, self.function)]
        return edits.HELPERS + "\n@jit\n".join(["", *parts])

    def program(self) -> Program:
        """The launch as a program for any target."""
        try:
            kernel = kernel_from(self.text(), **self.names)
        except (NameError, SyntaxError, TypeError, ValueError) as error:
            raise Invalid(str(error)) from error
        return Program(*self.launch._replace(kernel=kernel))

    def edited(self, rng: random.Random) -> Mutant:
        """The mutant with one more edit; itself if the edit found no place."""
        if rng.random() < 0.2:
            launch = mutated_arguments(self.launch, rng)
            return replace(self, launch=launch, edits=(*self.edits, "arguments"))
        made = replace(self, function=deepcopy(self.function), helpers=deepcopy(self.helpers))
        change = rng.choice(edits.EDITS)
        target = rng.choice([made.function, made.function, *made.helpers])
        if not change(target, rng):
            return self
        return replace(made, edits=(*self.edits, change.__name__))


def original(rng: random.Random) -> Mutant:
    """A launch of the corpus; half of them of whole kernels, the rest of one for one feature."""
    whole = [f for f in families() if "/" not in f.name or f.name.startswith("4/")]
    family = rng.choice(whole if rng.random() < 0.5 else families())
    try:
        launch = roomy(rng.choice(family.launches)())
    except NotInLanguage as error:
        raise Invalid(str(error)) from error
    fn = launch.kernel.fn
    function, names = _function(fn), _names(fn)
    function.name = "edited"  # which no global is called
    return Mutant(launch, function, _helpers(function, names), names)


def _function(fn: Any) -> ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    return tree


def _names(fn: Any) -> dict[str, Any]:
    """The globals of a function, and what it captures."""
    captured = inspect.getclosurevars(fn).nonlocals
    return {k: v for k, v in {**fn.__globals__, **captured}.items() if not k.startswith("__")}


def _helpers(function: ast.FunctionDef, names: dict[str, Any]) -> list[ast.FunctionDef]:
    """The functions that a kernel calls."""
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    return [
        _function(v.fn) for k, v in names.items()
        if k in used and isinstance(v, JITCallable) and inspect.isfunction(v.fn)
        and v.fn.__name__ == k
    ]  # fmt: skip


def joined(first: Mutant, second: Mutant, rng: random.Random) -> Mutant:
    """One kernel that does what two do, one after the other, on arrays that they may share."""
    renamed = {n: f"{n}_b" for n in _own_names(second.function)}
    helpers = {f.name for f in second.helpers}
    clash = {
        n for n, v in second.names.items()
        if n in helpers or (n in first.names and first.names[n] is not v)
    }  # fmt: skip
    renamed |= {n: f"{n}_b" for n in clash}
    function, *more = (
        _Renamed(renamed).visit(deepcopy(f)) for f in (second.function, *second.helpers)
    )
    names = first.names | {renamed.get(n, n): v for n, v in second.names.items()}
    both = deepcopy(first.function)
    both.args.args += function.args.args
    both.args.defaults = []
    second_body = function.body
    if rng.random() < 0.5:
        head = rng.choice(("for r_ in range(2):\n    ...", "if tl.program_id(0) < 2:\n    ..."))
        second_body = [edits.block(head, *function.body)]
    both.body = [*both.body, *second_body] if rng.random() < 0.7 else [*second_body, *both.body]
    constants = first.launch.constants | {
        renamed.get(n, n): v for n, v in second.launch.constants.items()
    }
    launch = Launch(None, [*first.launch.args, *second.launch.args], constants, first.launch.grid)
    return Mutant(launch, both, [*first.helpers, *more], names, ("joined",))


def _own_names(function: ast.FunctionDef) -> set[str]:
    """The parameters and variables of a function."""
    stored = {
        n.id for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }  # fmt: skip
    return stored | {a.arg for a in function.args.args}


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self.names.get(node.name, node.name)
        self.generic_visit(node)
        return node


# -- whether it is valid --------------------------------------------------------------------------


class Watched(Memory):
    """Memory that notes what has several right results.

    Attributes:
        unordered: whether a program accessed bytes again that it had stored, or stored bytes again
            that it had accessed: threads of a GPU need a barrier there.
    """

    unordered = False

    def begin_program(self, program: tuple[int, int, int]) -> None:
        super().begin_program(program)
        self._read: set[int] = set()
        self._written: set[int] = set()

    def load(self, op: Op, ptr: Any, mask: Any, other: Any) -> Any:
        found = super().load(op, ptr, mask, other)
        touched = _bytes(ptr, mask, found.dtype.itemsize)
        self._read |= touched
        self._note(bool(touched & self._written))
        return found

    def store(self, op: Op, ptr: Any, value: Any, mask: Any) -> None:
        addresses = ptr[mask] if mask is not None else ptr.ravel()
        values = value[mask] if mask is not None else value.ravel()
        order = np.argsort(addresses, kind="stable")
        near = addresses[order][1:] - addresses[order][:-1] < value.dtype.itemsize
        raw = np.ascontiguousarray(values[order]).view(f"u{value.dtype.itemsize}")
        if np.any(near & (raw[1:] != raw[:-1])):
            raise Invalid("two values for one address")
        touched = _bytes(ptr, mask, value.dtype.itemsize)
        self._note(bool(touched & (self._read | self._written)))
        self._written |= touched
        super().store(op, ptr, value, mask)

    @classmethod
    def _note(cls, unordered: bool) -> None:
        cls.unordered |= unordered


def _bytes(ptr: Any, mask: Any, size: int) -> set[int]:
    addresses = (ptr[mask] if mask is not None else ptr.ravel()).astype(np.int64)
    return set((addresses[:, None] + np.arange(size)).ravel().tolist())


def _keeps_promise(op: arith.Hint, src: Any) -> Any:
    """The values of a hint, if they are as its author says: a compiler relies on it."""
    values = np.atleast_1d(src)
    if values.dtype.kind not in "iu":
        return src
    bounds = [values < op.low if op.low is not None else False]
    bounds.append(values > op.high if op.high is not None else False)
    broken = bool(np.any(bounds[0])) or bool(np.any(bounds[1]))
    for axis in range(values.ndim):
        along = np.moveaxis(values, axis, 0)
        run = max(op.contiguity[axis], op.constancy[axis], 1)
        first = np.repeat(along[::run], run, axis=0)[: len(along)]
        step = np.arange(len(along)) % run if op.contiguity[axis] > 1 else np.zeros(len(along))
        offset = step.astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
        if run > 1 and np.any(along != first + offset):
            broken = True
        if op.divisibility[axis] > 1 and np.any(first % values.dtype.type(op.divisibility[axis])):
            broken = True
    if broken:
        raise Invalid("a promise is broken")
    return src


EXECUTE: dict[type[Op], Any] = {c: c.execute for c in (reduce.Reduce, reduce.Scan)}


def _combined(op: reduce.Reduce | reduce.Scan, state: Any, *args: Any) -> Any:
    """The results of a reduction or scan whose combine function is associative, as required, for
    random elements of its operands; that of a reduction must be commutative, too."""
    single = reduce.simple_combine(op)
    if single is None or not single.commutative:
        rng = np.random.default_rng(0)
        chosen = rng.integers(0, args[0].size, (3, LAWFUL))
        x, y, z = ([a.reshape(-1)[some] for a in args] for some in chosen)
        first, last = op.apply(state, x, y), op.apply(state, y, z)
        _agree(op.apply(state, first, z), op.apply(state, x, last))
        if isinstance(op, reduce.Reduce):
            _agree(first, op.apply(state, y, x))
    return EXECUTE[type(op)](op, state, *args)


def _agree(found: Sequence[Any], others: Sequence[Any]) -> None:
    for x, y in zip(found, others, strict=True):
        x, y = np.atleast_1d(x), np.atleast_1d(y)
        if x.dtype.kind in "biu":
            same = np.array_equal(x, y)
        else:
            with np.errstate(all="ignore"):
                a, b = x.astype(np.float64), y.astype(np.float64)
                same = np.allclose(a, b, 0.05, 0.05, equal_nan=True)
        if not same:
            raise Invalid("a combine function is not associative")


@contextmanager
def _time_limit(seconds: int) -> Generator[None]:
    def end(*_: object) -> None:
        raise Invalid("it takes too long")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _expected(module: Module, grid: tuple[int, ...], args: list[Any]) -> tuple[list[Any], bool]:
    """What the interpreter leaves in memory, and whether a GPU must leave the same."""
    found = copied(args)

    class OfOne(Watched):
        pass

    with (
        mock.patch("tilewright.ir.interpret.Memory", OfOne),
        mock.patch.object(arith.Hint, "evaluate", _keeps_promise),
        mock.patch.object(reduce.Reduce, "execute", _combined),
        mock.patch.object(reduce.Scan, "execute", _combined),
        _time_limit(SECONDS),
    ):
        try:
            interpret(module, grid, found, checks=Checks(races=True))
        except InterpreterError as error:
            raise Invalid(str(error)) from error
    atomics = any(type(op).name.startswith("atomic.") for op in module.entry.walk())
    return found, not OfOne.unordered and not atomics


@dataclass(frozen=True)
class Valid:
    """A mutant that is a program: its tile IR, the arguments of that, what it leaves in memory, and
    whether a GPU must leave the same."""

    mutant: Mutant
    module: Module
    args: list[Any]
    expected: list[Any]
    is_ordered: bool


def validated(mutant: Mutant) -> Valid:
    """The mutant as a program. Raises `Invalid` if it is none."""
    program = mutant.program()
    with _time_limit(SECONDS):
        try:
            module, args = build(program)
        except CompilationError as error:
            raise Invalid(str(error)) from error
    for op in module.entry.walk():
        if any(getattr(r.type, "numel", 1) > MOST_ELEMENTS for r in op.results):
            raise Invalid("a large tile")
    expected, is_ordered = _expected(module, mutant.launch.grid, args)
    return Valid(mutant, module, args, expected, is_ordered)


def valid_mutant(seed: int) -> Valid | None:
    """The mutant of a seed: of edits one after the other, those that leave a program are kept."""
    rng = random.Random(seed)
    try:
        found = validated(original(rng))
        if rng.random() < 0.3:
            with suppress(Invalid):
                found = validated(joined(found.mutant, original(rng), rng))
    except Invalid:
        return None
    most = rng.choice((1, 2, 4, 8, 12))
    for _ in range(3 * most):
        with suppress(Invalid):
            found = validated(found.mutant.edited(rng))
        if len(found.mutant.edits) >= most:
            break
    return found


# -- comparison -----------------------------------------------------------------------------------


def compare(found: list[Any], valid: Valid, where: str, seed: int) -> None:
    """Raise `Difference` unless memory is as the interpreter leaves it."""
    module = valid.module
    pairs = enumerate(zip(found, valid.expected, strict=True))
    different = [(i, x, y) for i, (x, y) in pairs if simt.is_buffer(y) and not same_bits(x, y)]
    others: list[list[Any]] = []
    if different and any(is_inexact(op) for fn in module.functions.values() for op in fn.walk()):
        runs = alternatives(module, valid.mutant.launch.grid, valid.args, seed)
        if runs is None:
            return
        others = runs
    for i, x, y in different:
        wrong = np.flatnonzero(differs(x, y, [other[i] for other in others]))
        if len(wrong):
            k = wrong[0]
            raise Difference(
                f"argument {i} differs on {where} in {len(wrong)} places, first at {k}: {x[k]!r}, "
                f"interpreted {y[k]!r}, other runs {[other[i][k] for other in others]}"
            )


def _shown(mutant: Mutant) -> str:
    args = [
        f"{a.dtype}[{a.size}] {a[:6].tolist()}" if isinstance(a, np.ndarray) else repr(a)
        for a in mutant.launch.args
    ]
    text = mutant.text().removeprefix(edits.HELPERS)
    return f"{text}\n# {args}\n# {mutant.launch.constants}, grid {mutant.launch.grid}"


def _check(seed: int, run_on: Callable[[Valid, list[Any], int], str]) -> set[str]:
    valid = valid_mutant(seed)
    if valid is None:
        return {"mutants: none valid"}
    if run_on is not _run_on_cpu and not valid.is_ordered:
        return {"mutants: not ordered"}
    found = copied(valid.args)
    try:
        compare(found, valid, run_on(valid, found, seed), seed)
    except Exception as error:
        error.add_note(f"mutant of seed {seed}, {valid.mutant.edits}:\n{_shown(valid.mutant)}")
        raise
    return ops_of(valid.module) | {f"mutants: {name}" for name in valid.mutant.edits}


def _run_on_cpu(valid: Valid, args: list[Any], seed: int) -> str:
    lowered = valid.module.clone()
    run(lowered, STEPS, PassContext(disabled=random_disabled(seed, STEPS)), [])
    machine = machine_of(seed)
    grid: Any = (*valid.mutant.launch.grid, 1, 1)[:3]
    run_compiled(lowered, grid, args, machine=machine)
    return machine.cpu


def _run_emulated(valid: Valid, args: list[Any], seed: int) -> str:
    grid: Any = (*valid.mutant.launch.grid, 1, 1)[:3]
    simt.run_emulated(
        valid.module,
        grid,
        args,
        warps=(1, 2, 4)[seed % 3],
        lanes=(32, 64)[seed % 5 == 0],
        disabled=random_disabled(seed, (*STEPS, *simt.LAYOUT_STEPS)),
        features=frozenset({"async_copy"} if seed % 7 < 3 else ()),
    )
    return "the emulated GPU"


def _run_on_amd(valid: Valid, args: list[Any], seed: int) -> str:
    arch = AMD_PROCESSORS[seed % len(AMD_PROCESSORS)]
    seed //= len(AMD_PROCESSORS)
    settings = {"num_warps": (4, 1, 2)[seed % 3], "num_stages": (2, 1, 3)[seed // 3 % 3]}
    try:
        amd.execute(arch, valid.module, valid.mutant.launch.grid, args, **settings)
    except OutOfResources:  # a right answer, for programs with large tiles
        args[:] = copied(valid.expected)
    return arch


def check_mutant(seed: int) -> set[str]:
    """Compare a mutant on the CPU with the interpreter; what it reached."""
    return _check(seed, _run_on_cpu)


def check_mutant_emulated(seed: int) -> set[str]:
    """Compare a mutant on the emulated GPU with the interpreter; what it reached."""
    return _check(seed, _run_emulated)


def check_mutant_amd(seed: int) -> set[str]:
    """Compare a mutant on an emulated AMD processor with the interpreter; what it reached."""
    return _check(seed, _run_on_amd)
