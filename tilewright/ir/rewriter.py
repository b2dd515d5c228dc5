"""Local rewrites: small named rules, applied to each op until a fixed point.

    @rewrite(Mul)
    def mul_by_one(op: Mul, rw: Rewriter) -> Value | None:
        \"\"\"x * 1 = x\"\"\"

A rule returns the value that replaces the op's only result (or a tuple, one per result), or None
if it does not apply. The driver then erases the op, whose effects the replacement must have. Laws:
the right side is never more costly and each rule brings the op nearer to a canonical form, so the
driver terminates; a rule creates ops only through `rw` and erases none; a rule is exact, bit for
bit, for all inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tilewright.ir.core import Function, Op, Region, Value

AnyOp = TypeVar("AnyOp", bound=Op)
Replacement = Value | tuple[Value, ...] | None


class Rule(NamedTuple):
    """A registered rewrite."""

    name: str
    root: type[Op]
    apply: Callable[[Any, Rewriter], Replacement]

    @property
    def equation(self) -> str:
        return (self.apply.__doc__ or "").strip()


RULES: dict[type[Op], list[Rule]] = {}


def rewrite(
    root: type[AnyOp],
) -> Callable[[Callable[[AnyOp, Rewriter], Replacement]], Callable[[AnyOp, Rewriter], Replacement]]:
    """Register a rewrite of ops of this class."""

    def register(fn: Callable[[AnyOp, Rewriter], Replacement]) -> Any:
        assert fn.__doc__, f"rewrite {fn.__name__} states no equation"
        rule = Rule(fn.__name__, root, fn)
        RULES.setdefault(root, []).append(rule)
        return fn

    return register


def all_rules() -> Iterator[Rule]:
    for rules in RULES.values():
        yield from rules


class Rewriter:
    """The interface of rules: inserts ops before the op being rewritten."""

    def __init__(self, on_new: Callable[[Op], None] | None = None) -> None:
        self.anchor: Op | None = None
        self.on_new = on_new

    def insert_op(self, op: AnyOp) -> AnyOp:
        """Insert an op before the current one, with its source location."""
        anchor = self.anchor
        assert anchor is not None
        assert anchor.parent is not None
        if op.loc is None:
            op.loc = anchor.loc
        anchor.parent.insert_before(op, anchor)
        if self.on_new is not None:
            self.on_new(op)
        return op

    def insert(self, op: Op) -> Value:
        """Insert the op and return its only result."""
        return self.insert_op(op).result

    def revisit(self, op: Op | None) -> None:
        """Revisit the op, because one of its inputs has changed."""
        if self.on_new is not None and op is not None:
            self.on_new(op)

    def replace(self, old: Value, new: Value) -> None:
        """Replace all uses of `old` by `new`, and revisit the users."""
        for user in old.users:
            self.revisit(user)
        old.replace_with(new)

    @contextmanager
    def before(self, op: Op) -> Generator[None, None, None]:
        """Insert before another op within the block."""
        saved, self.anchor = self.anchor, op
        try:
            yield
        finally:
            self.anchor = saved


LIMIT_PER_OP = 64
"""Visits of an op, on average, from which rules are assumed to undo each other."""


def apply_greedily(
    fn: Function,
    rules: dict[type[Op], list[Rule]],
    count: Callable[[str], None],
) -> bool:
    """Apply rules until a fixed point; returns whether any applied. Calls `count` with the name of
    each rule applied.

    Ops without effects that become unused are erased.
    """
    queue: deque[Op] = deque(fn.walk())
    queued: set[Op] = set(queue)

    def push(op: Op) -> None:
        if op not in queued:
            queued.add(op)
            queue.append(op)
        if op.terminator:  # rules of the parent op handle the terminator
            around = op.parent_op()
            if around is not None and around not in queued:
                queued.add(around)
                queue.append(around)

    rewriter = Rewriter(push)
    changed = False
    budget = LIMIT_PER_OP * (len(queue) + 16)
    while queue:
        op = queue.popleft()
        queued.discard(op)
        if op.parent is None:
            continue
        if not (op.terminator or op.writes() or any(r.users for r in op.results)):
            _erase_dead(op, push)
            changed = True
            continue
        for rule in rules.get(type(op), ()):
            rewriter.anchor = op
            replacement = rule.apply(op, rewriter)
            if replacement is None:
                continue
            count(rule.name)
            changed = True
            _replace(op, replacement, push)
            budget -= 1
            assert budget > 0, f"the rewrites do not end; the last one was {rule.name}"
            break
    return changed


def _replace(op: Op, replacement: Value | tuple[Value, ...], push: Callable[[Op], None]) -> None:
    values = (replacement,) if isinstance(replacement, Value) else replacement
    for old, new in zip(op.results, values, strict=True):
        assert old.type == new.type, f"{op.name}: {old.type} was rewritten as {new.type}"
        for user in old.users:
            push(user)
            for result in user.results:  # rules match patterns two ops deep
                for indirect in result.users:
                    push(indirect)
        if new.op is not None:
            push(new.op)
        old.replace_with(new)
    _erase_dead(op, push)


def _erase_dead(op: Op, push: Callable[[Op], None]) -> None:
    feeding = list(op.all_operands())
    around = op.parent_op()
    op.erase()
    if around is not None:
        push(around)
    for value in feeding:
        owner = value.owner
        source = owner if isinstance(owner, Op) else owner.parent
        if source is not None and source.parent is not None:
            push(source)
            if len(value.users) == 1:  # some rules require a single use
                push(next(iter(value.users)))


def insert_before(op: AnyOp, anchor: Op) -> AnyOp:
    """Insert an op before `anchor`, with its source location."""
    assert anchor.parent is not None
    op.loc = anchor.loc
    anchor.parent.insert_before(op, anchor)
    return op


def insert_after(op: AnyOp, anchor: Op) -> AnyOp:
    """Insert an op after `anchor`, with its source location."""
    assert anchor.parent is not None
    op.loc = anchor.loc
    anchor.parent.insert_after(op, anchor)
    return op


def move_ops_before(source: Region, anchor: Op) -> None:
    """Move all ops of a region, except its terminator, before `anchor`."""
    assert anchor.parent is not None
    for op in source:
        if not op.terminator:
            op.remove()
            anchor.parent.insert_before(op, anchor)
