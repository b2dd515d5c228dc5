"""Number formats in exact arithmetic: what the tests of the ops' meanings compare with.

Nothing here uses NumPy's arithmetic or ml_dtypes: a float is its bit pattern, its value a Python
float (every format of 64 bits or fewer fits in one) or a `Fraction`, and rounding is done on
integers.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary float format.

    Attributes:
        bias: the exponent's bias.
        infinities: whether the top exponent holds infinities and NaNs, as IEEE 754 has it.
        fnuz: whether there is neither -0 nor infinity, and the pattern of -0 is the only NaN.
        nans: whether there are any. Where not, a NaN becomes the largest number.
        through: the name of a format to which numbers are truncated before they are rounded.
    """

    short: str
    bits: int
    mantissa: int
    bias: int
    infinities: bool = True
    fnuz: bool = False
    nans: bool = True
    through: str = ""

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest(self) -> int:
        """The pattern of the largest finite number."""
        if self.infinities:
            return (((1 << (self.bits - 1 - self.mantissa)) - 1) << self.mantissa) - 1
        if not self.nans:
            return self.sign_bit - 1
        return self.sign_bit - (1 if self.fnuz else 2)

    @property
    def nan(self) -> int:
        if self.fnuz:
            return self.sign_bit
        return self.sign_bit - 1  # all ones is a NaN with and without infinities; or the largest

    def decode(self, pattern: int) -> float:
        """The value of a bit pattern."""
        sign = -1.0 if pattern & self.sign_bit else 1.0
        rest = pattern & (self.sign_bit - 1)
        if self.fnuz and pattern == self.sign_bit:
            return math.nan
        if rest > self.largest:
            return sign * math.inf if self.infinities and rest == self.largest + 1 else math.nan
        field, fraction = rest >> self.mantissa, rest & ((1 << self.mantissa) - 1)
        exponent = max(field, 1) - self.bias - self.mantissa
        return sign * math.ldexp(fraction + ((1 << self.mantissa) if field else 0), exponent)

    def zero(self, negative: bool) -> int:
        return self.sign_bit if negative and not self.fnuz else 0

    def encode(
        self,
        value: Fraction | float,
        *,
        toward_zero: bool = False,
        saturate: bool = False,
        negative_zero: bool = False,
    ) -> int:
        """The pattern of the nearest number, ties to even; NaN, infinities and zeros as they are.

        Args:
            toward_zero: round toward zero instead.
            saturate: what is too large, or infinite, becomes the largest finite number.
            negative_zero: the sign of a zero, which a Fraction does not have.
        """
        saturate = saturate or not self.nans
        if self.through:
            step = FORMATS[self.through]
            value = step.decode(step.encode(value, toward_zero=True, negative_zero=negative_zero))
        if isinstance(value, float):
            if math.isnan(value):
                return self.nan
            if math.isinf(value):
                return self._overflow(value < 0, saturate)
            negative_zero = math.copysign(1, value) < 0
        exact = Fraction(value)
        if exact == 0:
            return self.zero(negative_zero)
        negative, magnitude = exact < 0, abs(exact)
        # floor(log2(magnitude)), by integers
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** exponent > magnitude:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        units = magnitude / Fraction(2) ** (exponent - self.mantissa)
        whole = math.floor(units)
        if not toward_zero:
            rest = units - whole
            whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
        # a carry out of the mantissa propagates into the exponent
        pattern = ((exponent - (1 - self.bias)) << self.mantissa) + whole
        if pattern > self.largest:
            if toward_zero:
                pattern = self.largest
            else:
                return self._overflow(negative, saturate)
        if pattern == 0:
            return self.zero(negative)
        return pattern | (self.sign_bit if negative else 0)

    def _overflow(self, negative: bool, saturate: bool) -> int:
        if saturate:
            return self.largest | (self.sign_bit if negative else 0)
        if not self.infinities:
            return self.nan
        return (self.largest + 1) | (self.sign_bit if negative else 0)

    def canonical(self, pattern: int) -> int:
        """The bits, with one NaN for all: which NaN an operation returns is not specified."""
        return self.nan if math.isnan(self.decode(pattern)) else pattern

    def samples(self, count: int) -> list[int]:
        """Patterns: the special ones, those around 1 and 2, and random ones."""
        top = self.largest
        smallest_normal = 1 << self.mantissa
        one = self.encode(1.0)
        found = [0, 1, smallest_normal - 1, smallest_normal, top, top - 1, one, one + 1, one - 1]
        found += [self.encode(v) for v in (0.5, 1.5, 2.0, 3.0, 7.0)]
        found += [self.largest + 1] if self.infinities else []
        found += [p | self.sign_bit for p in found]
        found.append(self.nan)
        rng = random.Random(self.short)
        while len(found) < count:
            found.append(rng.randrange(1 << self.bits))
        # near 1 sums and products round, where random exponents lie too far apart
        near = [one + rng.randrange(1 << self.mantissa) for _ in range(count // 4)]
        return found + near + [p | self.sign_bit for p in near[::2]]


FORMATS = {
    f.short: f
    for f in (
        Format("fp8e5", 8, 2, 15),
        Format("fp8e4nv", 8, 3, 7, infinities=False),
        Format("fp8e4b8", 8, 3, 8, infinities=False, fnuz=True),
        Format("fp8e5b16", 8, 2, 16, infinities=False, fnuz=True),
        Format("fp8e4b15", 8, 3, 15, infinities=False, nans=False, through="fp16"),
        Format("fp16", 16, 10, 15),
        Format("bf16", 16, 7, 127),
        Format("fp32", 32, 23, 127),
        Format("fp64", 64, 52, 1023),
    )
}


@dataclass(frozen=True)
class Integer:
    """A two's-complement or unsigned integer type; 1 bit is the bool."""

    short: str
    bits: int
    signed: bool

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return self.low + (1 << self.bits) - 1

    def wrap(self, value: int) -> int:
        return (value - self.low) % (1 << self.bits) + self.low

    def unsigned(self, value: int) -> int:
        """The bit pattern, read as unsigned."""
        return value % (1 << self.bits)

    def samples(self, count: int) -> list[int]:
        small = [0, 1, 2, 3, 5, 7, self.bits - 1, self.bits, self.bits + 1, 100]
        found = {self.wrap(v) for v in small} | {self.wrap(-v) for v in small}
        found |= {self.low, self.low + 1, self.high, self.high - 1, self.high // 2}
        rng = random.Random(self.short)
        for _ in range(count):
            found.add(self.wrap(rng.getrandbits(self.bits) >> rng.randrange(self.bits)))
        return sorted(found)


INTEGERS = {
    i.short: i
    for i in (
        Integer("i1", 1, False),
        *(Integer(f"{'i' if s else 'u'}{n}", n, s) for s in (True, False) for n in (8, 16, 32, 64)),
    )
}


def float_of_bits(pattern: int) -> float:
    """The fp64 with this pattern, by `struct`: to check `Format.decode` itself."""
    return struct.unpack("<d", struct.pack("<Q", pattern))[0]
