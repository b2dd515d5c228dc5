"""What type checkers infer for a kernel: pyright checks `assert_type`, and calls nothing."""

import ast
from pathlib import Path
from typing import Any, assert_type

import tilewright as tw
import tilewright.language as tl


def kernel(x_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    blocks: tl.constexpr = tw.cdiv(n, BLOCK)  # not an int, as it would be on the host
    assert_type(x == 0, tl.tensor)
    assert_type((x != 0)[:, None] & (i < 8), tl.tensor)
    assert_type(BLOCK == 16, tl.constexpr)
    tl.static_assert(blocks > 0)
    tl.store(x_ptr + i, (x == 0).to(tl.float32))


def launch(x: Any, n: int) -> None:
    jitted = tw.jit(kernel)
    assert_type(jitted, tw.JITFunction)
    jitted[(tw.cdiv(n, 128),)](x, n, BLOCK=128, num_warps=4)


def _listed(module: Path) -> set[str]:
    """The names in the literal `__all__ = [...]` of a module."""
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_every_name_is_listed_literally_where_it_is_imported_from() -> None:
    """mypy does not read `__all__ += module.__all__`."""
    init = Path(tl.__file__)
    modules = [
        node.module.rpartition(".")[2]
        for node in ast.parse(init.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*"
    ]
    found = _listed(init).union(*(_listed(init.parent / f"{name}.py") for name in modules))
    assert found == set(tl.__all__)
