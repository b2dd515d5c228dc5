"""The compiler of toys."""

from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget


@dataclass(frozen=True)
class ToyOptions:
    num_warps: int = 4
    num_stages: int = 3
    enable_fp_fusion: bool = True
    debug: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e5",)
    speed: int = 1
    arch: str | None = None


class ToyBackend:
    binary_ext = "toycode"

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "toy"

    def hash(self) -> str:
        return f"toy-{self.target.arch}"

    def parse_options(self, given: dict[str, Any]) -> ToyOptions:
        if given.get("speed", 1) > 9:
            raise ValueError("toys have no speed above 9")
        assert isinstance(given.get("supported_fp8_dtypes", ()), tuple)
        known: dict[str, Any] = {"arch": str(self.target.arch), **given}
        return ToyOptions(**known)

    def get_codegen_implementation(self, options: ToyOptions) -> dict[str, Any]:
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 256 // lhs.scalar.primitive_bitwidth)}

    def load_dialects(self, context: object) -> None:
        pass

    def pack_metadata(self, metadata: Any) -> tuple[int, int]:
        return metadata.num_warps, metadata.shared

    def add_stages(self, stages: dict[str, Any], options: ToyOptions, language: Any) -> None:
        stages["ttir"] = lambda module, metadata: module
        stages["toyir"] = lambda module, metadata: f"// speed {options.speed}\n{module}"
        stages["toycode"] = self._code

    def _code(self, text: str, metadata: dict[str, Any]) -> bytes:
        print("toys print while they compile")
        metadata["shared"], metadata["name"] = 64, text.partition("@")[2].partition("(")[0]
        return text.encode()
