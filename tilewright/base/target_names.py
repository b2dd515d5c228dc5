"""Names of targets that have lowerings and emitters of their own."""

from __future__ import annotations

from tilewright.base.spelling import similar

_declared: set[str] = set()


def declare_target(name: str) -> str:
    """Declare the name of a target, and return it. Tables by target reject all other names.

    CUDA = declare_target("cuda")
    """
    _declared.add(name)
    return name


def check_target(name: str, contents: str) -> None:
    """Raise ValueError unless the target is declared.

    Args:
        contents: what is looked up or registered for it, for the message: ``"lowerings"``.
    """
    if name not in _declared:
        near = similar(name, _declared)
        raise ValueError(
            f"{contents}: no target {name!r} is declared; there are {', '.join(sorted(_declared))}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f" A target declares its name with declare_target({name!r})"
        )
