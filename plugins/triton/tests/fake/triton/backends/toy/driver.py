"""The driver of toys, which records what it launches."""

from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget

LAUNCHES: list[Any] = []


class ToyLauncher:
    def __init__(self, src: Any, metadata: Any) -> None:
        self.signature = dict(src.signature)
        self.speed = metadata.speed

    def __call__(self, *args: Any) -> None:
        import triton  # as a driver may do at any time

        LAUNCHES.append((triton.__version__, self.signature, self.speed, args))


class ToyDriver:
    launcher_cls = ToyLauncher

    def __init__(self) -> None:
        self.utils = SimpleNamespace(
            load_binary=lambda name, kernel, shared, device: ("module", f"<{name}>", 1, 2, 1024),
            get_device_properties=lambda device: {"max_shared_mem": 1 << 10},
        )

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("toy", "t1", 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 77

    def get_active_torch_device(self) -> Any:
        return SimpleNamespace(type="cpu")
