"""A kernel launched by native code and by the reference, side by side, without compiling anything.

    twin = Twin(lambda x, n: ..., do_not_specialize=["n"])
    twin.launch(array, 5)        # by native code once it has the key
    twin.natively                # whether the last launch was

What is launched is a C callback that records the bytes of its arguments. Each launch is compared
with the reference: the variant must be the one of the reference's key, the bytes its packer's.
"""

import ctypes
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import runtime_arguments
from tilewright.frontend.source import KernelParam
from tilewright.runtime.devices import cpu
from tilewright.runtime.grid import extents_of
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.native.launcher import Launcher
from tilewright.runtime.native.layout import CPU
from tilewright.runtime.native.records import Start, slots_of
from tilewright.runtime.native.runtime import Runtime, runtime
from tilewright.runtime.specialize import make_binder

KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


def native() -> Runtime:
    """This process's native code; the tests need it."""
    found = runtime()
    assert found is not None
    return found


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or the error that it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def types_of(specs: tuple[Any, ...], constexprs: list[bool]) -> list[Any]:
    """The type of each parameter of a variant."""
    pairs = zip(specs, constexprs, strict=True)
    return ["constexpr" if constexpr else spec[0] for spec, constexpr in pairs]


class Variant(CompiledKernel):
    """A stand-in for a compiled kernel, which records the bytes of its arguments."""

    def __init__(self, key: Any, types: list[Any], seen: list[bytes]) -> None:
        self.key = key
        self.types = types
        self.arguments = arguments = list(runtime_arguments(types))
        self.packer = make_packer(arguments)
        size = 8 * len(arguments)

        def run(args: int, scratch: int | None, *_: Any) -> None:
            seen.append(ctypes.string_at(args, size))
            self.scratch = scratch or 0
            if scratch:
                ctypes.memset(scratch, 0, self.scratch_bytes)

        self.scratch, self.scratch_bytes = 0, 0
        self.callback = KERNEL(run)
        self.loaded: Any = SimpleNamespace(native_start=self.native_start)

    def native_start(self, runtime: Runtime) -> Start | None:
        pool, slots = cpu.native_pool(), slots_of(self.arguments, self.types)
        assert pool is not None
        runtime.use_pool(pool, cpu.SLICE_NS)
        address = ctypes.cast(self.callback, ctypes.c_void_p).value or 0
        fields = {"kind": CPU, "function": address, "threads": 1, "cores": 1}
        fields["scratch"] = self.scratch_bytes
        return None if slots is None else Start(fields, {}, slots)


class Twin:
    """A kernel of a function's signature.

    Args:
        runtime: what launches it, if not this process's native code.

    Attributes:
        launcher: the native one.
        natively: whether the last launch was by native code.
    """

    def __init__(
        self, function: Callable[..., Any], runtime: Runtime | None = None, **options: Any
    ) -> None:
        self.signature = inspect.signature(function)
        self.pre_run_hooks: list[Any] = []
        self.used_global_vals: dict[Any, Any] = {}
        self.used_objects: dict[Any, Any] = {}
        named = {name: set(options.get(name, ())) for name in ("do_not_specialize",)}
        aligned = set(options.get("do_not_specialize_on_alignment", ()))
        self.params = [
            KernelParam(i, p, p.name in named["do_not_specialize"], p.name in aligned)
            for i, p in enumerate(self.signature.parameters.values())
        ]
        self.binder = make_binder("kernel", self.signature, self.params)
        self.variants: dict[Any, Variant] = {}
        self.seen: list[bytes] = []
        self.natively = True
        self.launcher = Launcher(runtime or native(), self, self.by_reference)

    def by_reference(self, grid: Any, /, *args: Any, **kwargs: Any) -> Variant:
        self.natively = False
        values, slots, variant = self.bind(*args, **kwargs)
        if callable(grid):
            grid = grid(dict(zip([p.name for p in self.params], values, strict=True)))
        extents_of(grid)
        self.seen.append(variant.packer(slots))
        return variant

    def bind(self, /, *args: Any, **kwargs: Any) -> tuple[Any, Any, Variant]:
        """What the reference makes of the arguments: values, slots and the variant."""
        values, slots, key, options = self.binder(*args, **kwargs)
        key = (key, tuple((k, type(v), repr(v)) for k, v in options.items()))
        variant = self.variants.get(key)
        if variant is None:
            types = types_of(key[0][3], [p.is_constexpr for p in self.params])
            variant = self.variants[key] = Variant(key, types, self.seen)
        return values, slots, variant

    def launch(self, /, *args: Any, **kwargs: Any) -> bytes:
        """Launch, compare with the reference, and give the bytes of the arguments."""
        self.natively = True
        self.seen.clear()
        got = self.launcher.bind((1,))(*args, **kwargs)
        (packed,) = self.seen
        _, slots, variant = self.bind(*args, **kwargs)
        assert got is variant, f"another variant than that of {variant.key}"
        assert packed == variant.packer(slots)
        return packed
