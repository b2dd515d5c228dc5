"""Tables by op class take one function for each class, and nothing that is no class of ops."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir.op_table import OpTable
from tilewright.ops import arith


def test_function_is_found_by_its_class_alone() -> None:
    table: OpTable[Any] = OpTable("rules")

    @table.of(arith.Add, arith.Sub)
    def rule() -> None: ...

    assert table.get(arith.Add) is table.get(arith.Sub) is rule
    assert table.get(arith.Mul) is None


def test_second_function_of_a_class_is_rejected() -> None:
    table: OpTable[Any] = OpTable("rules")
    table.of(arith.Add)(print)
    with pytest.raises(ValueError, match=r"rules: arith\.add already has one"):
        table.of(arith.Add)(print)


def test_key_other_than_an_op_class_is_rejected() -> None:
    table: OpTable[Any] = OpTable("rules")
    for key in ("arith.add", int):
        wrong: Any = key
        with pytest.raises(ValueError, match="is not a class of ops"):
            table.of(wrong)(print)
