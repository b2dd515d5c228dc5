"""The dot precisions and fp8 types that kernels may use, unless the target restricts them."""

DOT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")

# All targets support all types, in software if necessary; `strict_triton` restricts them to those
# that the hardware supports.
FP8_TYPES = ("fp8e5", "fp8e5b16", "fp8e4nv", "fp8e4b8", "fp8e4b15")
