"""What `ASTSource.make_ir` returns for torch's analysis of mutations."""

from typing import Any

import tilewright.language as tl
from tilewright.compat.native_compiler import ir
from tilewright.compiler import make_backend
from tilewright.compiler.source import ASTSource
from tilewright.runtime.jit import jit
from tilewright.targets.protocol import GPUTarget


def move(block, x, pair, BLOCK: tl.constexpr, out):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, block.load([0, 0]).sum(0) + tl.load(x + i) + tl.load(pair[1]))
    tl.atomic_add(pair[0], 1.0)


SIGNATURE: dict[str, Any] = {
    "block": "tensordesc<fp32[4, 8]>", "x": "*fp32", "pair": ("*fp32", "*fp32"), "out": "*fp32",
}  # fmt: skip


def test_arguments_and_accesses() -> None:
    target = GPUTarget("cpu")
    backend: Any = make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    source = ASTSource(jit(move), SIGNATURE, {"BLOCK": 8})
    module = source.make_ir(target, options, functions, modules, context)
    assert module.verify()
    operations: list[Any] = []
    module.walk(operations.append)
    *accesses, end, function, last = operations
    assert [op.get_name() for op in (end, function, last)] == [
        "tt.return",
        "tt.func",
        "builtin.module",
    ]
    assert function.get_str_attr("sym_name") == "move"
    block = end.get_block()
    assert function.get_region(0).id() == block.get_parent().id()
    # A descriptor has its base, two extents and two strides.
    numbers = {block.get_argument(i).id(): i for i in range(block.get_num_arguments())}
    assert list(numbers.values()) == list(range(5 + 1 + 1 + 1))
    found = [(op.get_name(), numbers[op.get_operand(0).id()]) for op in accesses]
    loads = [("tt.load", i) for i in (0, 5, 6, 6)]  # an atomic operation also reads
    assert found == [*loads, ("tt.store", 7), ("tt.store", 6)]
    assert str(module).startswith("tt.func @move(%0, %1")
