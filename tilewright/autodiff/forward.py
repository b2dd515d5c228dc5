"""Forward mode: a kernel that computes its results and their directional derivatives.

    derived = forward_mode(module, wrt=("x_ptr",), outputs=("y_ptr",))

The derived kernel is the kernel itself, on the same grid, in which each float that depends on an
input has a *tangent*: its derivative in the direction of the tangents of the inputs. The tangents
of an array are in a separate array, at the same offsets. Since the control flow and accesses of the
kernel do not change, arrays may be loaded and stored in any order, loops may carry any values, and
addresses need no analysis.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autodiff.arrays import Array, Rebase, arrays_of, is_sum, require_elements
from tilewright.autodiff.derived import Derived, Role, Roles
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.errors import no_gradient, result_of_atomic, unnamed_output
from tilewright.autodiff.loops import activity
from tilewright.autodiff.registry import (
    AmongDerived,
    Elementwise,
    NotDifferentiable,
    Pair,
    Zero,
    derivative_error,
    rule_of,
)
from tilewright.autodiff.running_maxima import find_free_maxima
from tilewright.base.located import place_of
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import derivative_type, element_of, is_float
from tilewright.ops.atomic import AnyAtomic, AtomicRMW
from tilewright.ops.control import Condition, For, If, While, Yield
from tilewright.ops.memory import Load, Store, pointee_of


def forward_mode(
    module: Module, wrt: Sequence[str], outputs: Sequence[str], aux: Sequence[str] = (), *,
    results: bool = True,
) -> Derived:  # fmt: skip
    """The kernel of a module with tangents.

    Its arguments are those of the kernel, then a pointer to the tangents of each array in `wrt` or
    `outputs`, with the array's element type.

    Args:
        module: tile IR as `compiler/pipeline.STEPS` leave it; it is not changed.
        wrt: the arrays whose tangents are given.
        outputs: the arrays whose tangents are computed. One that is loaded, too, must be in `wrt`.
        aux: arrays that are stored, and whose tangents are not needed.
        results: whether the kernel's own results are stored, too.

    Raises:
        CompilationError: an op between inputs and outputs has no derivative.
        ValueError: there is no such array of floats.
    """
    copy = module.clone()
    fn = copy.entry
    roles = Roles(fn, wrt, outputs, aux)
    walk = _Forward(fn, roles)
    walk.region(fn.body)
    if not results:
        walk.drop_results()
    fn.name = f"{fn.name}_jvp"
    return Derived(Module([fn]), tuple(walk.roles))


def tangent_of(array: str) -> str:
    """The name of the argument with an array's tangent, as messages have it."""
    return f"the tangent of {array}"


