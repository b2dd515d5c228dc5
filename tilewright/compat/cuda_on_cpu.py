"""What programs request of CUDA through torch, on the CPU, where torch has no GPU.

    python -m tilewright run --cuda-on-cpu test_of_kernels.py

Devices ``"cuda"`` in calls of torch become the CPU (by a `TorchFunctionMode`, which sees each
call), and the functions of `torch.cuda` that programs of kernels call are replaced. A tensor that
is moved to a device that the program names is copied, as by a GPU. Anything else of CUDA's, such as
its graphs, raises torch's error. Where torch has a GPU, nothing changes.

torch is a parameter, since only programs that import it need this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.runtime.driver import driver_of

CAPABILITY = (8, 0)
"""The compute capability: one for which programs take their general paths, and bf16."""


def adapt(torch: Any) -> None:
    """Make a module `torch` that has no GPU accept CUDA's devices, from now on and in this thread,
    and provide functions of `torch.cuda`."""
    if torch.cuda.is_available():
        return
    for name, value in _functions(torch).items():
        setattr(torch.cuda, name, value)
    torch.cpu.device = torch.cuda.device  # for programs that take the module by `x.device.type`
    # What programs call that Inductor has generated.
    torch._C._cuda_getCurrentRawStream = lambda index: 0
    guards = torch._C._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu
    torch.set_default_device = _with_cpu(torch, torch.set_default_device)
    torch.Generator = _generator(torch)
    torch.autocast.__init__ = _autocast(torch, torch.autocast.__init__)
    _mode(torch).__enter__()


def _cpu(torch: Any, value: Any) -> Any:
    """The CPU for a device of CUDA's, and any other value itself."""
    is_cuda = (
        value == "cuda" or value.startswith("cuda:")
        if isinstance(value, str)
        else isinstance(value, torch.device) and value.type == "cuda"
    )
    return torch.device("cpu") if is_cuda else value


def _with_cpu(torch: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda device: function(_cpu(torch, device))


def _generator(torch: Any) -> type:
    class Generator(torch.Generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, _cpu(torch, device))

    return Generator


def _autocast(torch: Any, initialize: Callable[..., None]) -> Callable[..., None]:
    """The initializer of `torch.autocast`, whose element type is CUDA's where none is given."""

    def __init__(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", torch.float16 if dtype is None else dtype
        initialize(self, device_type, dtype, *args, **kwargs)

    return __init__


def _mode(torch: Any) -> Any:
    """The mode in which torch's functions take the CPU for CUDA's devices."""
    tensor = torch.Tensor
    replaced: dict[Any, Callable[..., Any]] = {
        tensor.is_cuda.__get__: lambda x, *_: True,
        tensor.get_device: lambda x: 0,
        tensor.cuda: lambda x, *_, **__: x.clone(),
        tensor.cpu: lambda x, *_, **__: x.clone(),
        tensor.pin_memory: lambda x, *_: x.clone(),
    }

    class CudaOnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self,
            func: Any,
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.device:
                return func(*args, **kwargs)  # its `type` is the one that the program gave it
            if func in replaced:
                return replaced[func](*args, **kwargs)
            if func == tensor.to and _names_device((*args[1:2], kwargs.get("device"))):
                kwargs = {**kwargs, "copy": True}
            args = [_cpu(torch, a) for a in args]
            return func(*args, **{name: _cpu(torch, v) for name, v in kwargs.items()})

    def _names_device(values: Sequence[Any]) -> bool:
        """Whether one is a device that the program names, and not that of a tensor."""
        return any(value == "cpu" or _cpu(torch, value) is not value for value in values)

    return CudaOnCpu()


class Context:
    """A device or a stream as a context: there is only one."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record()
        return event


class Event(Context):
    """A time of the host's clock, as launches on the CPU have ended when they return."""

    _time: float = 0.0

    def record(self, stream: object = None) -> None:
        self._time = time.perf_counter()

    def wait(self, stream: object = None) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        """The milliseconds until another event."""
        return 1e3 * (end._time - self._time)


def _functions(torch: Any) -> dict[str, Any]:
    """The names of `torch.cuda` that are replaced."""

    def always(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(int(number))

    contexts = ("device", "device_of", "_DeviceGuard", "Stream", "ExternalStream", "stream")
    no_effect = ("init", "set_device", "set_stream", "synchronize", "reset_peak_memory_stats")
    return {
        # A class or function for each name, as Dynamo has a rule for each of torch's.
        **{name: type(name, (Context,), {}) for name in contexts},
        **{name: always(None) for name in no_effect},
        "Event": Event,
        "current_stream": Context,
        "default_stream": Context,
        "is_available": always(True),
        "is_bf16_supported": always(True),
        "device_count": always(1),
        "current_device": always(0),
        "get_device_properties": lambda device=None: _properties(),
        "get_device_name": lambda device=None: _properties().name,
        "get_device_capability": always(CAPABILITY),
        "mem_get_info": lambda device=None: (_cpu_driver().free_memory(0), _total_memory()),
        "manual_seed": seed,
        "manual_seed_all": lambda number: seed(number),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "default_generators": (torch.default_generator,),
    }


def _cpu_driver() -> Any:
    return driver_of("cpu")


def _total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _properties() -> SimpleNamespace:
    """The CPU as a GPU, of which each multiprocessor is a thread."""
    known = _cpu_driver().utils.get_device_properties(0)
    return SimpleNamespace(
        name=_cpu_driver().describe(0),
        gcnArchName="",  # which Inductor reads of a GPU where torch has no version of CUDA
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=_total_memory(),
        multi_processor_count=known["multiprocessor_count"],
        shared_memory_per_block_optin=known["max_shared_mem"],
        regs_per_multiprocessor=known["max_num_regs"],
        warp_size=known["warpSize"],
    )
