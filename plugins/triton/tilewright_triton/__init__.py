"""A target of tilewright that compiles by the back ends of Triton, unmodified."""