class _Forward(AmongDerived):
    """The walk: tangents of a function's values, inserted into the function itself."""

    def __init__(self, fn: Function, roles: Roles) -> None:
        self.arrays = arrays_of(fn)
        self.forward_ops = set(fn.walk())
        self.chosen = roles
        self.builder = Builder(fn.body)
        self.emit = Emitter(self.builder)
        self.rebase = Rebase(self.builder, self.plain)
        self.roles = [Role("argument", name) for name in roles.names]
        self._tangents: dict[Value, Value] = {}
        self._copies: dict[Value, Value] = {}  # of values in a region that is emitted again
        outputs = [array.arg for array in self.arrays.values() if array.name in roles.outputs]
        maxima, self._active = activity(find_free_maxima(fn, outputs), self._sources())
        self._constants = maxima.constants
        self._bases = {
            array.arg: self._new_base(fn, array)
            for array in self.arrays.values()
            if array.name in (*roles.wrt, *roles.outputs)
        }

    def drop_results(self) -> None:
        """Erase the stores of the kernel's own results."""
        for array in self.arrays.values():
            for op in array.writes if not array.loads else ():
                if not any(result.users for result in op.results):
                    op.erase()

    def _sources(self) -> list[Value]:
        loads: list[Value] = []
        for array in self.arrays.values():
            given, found = array.name in self.chosen.wrt, array.name in self.chosen.outputs
            if array.loads and array.writes and given != found:
                stored = place_of(array.writes[0].loc, array.loads[0].loc)
                raise derivative_error(
                    array.loads[0],
                    f"{array.name} is loaded here and stored at {stored}: its tangents are "
                    "both inputs and results",
                    f'help: add it to both wrt=("{array.name}", …) and outputs=("{array.name}", …)',
                )
            loads += [op.result for op in array.loads if given]
        return loads

    def _new_base(self, fn: Function, array: Array) -> Value:
        self.roles.append(Role("tangent", array.name))
        fn.arg_names.append(tangent_of(array.name))
        fn.arg_attrs.append({})
        return fn.body.add_arg(array.arg.type)

    # -- interface of rules ---------------------------------------------------------------------

    def plain(self, value: Value) -> Value:
        return self._copies.get(value, value)

    def value(self, value: Value) -> Value:
        return self.emit.wide(self.plain(value))

    def is_active(self, value: Value) -> bool:
        return value in self._tangents

    def tangent(self, value: Value) -> Value | None:
        return self._tangents.get(value)

    def differentiated(
        self, region: Region, values: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[list[Value], list[Value | None]]:
        for arg, value, tangent in zip(region.args, values, tangents, strict=True):
            self._copies[arg] = value
            self._set(arg, tangent)
        for op in region:
            if op.terminator:
                break
            copy = op.clone(self._copies)
            self.builder.insert(copy)
            self._op(op)
        ends = region.terminator.operands
        found = [self.plain(v) for v in ends], [self.tangent(v) for v in ends]
        for value in [*region.args, *(r for op in region for r in op.results)]:
            self._copies.pop(value, None)
            self._tangents.pop(value, None)
        return found

    def _set(self, value: Value, tangent: Value | None) -> None:
        if tangent is not None and value not in self._constants:
            self._tangents[value] = tangent

    def _tangent_or_zero(self, value: Value) -> Value:
        found = self._tangents.get(value)
        return self.emit.zeros(derivative_type(value.type)) if found is None else found

    # -- the walk -------------------------------------------------------------------------------

    def region(self, region: Region) -> None:
        """Insert the tangents of a region's values after them."""
        for op in list(region):
            if op.terminator:
                break
            following = op.next
            assert following is not None
            with self.builder.before(following):
                self.builder.loc = op.loc
                self._op(op)

    def _op(self, op: Op) -> None:
        match op:
            case Load():
                self._load(op)
            case Store():
                self._store(op)
            case For():
                self._for(op)
            case While():
                self._while(op)
            case If():
                self._if(op)
            case AtomicRMW() if is_float(op.result.type):
                self._atomic(op)
            case _:
                self._pure(op)

    def _pure(self, op: Op) -> None:
        rule = rule_of(op)
        active = [i for i, v in enumerate(op.operands) if v in self._tangents]
        if not active or isinstance(rule, Zero) or not op.results:
            if isinstance(op, AnyAtomic):
                self._require_no_tangents(op)
            return
        match rule:
            case Elementwise(apply):
                found = [apply(self, op, i, self._tangents[op.operands[i]]) for i in active]
                self._set(op.result, self.emit.total(found))
            case Pair(tangent, _):
                for result, found in zip(op.results, tangent(self, op), strict=True):
                    self._set(result, found)
            case NotDifferentiable(why):
                raise no_gradient(op, why)
            case _:
                raise derivative_error(op, f"no derivative of {op.name}")

    # -- memory ---------------------------------------------------------------------------------

    def _array(self, op: Load | Store | AtomicRMW) -> Array:
        from_base = next(a for a in self.arrays.values() if op in (*a.loads, *a.writes))
        if from_base.is_float:
            require_elements(from_base, op)
        return from_base

    def _load(self, op: Load) -> None:
        if not is_float(op.result.type):
            return
        array = self._array(op)
        base = self._bases.get(array.arg)
        other = self.tangent(op.other) if op.other is not None else None
        if base is None or not array.loads or array.name not in self.chosen.wrt:
            if other is not None:
                assert op.mask is not None
                zeros = self.emit.zeros(other.type)
                self._set(op.result, self.emit.where(op.mask, zeros, other))
            return
        element = element_of(op.result.type)
        filled = self.emit.cast(other, element) if other is not None else None
        pointer = self.rebase(op.ptr, base)
        loaded = self.builder.value(Load(pointer, op.mask, filled, op.cache, op.evict, op.volatile))
        if filled is None:
            self.emit.zero_outside(loaded, op.mask)
        wide = self.emit.cast(loaded, element_of(derivative_type(op.result.type)))
        self._set(op.result, wide)

    def _store(self, op: Store) -> None:
        if not is_float(op.value.type):
            return
        array = self._array(op)
        if array.name in self.chosen.outputs:
            tangent = self.emit.cast(self._tangent_or_zero(op.value), element_of(op.value.type))
            pointer = self.rebase(op.ptr, self._bases[array.arg])
            self.builder.insert(Store(pointer, tangent, op.mask, op.cache, op.evict))
        elif op.value in self._tangents and array.name not in self.chosen.aux:
            raise unnamed_output(op, array)

    def _atomic(self, op: AtomicRMW) -> None:
        array = self._array(op)
        tangent = self.tangent(op.value)
        if not is_sum(op) or op.result.users:
            self._require_no_tangents(op)
            return
        if tangent is None:
            return
        if array.name in self.chosen.outputs:
            pointer = self.rebase(op.ptr, self._bases[array.arg])
            narrow = self.emit.cast(tangent, pointee_of(op.ptr.type))
            self.builder.insert(AtomicRMW(pointer, narrow, op.mask, op.kind, op.sem, op.scope))
        elif array.name not in self.chosen.aux:
            raise unnamed_output(op, array)

    def _require_no_tangents(self, op: AnyAtomic) -> None:
        """Raise if an atomic without a defined tangent has operands with tangents."""
        array = next(a for a in self.arrays.values() if op in a.atomics)
        if array.arg in self._bases or any(v in self._tangents for v in op.operands):
            raise result_of_atomic(op)

    # -- control flow ---------------------------------------------------------------------------

    def _for(self, op: For) -> None:
        carried = [i for i, arg in enumerate(op.body.args[1:]) if arg in self._active]
        inits = [self._tangent_or_zero(op.inits[i]) for i in carried]
        for i, init in zip(carried, inits, strict=True):
            self._tangents[op.body.args[i + 1]] = op.body.add_arg(init.type)
        self.region(op.body)
        self._extend(op.body, [op.body.terminator.operands[i] for i in carried])
        (body,) = _detached(op)
        self._replace(op, op.rebuilt([*op.inits, *inits], body), carried)

    def _while(self, op: While) -> None:
        carried = [i for i, arg in enumerate(op.before.args) if arg in self._active]
        passed = [i for i, result in enumerate(op.results) if result in self._active]
        inits = [self._tangent_or_zero(op.inits[i]) for i in carried]
        for i, init in zip(carried, inits, strict=True):
            self._tangents[op.before.args[i]] = op.before.add_arg(init.type)
        self.region(op.before)
        self._extend(op.before, [op.before.terminator.operands[i + 1] for i in passed])
        for i in passed:
            arg = op.body.args[i]
            self._tangents[arg] = op.body.add_arg(derivative_type(arg.type))
        self.region(op.body)
        self._extend(op.body, [op.body.terminator.operands[i] for i in carried])
        before, body = _detached(op)
        self._replace(op, While([*op.inits, *inits], before=before, body=body), passed)

    def _if(self, op: If) -> None:
        active = [i for i, result in enumerate(op.results) if result in self._active]
        for region in op.regions:
            self.region(region)
            self._extend(region, [region.terminator.operands[i] for i in active])
        then, otherwise = _detached(op)
        self._replace(op, If(op.condition, then=then, otherwise=otherwise), active)

    def _extend(self, region: Region, values: Sequence[Value]) -> None:
        """Append the tangents of values to the operands of a region's terminator."""
        end = region.terminator
        with self.builder.before(end):
            tangents = [self._tangent_or_zero(v) for v in values]
            if isinstance(end, Condition):
                made: Op = Condition(end.condition, [*end.values, *tangents])
            else:
                assert isinstance(end, Yield)
                made = Yield([*end.values, *tangents])
            self.builder.insert(made)
        end.erase()

    def _replace(self, op: Op, made: Op, active: Sequence[int]) -> None:
        made.loc = op.loc
        self.builder.insert(made)
        for old, new in zip(op.results, made.results, strict=False):
            if old in self._active:
                self._active.add(new)
            old.replace_with(new)
        for i, tangent in zip(active, made.results[len(op.results) :], strict=True):
            self._tangents[made.results[i]] = tangent
        op.erase()


def _detached(op: Op) -> list[Region]:
    """The regions of an op, without the op."""
    regions, op.regions = op.regions, []
    for region in regions:
        region.parent = None
    return regions
