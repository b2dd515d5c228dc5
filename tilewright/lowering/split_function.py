"""Splitting of long functions, so that LLVM compiles functions of bounded length.

The time of several of its passes grows faster than the length of a function. So a function of more
than `LONG` lines is cut into parts of about `PART` lines. Each part ends in a call of the next,
whose parameters are the values that are live at the cut; nothing is returned.

    define void @kernel(ptr %p0) {         define void @kernel(ptr %p0) {
    entry1:                                entry1:
      %v1 = load float, ptr %p0              %v1 = load float, ptr %p0
      …                             →        …
      store float %v1, ptr %p0               call void @kernel.part1(ptr %p0, float %v1)
      ret void                               ret void
    }                                      }

A function is cut only where every path from its entry to its return passes exactly once: in a
block that no branch bypasses and that is in no loop. Of these blocks, those with few live values
are preferred. A long loop is therefore never cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from tilewright.lowering.llvm_module import Block, Function
from tilewright.lowering.llvm_values import VOID, LType

LONG, PART = 10_000, 4_000
"""Lines of LLVM IR from which a function is split, and of one part. Kernels of the examples and
benchmarks have up to 5,000."""

# Compiled when a function is split, which few are.
_NAME = r"%[vp]\d+\b"
_LABEL = r"label %([\w.]+)"
_ADDRESS = r"  (%v\d+) = getelementptr \w+, ptr %p\d+, i64 \d+(?:, !dbg !\d+)?$"
_SCOPE = r"(scope|inlinedAt): (!\d+)"
_DBG = ", !dbg "
_NEVER = 1 << 20  # words of a value that is not passed to a function: a struct or an array


def split_function(
    function: Function, attributes: str, most_live: int, long: int = LONG, part: int = PART
) -> None:
    """Split a complete function that returns nothing into several, if it is long.

    Args:
        attributes: LLVM attributes of the parts.
        most_live: words (32 bits) of values that may be live at a cut.
        long, part: lines of a function that is split, and of a part.
    """
    if sum(len(block.lines) for block in function.blocks) <= long:
        return
    code = _Code(function)
    cuts = list(_cuts(code, most_live, part))
    passed = _passed(code, cuts)
    inner, repeated = _allocas_of_parts(code, cuts), _repeated(code, cuts)
    for number in range(len(cuts), 0, -1):
        made = _part(code, passed[number - 1], f"{function.name}.part{number}", attributes)
        _move(code, cuts[number - 1], made)
        made.allocas = {name: function.allocas.pop(name) for name in inner[number]}
        made.entry.lines[:0] = repeated[number]
        if function.subprogram:
            _relocate(made, function)
    function.entry.lines[:0] = repeated[0]


class _Code:
    """The lines of a function in one sequence, numbered from 0.

    Attributes:
        places: for each line its block and its index there, or None if the function cannot be cut
            before it.
        types, first, last: type, first and last line of each value, by name. The first line is that
            of the definition, -1 for a parameter, and that of the first use for an alloca.
        cheap: instructions of the entry block that compute addresses from parameters and constants,
            by the name of their result. They are repeated in each part that uses them.
        uses: the lines that use the result of each of these.
        exact: whether all pointers that are based on another are derived from it in plain sight,
            not by way of integers.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.types = function.types | {p.text: p.type for p in function.params}
        self.places: list[tuple[int, int] | None] = []
        self.first = {p.text: -1 for p in function.params}
        self.last: dict[str, int] = {}
        self.cheap: dict[str, str] = {}
        self._names: Callable[[str], list[str]] = re.compile(_NAME).findall
        self._take_cheap(function.entry)
        self.uses: dict[str, list[int]] = {name: [] for name in self.cheap}
        self.exact = True
        possible = _passed_once(function.blocks)
        for index, block in enumerate(function.blocks):
            for phi in block.phis:
                self._add(phi.line(), None)
            for at, line in enumerate(block.lines):
                self._add(line, (index, at) if possible[index] else None)
        for name, line in self.cheap.items():  # parameters are live to the last repetition
            base = self._names(line)[1]
            self.last[base] = max(self.last.get(base, -1), self.last[name])

    def _take_cheap(self, entry: Block) -> None:
        """Move the cheap instructions out of the entry block."""
        kept: list[str] = []
        address = re.compile(_ADDRESS)
        for line in entry.lines:
            if (found := address.match(line)) is not None:
                self.cheap[found[1]] = line
            else:
                kept.append(line)
        entry.lines = kept

    def _add(self, line: str, place: tuple[int, int] | None) -> None:
        number = len(self.places)
        self.places.append(place)
        for name in self._names(line):
            self.first.setdefault(name, number)
            self.last[name] = number
            if name in self.uses:
                self.uses[name].append(number)
        if " inttoptr " in line:
            self.exact = False

    def values(self) -> Iterator[tuple[str, int, int]]:
        """The name, first and last line of each value that is not repeated."""
        last = self.last.items()
        return ((name, self.first[name], end) for name, end in last if name not in self.cheap)

    def live(self) -> list[int]:
        """For each line, how many words are live before it."""
        change = [0] * (len(self.places) + 1)
        for name, first, last in self.values():
            words = _words(self.types[name])
            change[first + 1] += words
            change[last + 1] -= words
        return list(accumulate(change))


