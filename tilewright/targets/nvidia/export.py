"""Ahead-of-time export of NVIDIA kernels: a C source with an embedded cubin, and its header.

The source requires a C compiler and the driver's library only: without ``cuda.h`` it declares what
it uses. A kernel is loaded into each context once, at its first launch there or by an explicit
call. Loaded modules are a lock-free list, extended at its head by compare-and-swap, so that several
threads may launch concurrently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.diagnostics import OutOfResources
from tilewright.targets.export import (
    AXES,
    LINKAGE_BEGIN,
    LINKAGE_END,
    Export,
    ExportError,
    Interface,
    broken_hints,
    grid_lines,
    guarded,
    listed,
    promises,
)
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.protocol import Stage

STATIC_SHARED_LIMIT = 48 << 10  # bytes available without cuFuncSetAttribute

# Numbers of the driver's CUfunction_attribute.
_MAX_DYNAMIC_SHARED, _SHARED_CARVEOUT = 8, 9

# Numbers of the driver's CUlaunchAttributeID.
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6

_INVALID = "return (CUresult)CUDA_ERROR_INVALID_VALUE;"
_SERIALIZATION = "programmaticStreamSerializationAllowed"
_CONFIG = (
    *("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"),
    *("sharedMemBytes", "hStream"),
)

_DECLARATIONS = """
#if !defined(CUDA_VERSION) && defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#endif
#if !defined(CUDA_VERSION) && !defined(TILEWRIGHT_CUDA_TYPES)
#define TILEWRIGHT_CUDA_TYPES
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st *CUstream;
#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#endif
"""

# The driver's declarations that the source uses, beyond those of the header.
_DRIVER = """
#if !defined(CUDA_VERSION)
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef int CUfunction_attribute;
#define CUDA_ERROR_OUT_OF_MEMORY 2
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value);
CUresult cuLaunchKernel(CUfunction function, unsigned int gridX, unsigned int gridY,
                        unsigned int gridZ, unsigned int blockX, unsigned int blockY,
                        unsigned int blockZ, unsigned int shared, CUstream stream,
                        void **parameters, void **extra);
