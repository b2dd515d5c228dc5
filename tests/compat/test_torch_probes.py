"""How torch detects `triton`, and what it imports from it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

CODE = """
import json
import tilewright
tilewright.install_as_triton()
from importlib import import_module
from torch.utils import _triton as probes
found = {name: getattr(probes, name)() for name in %(probes)r}
for name in %(modules)r:
    import_module(name)
from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor.runtime import runtime_utils, triton_compat, triton_helpers
from torch._inductor.utils import get_triton_attrs_descriptor_version
get_interface_for_device("cpu").raise_if_triton_unavailable()
triton_helpers.set_driver_to_cpu()
import triton
found["attrs"] = get_triton_attrs_descriptor_version().name
found["path"] = runtime_utils.triton_hash_to_path_key("ab" * 32)
found["options"] = triton_helpers.get_backend_options()["num_warps"]
found["same"] = (
    triton_compat.JITFunction is tilewright.JITFunction
    and triton_compat.ASTSource is triton.compiler.ASTSource
    and triton_compat.triton_key is triton.compiler.triton_key
    and triton_compat._log2 is triton.language.standard._log2
    and triton_compat.knobs is tilewright.knobs
    and triton_compat.builtins_use_semantic_kwarg
)
print(json.dumps(found))
"""

PROBES = [
    "has_triton_package",
    "get_triton_version",
    "has_triton",
    "has_triton_experimental_host_tma",
    "has_datacenter_blackwell_tma_device",
    "triton_hash_with_backend",
]

MODULES = [
    "torch._higher_order_ops.triton_kernel_wrap",
    "torch._inductor.codegen.triton",
    "torch._inductor.runtime.hints",
    "torch._inductor.runtime.static_triton_launcher",
    "torch._inductor.runtime.triton_heuristics",
    "torch._library.triton",
    "torch.sparse._triton_ops",
    "torch.utils.flop_counter",
]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    pytest.importorskip("torch", minversion="2.9")
    code = CODE % {"probes": PROBES, "modules": MODULES}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_probes(found: dict[str, Any]) -> None:
    assert found["has_triton_package"] is found["has_triton"] is True
    assert found["get_triton_version"] == [3, 7]
    assert found["has_triton_experimental_host_tma"] is False
    assert found["has_datacenter_blackwell_tma_device"] in (True, False)
    assert int(found["triton_hash_with_backend"], 16)


def test_torch_imports_our_modules(found: dict[str, Any]) -> None:
    assert found["same"] is True
    assert found["attrs"] == "V4_DICT"
    assert found["path"] == "VOV2XK5LVOV2XK5LVOV2XK5LVOV2XK5LVOV2XK5LVOV2XK5LVOVQ"
    assert found["options"] == 4
