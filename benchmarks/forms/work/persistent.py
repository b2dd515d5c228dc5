"""Launches of `kernels/persistent.py`."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.forms.form import Forms, Prepared
from benchmarks.gpu.case import Setting
from tilewright import cdiv, next_power_of_2

FORMS = Forms("persistent")

Block = tuple[int, int, int]
PROCESSORS = 132
FP8 = torch.float8_e5m2


def _softmax(setting: Setting, columns: int, stages: int, resident: int) -> Prepared:
    rows, columns = setting.pick(20, 4096, 4096), setting.pick(200, columns, columns)
    programs = setting.pick(3, PROCESSORS * resident, PROCESSORS * resident)
    x, y = setting.randn(rows, columns), setting.empty(rows, columns)
    block = next_power_of_2(columns)
    return Prepared(
        lambda kernels: kernels.softmax_of_rows[(programs,)](
            x, y, columns, columns, rows, columns, BLOCK=block, STAGES=stages, num_warps=8
        ),
        [y],
        tolerance=1e-5,
    )


FORMS.add("looping softmax 4096x384", lambda s: _softmax(s, 384, 4, 8))
FORMS.add("looping softmax 4096x1024", lambda s: _softmax(s, 1024, 4, 8))
FORMS.add("looping softmax 4096x4096", lambda s: _softmax(s, 4096, 4, 4))
FORMS.add("looping softmax 4096x12672", lambda s: _softmax(s, 12672, 4, 1))


def _operands(
    setting: Setting, sizes: Block, dtype: torch.dtype, along_k: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n, k = (setting.pick(min(256, size), size, size) for size in sizes)
    a, b = setting.randn(m, k).to(dtype), (setting.randn(n, k) * 0.1).to(dtype)
    if not along_k:
        b = (setting.randn(k, n) * 0.1).to(dtype).T
    result = torch.float16 if dtype == FP8 else dtype
    return a, b.T, setting.empty(m, n, dtype=result)


def _grouped(
    setting: Setting,
    size: int,
    block: Block,
    warps: int,
    stages: int,
    dtype: torch.dtype = torch.float16,
    leaky: bool = False,
) -> Prepared:
    a, b, c = _operands(setting, (size, size, size), dtype, along_k=dtype == FP8)
    (m, k), n, (bm, bn, bk) = a.shape, b.shape[1], block
    return Prepared(
        lambda kernels: kernels.grouped[(cdiv(m, bm) * cdiv(n, bn),)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=bm, BN=bn, BK=bk, GROUP=8,
            LEAKY=leaky, num_warps=warps, num_stages=stages,
        ),
        [c],
    )  # fmt: skip


for _size, _block, _warps, _stages in (
    (4096, (128, 256, 64), 8, 3),
    (4096, (64, 256, 32), 4, 4),
    (2048, (128, 128, 32), 4, 4),
    (2048, (128, 64, 32), 4, 4),
    (1024, (64, 128, 32), 4, 4),
    (1024, (128, 32, 32), 4, 4),
    (512, (64, 32, 32), 2, 5),
    (512, (32, 64, 32), 2, 5),
):
    FORMS.add(
        f"grouped product {_size}, {'x'.join(map(str, _block))}",
        lambda s, size=_size, block=_block, warps=_warps, stages=_stages: _grouped(
            s, size, block, warps, stages
        ),
    )
for _size, _block, _warps, _stages in (
    (4096, (128, 256, 128), 8, 3),
    (4096, (256, 64, 128), 4, 4),
    (2048, (128, 128, 128), 4, 4),
    (1024, (128, 64, 64), 4, 4),
    (512, (128, 32, 64), 4, 4),
):
    FORMS.add(
        f"grouped product of fp8, {_size}, {'x'.join(map(str, _block))}",
        lambda s, size=_size, block=_block, warps=_warps, stages=_stages: _grouped(
            s, size, block, warps, stages, FP8
        ),
    )
FORMS.add(
    "grouped product, leaky ReLU, 2048",
    lambda s: _grouped(s, 2048, (128, 256, 64), 8, 3, leaky=True),
)


def _allocate(size: int, alignment: int, stream: Any) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.int8)


def _through_descriptors(
    setting: Setting,
    kernel: str,
    dtype: torch.dtype = torch.float16,
    block: Block = (128, 256, 64),
    sizes: Block = (8192, 8192, 512),
    halves: bool = False,
) -> Prepared:
    """The product with rows of b along K."""
    a, b, c = _operands(setting, sizes, dtype, along_k=True)
    (m, k), n, (bm, bn, bk) = a.shape, b.shape[1], block
    tiles = cdiv(m, bm) * cdiv(n, bn)
    grid = (tiles if kernel == "by_descriptors" else min(tiles, PROCESSORS),)
    constants = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "num_warps": 8, "num_stages": 3}
    if kernel != "by_descriptors":
        constants["HALVES"] = halves

    def launch(kernels: Any) -> Any:
        if kernel == "looping_by_own_descriptors":
            kernels.triton.set_allocator(_allocate)
            return kernels.looping_by_own_descriptors[grid](a, b.T, c, m, n, k, **constants)
        make = kernels.descriptors.TensorDescriptor.from_tensor
        given = make(a, [bm, bk]), make(b.T, [bn, bk]), make(c, [bm, bn // 2 if halves else bn])
        return getattr(kernels, kernel)[grid](*given, m, n, k, **constants)

    return Prepared(launch, [c])


@FORMS.form("looping product 8192x8192x512")
def looping(setting: Setting) -> Prepared:
    a, b, c = _operands(setting, (8192, 8192, 512), torch.float16, along_k=True)
    (m, k), n = a.shape, b.shape[1]
    return Prepared(
        lambda kernels: kernels.looping[(min(cdiv(m, 128) * cdiv(n, 256), PROCESSORS),)](
            a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=128, BN=256, BK=64,
            GROUP=8, num_warps=8, num_stages=3,
        ),
        [c],
    )  # fmt: skip


for _kernel, _title in (
    ("by_descriptors", "product by descriptors"),
    ("looping_by_descriptors", "looping product by descriptors"),
    ("looping_by_own_descriptors", "looping product by own descriptors"),
):
    for _dtype, _name, _depth in ((torch.float16, "fp16", 64), (torch.float8_e4m3fn, "fp8", 128)):
        FORMS.add(
            f"{_title}, {_name}, 8192x8192x512",
            lambda s, kernel=_kernel, dtype=_dtype, depth=_depth: _through_descriptors(
                s, kernel, dtype, (128, 256, depth)
            ),
        )
FORMS.add(
    "looping product by descriptors, in halves",
    lambda s: _through_descriptors(s, "looping_by_descriptors", halves=True),
)
FORMS.add(
    "looping product by own descriptors, 128x128x64",
    lambda s: _through_descriptors(s, "looping_by_own_descriptors", block=(128, 128, 64)),
)


@FORMS.form("products of 4 sizes, looping")
def of_groups(setting: Setting) -> Prepared:
    half = torch.float16
    sizes = setting.pick([128, 256], [1024, 512, 256, 128], [1024, 512, 256, 128])
    a, b = ([setting.randn(n, n, dtype=half) * 0.1 for n in sizes] for _ in range(2))
    c = [torch.empty_like(one) for one in a]
    device = a[0].device
    tables = [
        torch.tensor([0 if device.type == "meta" else one.data_ptr() for one in group]).to(device)
        for group in (a, b, c)
    ]
    extents = torch.tensor([[n, n, n] for n in sizes], dtype=torch.int32).to(device)

    def launch(kernels: Any, _alive: Any = (a, b)) -> Any:
        return kernels.of_groups[(PROCESSORS,)](
            *tables, extents, extents, len(sizes), BM=128, BN=128, BK=32, num_warps=4, num_stages=3
        )

    return Prepared(launch, c)
