"""What a kernel may choose from, unless its target leaves something out."""

DOT_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")

# All are taken on every target, as what the hardware lacks is done in software; `strict_triton`
# leaves those that it has.
FP8_TYPES = ("fp8e5", "fp8e5b16", "fp8e4nv", "fp8e4b8", "fp8e4b15")
