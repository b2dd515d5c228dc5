"""A product and a sum become one operation, where nothing else uses the product."""

from __future__ import annotations

import pytest

from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Fma, Mul, Neg
from tilewright.passes.contract_sums import contract_sums

OPS = {
    "a sum": ("%r = arith.add %z, %a : (T, T) -> T", 1),
    "a difference": ("%r = arith.sub %a, %z : (T, T) -> T", 1),
    "a difference from a number": ("%r = arith.sub %z, %a : (T, T) -> T", 1),
    "twice": ("%r = arith.add %a, %a : (T, T) -> T", 0),
    "of two uses": (
        "%s = arith.add %a, %z : (T, T) -> T\n  %r = arith.div %s, %a, ieee=False : (T, T) -> T", 0,
    ),
}  # fmt: skip


def contracted(body: str, element: str, fused: bool = True) -> tuple[int, int]:
    """How many products are part of a sum, and how many are not."""
    text = f"""
func @sums(%x: T, %y: T, %z: T) -> T {{
  %a = arith.mul %x, %y : (T, T) -> T
  {body}
  control.return [%r] : T -> ()
}}
"""
    module = parse_module(text.replace("T", f"4x{element}"))
    contract_sums(module.entry, PassContext(options={"enable_fp_fusion": fused}))
    verify_module(module)
    ops = list(module.walk())
    return sum(isinstance(op, Fma) for op in ops), sum(isinstance(op, Mul) for op in ops)


@pytest.mark.parametrize("kind", OPS)
def test_a_product_with_one_use_is_contracted(kind: str) -> None:
    body, count = OPS[kind]
    for element in ("fp32", "fp64"):
        assert contracted(body, element) == (count, 1 - count)


def test_sums_of_narrow_floats_are_not() -> None:
    assert contracted(OPS["a sum"][0], "fp16") == (0, 1)


def test_the_option_forbids_it() -> None:
    assert contracted(OPS["a sum"][0], "fp32", fused=False) == (0, 1)


@pytest.mark.parametrize("sub", ["%z, %{a}", "%{a}, %z"])
def test_a_value_is_negated_once(sub: str) -> None:
    """LLVM's value numbering takes a time of the square of the number of equal values."""
    lines: list[str] = []
    for i in range(4):
        lines.append(f"%a{i} = arith.mul %x, %b{i} : (T, T) -> T")
        lines.append(f"%b{i + 1} = arith.sub {sub.format(a=f'a{i}')} : (T, T) -> T")
    text = "func @steps(%x: T, %b0: T, %z: T) -> T {\n" + "\n".join(lines)
    text += "\ncontrol.return [%b4] : T -> ()\n}\n"
    module = parse_module(text.replace("T", "4xfp32"))
    contract_sums(module.entry, PassContext(options={"enable_fp_fusion": True}))
    verify_module(module)
    ops = list(module.walk())
    assert sum(isinstance(op, Fma) for op in ops) == 4
    assert sum(isinstance(op, Neg) for op in ops) == 1
