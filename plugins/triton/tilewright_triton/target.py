"""The target `triton:BACKEND/ARCH`: tile IR as TTIR, compiled by a back end of Triton."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import make_dataclass
from typing import Any

from tilewright.base.diagnostics import Loc
from tilewright.base.findings import NOTE, OK, Finding
from tilewright.base.lazy import cached_property
from tilewright.base.located import error_at
from tilewright.base.locks import Lock
from tilewright.compiler.version import hash_of_tree
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step
from tilewright.ir.types import SCALARS, DType
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.pad_tiles import pad_tiles
from tilewright.targets.protocol import Claims, Lowered, Stage, options_from
from tilewright_triton.client import (
    TritonFailure,
    TritonMissingError,
    client,
    python,
    stage_of,
    version_of,
)
from tilewright_triton.ttir.print_ttir import print_ttir
from tilewright_triton.vendors import vendor_of

DEFAULT = "cuda/90"
MLIR = "mlir"
"""The name of the stage that is handed to Triton. The stage `ttir` is tile IR, on every target."""

_STEPS = (Step(pad_tiles), Step(merge_equal_values), Step(remove_dead_code))


class TritonTarget:
    """See `tilewright.targets.protocol.Target`.

    Args:
        arch: a back end of Triton and its name for the architecture: ``cuda/90``,
            ``hip/gfx942``. A third part is the number of lanes of a warp, for a back end that
            `vendors.py` does not know.
    """

    name = "triton"
    interface = 1

    def __init__(self, arch: int | str = "") -> None:
        parts = str(arch or DEFAULT).split("/")
        if len(parts) not in (2, 3) or not all(parts) or not (parts[2:] or ["1"])[0].isdigit():
            raise ValueError(
                f"the architecture of the target `triton` is BACKEND/ARCH, such as {DEFAULT} or "
                f"hip/gfx942, not {arch!r}"
            )
        self.arch = "/".join(parts)
        self.vendor = vendor_of(parts[0])
        lanes = int(parts[2]) if parts[2:] else self.vendor.lanes_of(parts[1])
        self._request = {"target": [parts[0], parts[1], lanes]}
        self._resolved: dict[str, Any] = {}
        self._lock = Lock()

    # -- what the back end says of itself -------------------------------------------------------

    def _ask(self, what: str, **more: Any) -> dict[str, Any]:
        return client().ask({"what": what, **self._request, **more})

    @cached_property
    def described(self) -> dict[str, Any]:
        """The back end's hash, options with their defaults, and minimum extents of products."""
        try:
            return self._ask("describe")
        except TritonFailure as error:
            raise TritonMissingError(f"the target triton:{self.arch}: {error}") from error

    @cached_property
    def _options(self) -> type[Any]:
        """The dataclass of the back end's options."""
        fields = [(n, Any, _tupled(v)) for n, v in self.described["options"].items()]
        return make_dataclass("TritonOptions", fields, frozen=True)

    def key(self) -> str:
        own = hash_of_tree(os.path.dirname(__file__))
        return f"triton {version_of(client())} {self.arch} {self.described['hash']} {own}"

    def features(self) -> frozenset[str]:
        return frozenset()

    def claims(self) -> Claims:
        types = tuple(t.short for t in SCALARS if not t.is_fp8() or t.short in self._fp8_types())
        return Claims(
            types=types, atomics=_OF_ATOMICS, without=("use of atomic_poll", *self.vendor.without)
        )

    def _fp8_types(self) -> tuple[str, ...]:
        return tuple(self.described["options"].get("supported_fp8_dtypes", ()))

    # -- compilation ----------------------------------------------------------------------------

    def parse_options(self, given: Mapping[str, Any]) -> Any:
        """The options of a kernel, as the back end completes them."""
        checked = options_from(self._options, {**self.vendor.options, **given})
        own = {n: v for n, v in vars(checked).items() if v != _tupled(self._default(n))}
        key = json.dumps(own, sort_keys=True, default=repr)
        with self._lock:
            if key not in self._resolved:
                try:
                    found = self._ask("options", given=own)["options"]
                except TritonFailure as error:
                    raise ValueError(str(error)) from error
                self._resolved[key] = self._options(**{n: _tupled(v) for n, v in found.items()})
            return self._resolved[key]

    def _default(self, name: str) -> Any:
        return self.described["options"][name]

    def frontend_options(self, options: Any) -> FrontendOptions:
        known = vars(options)
        names = (
            "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes",
            "default_dot_input_precision", "allowed_dot_input_precisions",
            "max_num_imprecise_acc_default", "debug", "sanitize_overflow", "num_warps",
            "num_stages", "enable_fp_fusion",
        )  # fmt: skip
        return FrontendOptions(
            **{n: known[n] for n in names if known.get(n) is not None},
            min_dot_size=self._min_dot_size,
            assembly=self.vendor.assembly,
            backend_name=self.vendor.name,
            arch=str(known.get("arch") or self.arch.partition("/")[2]),
        )

    def _min_dot_size(self, lhs: DType, rhs: DType) -> tuple[int, int, int]:
        m, n, k = self.described["dots"][str(lhs.primitive_bitwidth)]
        return m, n, k

    def steps(self) -> Sequence[Step]:
        return _STEPS

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        text = ctx.replaced_text(MLIR) or print_ttir(module, self.vendor, locations=True)
        own = {n: v for n, v in vars(options).items() if v != _tupled(self._default(n))}
        try:
            answer = self._ask("compile", text=text, given=own)
        except TritonFailure as error:
            raise error_at(_loc_of(module, error.loc), str(error)) from error
        stages = {n: stage_of(s) for n, s in answer["stages"].items() if n != "ttir"}
        metadata = answer["metadata"]
        name = metadata.get("name") or module.entry.name
        about = {"name": name, "shared": metadata.get("shared", 0), "vendor": metadata}
        return Lowered({MLIR: text, **stages}, about)

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        raise KeyError(stage)

    def examine(self) -> Iterable[Finding]:
        """Findings about Triton, for `python -m tilewright doctor`."""
        try:
            version = version_of(client())
            found = client().ask({"what": "backends"})["backends"]
        except TritonMissingError as error:
            yield Finding(NOTE, "Triton", str(error), "Only the target `triton` needs it.")
            return
        yield Finding(OK, "Triton", f"{version} of {python()}; back ends: {', '.join(found)}")


def _loc_of(module: Module, place: Loc | None) -> Loc | None:
    """The location of the op that Triton names by file, line and column; else the kernel's."""
    if place is not None:
        at = place.file, place.line, place.column
        locs = (op.loc for op in module.walk() if op.loc is not None)
        found = next((loc for loc in locs if (loc.file, loc.line, loc.column) == at), None)
        if found is not None:
            return found
    return module.entry.loc


_OF_ATOMICS = ("i32", "u32", "i64", "u64", "fp32", "fp64")


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list) else value