#endif
"""

_EXTENDED = """
#if !defined(CUDA_VERSION)
typedef int CUlaunchAttributeID;
typedef union {
  char pad[64];
  int cooperative;
  struct { unsigned int x, y, z; } clusterDim;
  int programmaticStreamSerializationAllowed;
} CUlaunchAttributeValue;
typedef struct {
  CUlaunchAttributeID id;
  char pad[8 - sizeof(CUlaunchAttributeID)];
  CUlaunchAttributeValue value;
} CUlaunchAttribute;
typedef struct {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned int numAttrs;
} CUlaunchConfig;
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra);
#endif
"""

_LOADING = """
#if defined(_MSC_VER)
#include <intrin.h>
static void *swap_if(void *volatile *at, void *expected, void *desired) {{
  return _InterlockedCompareExchangePointer(at, desired, expected);
}}
#else
static void *swap_if(void *volatile *at, void *expected, void *desired) {{
  __atomic_compare_exchange_n(at, &expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}}
#endif

/* The kernel in each context it has been loaded into, latest first. */
typedef struct loaded {{
  CUcontext context;
  CUmodule module;
  CUfunction function;
  struct loaded *next;
}} loaded;

static void *volatile all_loaded;

static loaded *newest(void) {{ return (loaded *)swap_if(&all_loaded, NULL, NULL); }}

/* Loads the kernel into the current context. If two threads do so concurrently, one of the two
 * modules remains unused until unload. */
static CUresult load(CUcontext context, CUfunction *function) {{
  CUresult status;
  loaded *fresh = (loaded *)malloc(sizeof *fresh);
  if (fresh == NULL) return (CUresult)CUDA_ERROR_OUT_OF_MEMORY;
  fresh->context = context;
  status = cuModuleLoadData(&fresh->module, image);
  if (status != CUDA_SUCCESS) {{
    free(fresh);
    return status;
  }}
  status = cuModuleGetFunction(&fresh->function, fresh->module, "{kernel}");
{attributes}  if (status != CUDA_SUCCESS) {{
    cuModuleUnload(fresh->module);
    free(fresh);
    return status;
  }}
  do fresh->next = newest();
  while (swap_if(&all_loaded, fresh->next, fresh) != fresh->next);
  *function = fresh->function;
  return status;
}}

/* The kernel in the current context. */
static CUresult find(CUfunction *function) {{
  CUcontext context = NULL;
  loaded *each;
  CUresult status = cuCtxGetCurrent(&context);
  if (status != CUDA_SUCCESS) return status;
  for (each = newest(); each != NULL; each = each->next)
    if (each->context == context) {{
      *function = each->function;
      return status;
    }}
  return load(context, function);
}}

CUresult load_{symbol}(void) {{
  CUfunction function;
  return find(&function);
}}

CUresult unload_{symbol}(void) {{
  CUresult status = CUDA_SUCCESS;
  loaded *each = newest();
  while (swap_if(&all_loaded, each, NULL) != each) each = newest();
  while (each != NULL) {{
    loaded *next = each->next;
    CUresult one = cuModuleUnload(each->module);
    if (status == CUDA_SUCCESS) status = one;
    free(each);
    each = next;
  }}
  return status;
}}
"""

_BITS = {
    "fp16": """
/* The bits of a number as fp16, to nearest even. */
static uint16_t bits_fp16(float number) {
  uint32_t bits, sign, rest;
  float scaled;
  memcpy(&bits, &number, 4);
  sign = bits >> 16 & 0x8000u;
  bits &= 0x7FFFFFFFu;
  if (bits > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
  if (bits >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
  if (bits < 0x38800000u) { /* subnormal: the addition rounds, in units of 2^-24 */
    memcpy(&scaled, &bits, 4);
    scaled += 0.5f;
    memcpy(&rest, &scaled, 4);
    return (uint16_t)(sign | (rest - 0x3F000000u));
  }
  bits += 0xFFFu + (bits >> 13 & 1u);
  return (uint16_t)(sign | ((bits - 0x38000000u) >> 13));
}
""",
    "bf16": """
/* The bits of a number as bf16, to nearest even. */
static uint16_t bits_bf16(float number) {
  uint32_t bits;
  memcpy(&bits, &number, 4);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
""",
}


def export(
    stages: Mapping[str, Stage], metadata: Mapping[str, Any], request: Export
) -> dict[str, bytes]:
    """The files of a launch function: ``.h`` and ``.c``.

    Raises:
        ExportError: the kernel needs global scratch memory, which the driver does not allocate, or
            more shared memory than the architecture has.
    """
    if metadata["tensor_maps"]:
        raise ExportError(
            f"{request.kernel} copies blocks of tensors, which C programs cannot describe to it: "
            "compile it with tensor_copies=False"
        )
    if metadata.get("global_scratch_size"):
        raise ExportError(
            f"{request.kernel} needs global scratch memory, which a launch from C does not have"
        )
    shared, limit = metadata["shared"], processor(metadata["arch"]).shared_limit
    if shared > limit:
        why = OutOfResources(shared, limit, "shared memory")
        raise ExportError(f"{request.kernel} does not fit {metadata['arch']}: {why}")
    face = _interface(request)
    header = guarded(request.symbol, _header(face, metadata, request))
    return {".h": header.encode(), ".c": _source(stages, metadata, request, face).encode()}


def _interface(request: Export) -> Interface:
    extents = [("int64_t", axis) for axis in AXES] if request.grid is None else []
    arguments = [("CUdeviceptr" if p.is_pointer else p.scalar, p.name) for p in request.parameters]
    return Interface(
        symbol=request.symbol,
        base=request.base,
        algorithm=request.algorithm,
        target=NAME,
        result="CUresult",
        failure="(CUresult)CUDA_ERROR_INVALID_VALUE",
        parameters=(("CUstream", "stream"), *extents, *arguments),
        hints={p.name: p.hint for p in request.parameters if p.hint},
        lifecycle=("load_", "unload_"),
    )


def _header(face: Interface, metadata: Mapping[str, Any], request: Export) -> str:
    return "\n".join(
        [
            f"/* {request.kernel}, compiled for {metadata['arch']}; link with the source file of",
            " * the same name and the driver's library (-lcuda).",
            " *",
            *promises(request),
            " */",
            face.directive,
            "#include <stdint.h>",
            _DECLARATIONS,
            LINKAGE_BEGIN,
            "",
            "/* Launches the kernel on a stream of the current context. Returns",
            " * CUDA_ERROR_INVALID_VALUE if this variant was not compiled for an argument. */",
            f"CUresult {face.symbol}({listed(face.parameters)});",
            "",
            "/* Loads it into the current context; otherwise the first launch does. */",
            f"CUresult load_{face.symbol}(void);",
            "",
            "/* Unloads it from all contexts. Call it when no launch is running, and before a",
            " * context is destroyed. */",
            f"CUresult unload_{face.symbol}(void);",
            "",
            LINKAGE_END,
        ]
    )


def _source(
    stages: Mapping[str, Stage], metadata: Mapping[str, Any], request: Export, face: Interface
) -> str:
    attributes = _launch_attributes(metadata)
    parts = [
        f"/* {request.kernel}, compiled for {metadata['arch']}: the definitions of the header. */",
        f'#include "{request.header}"',
        "#include <stdlib.h>\n#include <string.h>",
        _DRIVER,
        _EXTENDED if attributes else "",
        _image(stages),
        _LOADING.format(
            kernel=metadata["name"],
            symbol=request.symbol,
            attributes=_function_attributes(metadata["shared"]),
        ),
        *(_BITS[type] for type in sorted({p.type for p in request.passed if p.is_narrow})),
        _launch(metadata, request, face, attributes),
    ]
    return "\n".join(part.strip() + "\n" for part in parts if part)


def _image(stages: Mapping[str, Stage]) -> str:
    """The image to load, as an array in C: the cubin, or else PTX, which the driver compiles."""
    code = stages.get("cubin")
    form = "cubin" if isinstance(code, bytes) else "PTX, which the driver compiles"
    data = code if isinstance(code, bytes) else str(stages["ptx"]).encode() + b"\0"
    rows = [data[i : i + 20] for i in range(0, len(data), 20)]
    table = ",\n".join("  " + ",".join(map(str, row)) for row in rows)
    return f"/* {form} */\nstatic const unsigned char image[{len(data)}] = {{\n{table}\n}};"


def _function_attributes(shared: int) -> str:
    """Statements that set the kernel's function attributes for its shared memory."""
    attributes = [(_MAX_DYNAMIC_SHARED, shared)] if shared else []
    if shared > STATIC_SHARED_LIMIT:  # prefer shared memory to L1 cache
        attributes.append((_SHARED_CARVEOUT, 100))
    return "".join(
        "  if (status == CUDA_SUCCESS)\n"
        f"    status = cuFuncSetAttribute(fresh->function, (CUfunction_attribute){n}, {value});\n"
        for n, value in attributes
    )


def _launch_attributes(metadata: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The attributes of a launch: numbers of CUlaunchAttributeID, and assignments in C."""
    ctas = metadata["num_ctas"]
    return [
        *([(_CLUSTER, f"clusterDim.x = {ctas}")] if ctas > 1 else []),
        *([(_COOPERATIVE, "cooperative = 1")] if metadata["launch_cooperative_grid"] else []),
        *([(_DEPENDENT, f"{_SERIALIZATION} = 1")] if metadata["begins_early"] else []),
    ]


def _launch(
    metadata: Mapping[str, Any], request: Export, face: Interface, attributes: list[tuple[int, str]]
) -> str:
    """The definition of the launch function."""
    body = [f"const {line}" for line in grid_lines(request)]
    narrow = [p for p in request.passed if p.is_narrow]
    body += [f"uint16_t {p.name}_bits = bits_{p.type}({p.name});" for p in narrow]
    places = [f"&{p.name}_bits" if p.is_narrow else f"&{p.name}" for p in request.passed]
    body += [
        f"void *parameters[] = {{{', '.join([*places, 'NULL'])}}};",
        "CUfunction function;",
        "CUresult status;",
        *(f"if ({test}) {_INVALID}" for test in broken_hints(request)),
        f"if ({' || '.join(f'{axis} < 0 || {axis} > 2147483647' for axis in AXES)})",
        f"  {_INVALID}",
        f"if ({' || '.join(f'{axis} == 0' for axis in AXES)}) return CUDA_SUCCESS;",
        "status = find(&function);",
        "if (status != CUDA_SUCCESS) return status;",
        *_call(metadata, attributes),
    ]
    lines = "\n".join(f"  {line}" for line in body)
    return f"CUresult {request.symbol}({listed(face.parameters)}) {{\n{lines}\n}}"


def _call(metadata: Mapping[str, Any], attributes: list[tuple[int, str]]) -> list[str]:
    """Statements that launch the kernel."""
    ctas = metadata["num_ctas"]
    blocks = ["(unsigned int)gridX", "(unsigned int)gridY", "(unsigned int)gridZ"]
    if ctas > 1:
        blocks[0] = f"(unsigned int)gridX * {ctas}"
    shape = [*blocks, str(metadata["launch_warps"] * metadata["warp_size"]), "1", "1"]
    shape += [str(metadata["shared"]), "stream"]
    if not attributes:
        return [f"return cuLaunchKernel(function, {', '.join(shape)}, parameters, NULL);"]
    lines = [f"CUlaunchAttribute attributes[{len(attributes)}];", "CUlaunchConfig config;"]
    lines.append("memset(attributes, 0, sizeof attributes);")
    lines.append("memset(&config, 0, sizeof config);")
    for i, (number, field) in enumerate(attributes):
        lines.append(f"attributes[{i}].id = (CUlaunchAttributeID){number};")
        lines.append(f"attributes[{i}].value.{field};")
        if number == _CLUSTER:
            lines.append(f"attributes[{i}].value.clusterDim.y = 1;")
            lines.append(f"attributes[{i}].value.clusterDim.z = 1;")
    for field, value in zip(_CONFIG, shape, strict=True):
        lines.append(f"config.{field} = {value};")
    lines += ["config.attrs = attributes;", f"config.numAttrs = {len(attributes)};"]
    return [*lines, "return cuLaunchKernelEx(&config, function, parameters, NULL);"]