def _words(type: LType) -> int:
    if not (type.is_int or type.is_float or type.is_ptr):
        return _NEVER
    return -(-type.bits * max(1, type.lanes) // 32)


def _passed_once(blocks: Sequence[Block]) -> list[bool]:
    """For each block, whether every path through the function passes it exactly once.

    Blocks are in an order in which only the back edges of loops lead backwards.
    """
    index = {block.label: i for i, block in enumerate(blocks)}
    labels = re.compile(_LABEL).findall
    change = [0] * (len(blocks) + 1)
    for i, block in enumerate(blocks):
        for label in labels(block.lines[-1]):
            target = index[label]
            if target > i:  # bypasses the blocks between
                change[i + 1] += 1
                change[target] -= 1
            else:  # repeats those from its target on
                change[target] += 1
                change[i + 1] -= 1
    return [count == 0 for count in accumulate(change)]


def _cuts(code: _Code, most_live: int, part: int) -> Iterator[int]:
    """The lines before which the function is cut, in ascending order."""
    live, start, end = code.live(), 0, len(code.places)
    while end - start > part + part // 2:
        window = range(start + part // 2, start + part + part // 2)
        places = [n for n in window if code.places[n] is not None and live[n] <= most_live]
        if places:
            start = min(places, key=live.__getitem__)
            yield start
        else:
            start += part


def _passed(code: _Code, cuts: Sequence[int]) -> list[list[str]]:
    """For each cut the values that are live there, by name."""
    result: list[list[str]] = [[] for _ in cuts]
    for name, first, last in code.values():
        low, high = bisect_right(cuts, first), bisect_right(cuts, last)
        if name in code.function.allocas and low < high:
            low = 0  # allocated before the first cut
        for names in result[low:high]:
            names.append(name)
    return result


def _allocas_of_parts(code: _Code, cuts: Sequence[int]) -> list[list[str]]:
    """For the function and each part the allocas that are used nowhere else."""
    result: list[list[str]] = [[] for _ in range(len(cuts) + 1)]
    for name in code.function.allocas:
        if name in code.last:
            part = bisect_right(cuts, code.first[name])
            if part == bisect_right(cuts, code.last[name]):
                result[part].append(name)
    return result


def _repeated(code: _Code, cuts: Sequence[int]) -> list[list[str]]:
    """For the function and each part the instructions that it repeats."""
    result: list[list[str]] = [[] for _ in range(len(cuts) + 1)]
    for name, line in code.cheap.items():
        for part in {bisect_right(cuts, use) for use in code.uses[name]}:
            result[part].append(line)
    return result


def _part(code: _Code, names: Sequence[str], name: str, attributes: str) -> Function:
    """A function without code, whose parameters are values of the function that is split."""
    function = code.function
    attributes_of = dict(
        zip([p.text for p in function.params], function.param_attributes, strict=True)
    )
    attributes_of |= dict.fromkeys(function.allocas, "noalias")
    # If a pointer is passed with one that is based on it, neither is `noalias`.
    alone = code.exact and all(n in attributes_of or not code.types[n].is_ptr for n in names)
    params = [(code.types[n], attributes_of.get(n, "") if alone else "") for n in names]
    return function.module.function(name, VOID, params, attributes, "internal", names)


def _move(code: _Code, cut: int, to: Function) -> None:
    """Move the code from a line on into a function, and call that instead."""
    place = code.places[cut]
    assert place is not None, "cuts are at places where the function can be cut"
    (index, at), blocks = place, code.function.blocks
    block = blocks[index]
    moved = block.lines[at:]
    to.entry.label = block.label  # phis of its successors name it
    to.entry.lines, to.entry.closed = moved, True
    to.blocks = [to.entry, *blocks[index + 1 :]]
    args = ", ".join(map(repr, to.params))
    _, dbg, location = moved[0].rpartition(_DBG)
    tail = f"{dbg}{location}" if dbg else ""
    block.lines[at:] = [f"  call void @{to.name}({args}){tail}", f"  ret void{tail}"]
    del blocks[index + 1 :]


def _relocate(part: Function, function: Function) -> None:
    """Give the part its own subprogram, to which the locations of its instructions refer."""
    module = part.module
    text = module.node(function.subprogram).removeprefix("distinct ")
    text = text.replace(f'linkageName: "{function.name}"', f'linkageName: "{part.name}"')
    part.subprogram = module.metadata(text, distinct=True)
    copies = {function.subprogram: part.subprogram}
    scope = re.compile(_SCOPE)

    def copy(node: str) -> str:
        if node not in copies:
            old = module.node(node)
            new = scope.sub(lambda found: f"{found[1]}: {copy(found[2])}", old)
            made = module.metadata(new.removeprefix("distinct "), new.startswith("distinct "))
            copies[node] = node if new == old else made
        return copies[node]

    def moved(line: str) -> str:
        before, dbg, node = line.rpartition(_DBG)
        return f"{before}{dbg}{copy(node)}" if dbg else line

    part.allocas = {name: moved(line) for name, line in part.allocas.items()}
    for block in part.blocks:
        block.lines = [moved(line) for line in block.lines]
        for phi in block.phis:
            phi.location = moved(phi.location)
