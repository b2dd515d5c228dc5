"""The versions of JAX that kernels can be called from."""

OLDEST = (0, 6)
"""The oldest version that the tests have passed with."""

INSTALL = "install it with `pip install -U jax`, or `pip install -U jax[cuda13]` for GPUs"


def require_version(found: tuple[int, ...]) -> None:
    """Raise ImportError for a version of JAX that is too old."""
    if found < OLDEST:
        oldest, text = (".".join(map(str, version)) for version in (OLDEST, found))
        raise ImportError(f"tilewright.jax needs JAX {oldest} or newer, not {text}: {INSTALL}")
