"""The CPU's own passes on tile IR, which follow the common ones."""

from tilewright.ir.passes import Step
from tilewright.passes.reduce_assertions import reduce_assertions

STEPS = (Step(reduce_assertions),)
