"""The memory accesses of a kernel, in the form of Triton's IR.

torch finds the tensors that a kernel mutates by a walk over the IR of Triton's front end
(`torch._higher_order_ops.triton_kernel_wrap`). The module here is a summary with the same accesses:
one function with the kernel's parameters, and a `tt.load` or `tt.store` of a parameter for each
access through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from tilewright.analysis.accessed_arguments import argument_accesses
from tilewright.compat.missing import missing_names
from tilewright.compiler.source import CONSTEXPR, runtime_arguments
from tilewright.ir.core import Module
from tilewright.language.types import str_to_ty, tensor_descriptor_type

__getattr__ = missing_names(
    __name__,
    "triton._C.libtriton.ir",
    "builder module parse_mlir_module pass_manager",
    "it is Triton's IR in C++. `tilewright.compiler.ASTSource(kernel, signature).module(options)` "
    "builds tile IR",
)


class context:
    """Triton's `ir.context`: passed to `ASTSource.make_ir`, which calls `summary`."""

    def summary(self, source: Any, module: Module) -> Summary:
        """The accesses of a kernel.

        Args:
            source: the `ASTSource` of the module.
        """
        return Summary(source.name, list(source.signature.values()), module)


def load_dialects(context: context) -> None:
    """Does nothing: in Triton, it registers the ops of its IR."""


class _Numbered:
    """An object of the IR with an identity, as MLIR's objects have."""

    _next = count(1)

    def __init__(self) -> None:
        self._id = next(self._next)

    def id(self) -> int:
        return self._id


class Block(_Numbered):
    """A block with arguments in a region of its own, which has the same interface."""

    def __init__(self, arguments: Sequence[_Numbered]) -> None:
        super().__init__()
        self._arguments = arguments

    def get_num_arguments(self) -> int:
        return len(self._arguments)

    def get_argument(self, index: int) -> _Numbered:
        return self._arguments[index]

    def get_parent(self) -> Block:
        return self


class Operation:
    """An operation without results.

    Args:
        name: such as ``tt.store``.
        block: the block that contains it.
        symbol: the name that it defines.
    """

    def __init__(
        self,
        name: str,
        operands: Sequence[_Numbered] = (),
        block: Block | None = None,
        regions: Sequence[Block] = (),
        symbol: str = "",
    ) -> None:
        self._name, self._operands, self._regions = name, operands, regions
        self._block, self._symbol = block, symbol

    def get_name(self) -> str:
        return self._name

    def get_num_operands(self) -> int:
        return len(self._operands)

    def get_operand(self, index: int) -> _Numbered:
        return self._operands[index]

    def get_num_results(self) -> int:
        return 0

    def get_num_regions(self) -> int:
        return len(self._regions)

    def get_region(self, index: int) -> Block:
        return self._regions[index]

    def get_block(self) -> Block | None:
        return self._block

    def get_str_attr(self, name: str) -> str | None:
        return self._symbol if name == "sym_name" else None


class Summary:
    """A module with one function; see the module's docstring.

    Args:
        name: the kernel's name.
        signature: the type string of each parameter, as in an `ASTSource`.
        module: the result of the front end.
    """

    def __init__(self, name: str, signature: Sequence[Any], module: Module) -> None:
        first: dict[int, int] = {}  # parameter -> its first argument in the summary
        total = 0
        for i, type in enumerate(signature):
            first[i] = total
            total += _arguments_of(type)
        self._name = name
        self._values = [_Numbered() for _ in range(total)]
        self._names = [f"%{i}" for i in range(total)]
        paths = [path for path, _ in runtime_arguments(signature)]
        found = argument_accesses(module)
        self._accesses = [
            (op, first[parameter])
            for op, accesses in (("tt.load", found.reads), ("tt.store", found.writes))
            for arguments in accesses
            for parameter in sorted({paths[argument][0] for argument in arguments})
        ]

    def verify(self) -> bool:
        return True

    def walk(self, visit: Callable[[Operation], None]) -> None:
        """Call `visit` with each operation, nested ones first."""
        for operation in self._operations():
            visit(operation)

    def _operations(self) -> Iterator[Operation]:
        body = Block(self._values)
        for name, argument in self._accesses:
            yield Operation(name, [self._values[argument]], body)
        yield Operation("tt.return", [], body)
        yield Operation("tt.func", regions=[body], block=Block([]), symbol=self._name)
        yield Operation("builtin.module")

    def __str__(self) -> str:
        accesses = "".join(f"  {op} %{argument}\n" for op, argument in self._accesses)
        parameters = ", ".join(self._names)
        return f"tt.func @{self._name}({parameters}) {{\n{accesses}  tt.return\n}}\n"


def _arguments_of(type: Any) -> int:
    """The number of the IR's arguments that torch expects for a parameter: a descriptor is followed
    by its extents and its strides."""
    if type == CONSTEXPR:
        return 0
    parsed = str_to_ty(type) if isinstance(type, str) else None  # None: a tuple
    if isinstance(parsed, tensor_descriptor_type):
        return 1 + 2 * parsed.block_type.rank
    return 1
