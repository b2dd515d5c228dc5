"""Loading and launching of compiled kernels: one module per target, imported lazily."""
