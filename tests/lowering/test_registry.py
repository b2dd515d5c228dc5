"""Tables by target reject names of targets that none has declared."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.target_names import declare_target
from tilewright.lowering import registry
from tilewright.lowering.registry import TargetTable, lowering_of, lowers
from tilewright.lowering.simt.kernel import emits
from tilewright.ops import arith, control

CHIP = declare_target("chip")


def test_lowering_of_the_target_precedes_the_common_one() -> None:
    table: TargetTable[Any] = TargetTable("emitters")
    table.of(arith.Add)(print)
    assert table.find(arith.Add, CHIP) is print
    table.of(arith.Add, target=CHIP)(len)
    assert table.find(arith.Add, CHIP) is len
    assert table.find(arith.Sub, CHIP) is None


@pytest.mark.parametrize("register", [lowers, emits])
def test_registration_for_an_undeclared_target_is_rejected(register: Any) -> None:
    with pytest.raises(ValueError, match=r"no target 'chipp' is declared; .*Did you mean 'chip'\?"):
        register(control.Barrier, target="chipp")
    assert "chipp" not in registry.LOWERINGS.get(control.Barrier, {})


def test_lookup_for_an_undeclared_target_is_rejected() -> None:
    message = r"lowerings: no target 'quartz' is declared; .*declare_target\('quartz'\)"
    with pytest.raises(ValueError, match=message):
        lowering_of(arith.Add, "quartz")


def test_second_function_for_a_target_is_rejected() -> None:
    table: TargetTable[Any] = TargetTable("emitters")
    table.of(arith.Add, target=CHIP)(print)
    with pytest.raises(ValueError, match=r"emitters: arith\.add already has one for 'chip'"):
        table.of(arith.Add, target=CHIP)(print)
    table.of(arith.Add)(print)
    with pytest.raises(ValueError, match=r"arith\.add already has one for all targets"):
        table.of(arith.Add)(print)
