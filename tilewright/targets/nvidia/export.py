"""Kernels on an NVIDIA GPU for programs in C: a source with the cubin inside, and its header.

The source needs a C compiler and the driver's library, nothing else: where there is no ``cuda.h``
it declares what it uses. A kernel is loaded into each context that it is launched in, once, the
first time or when the program asks for it. The list of loaded modules only ever grows at its head,
by a compare-and-swap, so that threads may launch at the same time.
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
from tilewright.targets.protocol import Stage

NAME = "cuda"
STATIC_SHARED_LIMIT = 48 << 10  # bytes that a kernel has without asking

# Numbers of the driver's CUfunction_attribute.
_MAX_DYNAMIC_SHARED, _SHARED_CARVEOUT = 8, 9

# Numbers of the driver's CUlaunchAttributeID.
_COOPERATIVE, _CLUSTER, _DEPENDENT = 2, 4, 6

_REFUSED = "return (CUresult)CUDA_ERROR_INVALID_VALUE;"
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

# What the source uses of the driver beyond what its header declares.
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
static void *swap_if(void *volatile *at, void *expected, void *wanted) {{
  return _InterlockedCompareExchangePointer(at, wanted, expected);
}}
#else
static void *swap_if(void *volatile *at, void *expected, void *wanted) {{
  __atomic_compare_exchange_n(at, &expected, wanted, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}}
#endif

/* The kernel in each context that it has been loaded into, the newest first. */
typedef struct loaded {{
  CUcontext context;
  CUmodule module;
  CUfunction function;
  struct loaded *next;
}} loaded;

static void *volatile all_loaded;

static loaded *newest(void) {{ return (loaded *)swap_if(&all_loaded, NULL, NULL); }}

/* Loads the kernel into the current context. Two threads that are the first there at the same time
 * both do, and one module is used no more. */
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
    stages: Mapping[str, Stage], metadata: Mapping[str, Any], asked: Export
) -> dict[str, bytes]:
    """The files of a launch function: ``.h`` and ``.c``.

    Raises:
        ExportError: a launch takes what the driver alone does not do, or more shared memory than
            the architecture has.
    """
    if metadata["global_scratch_size"]:
        raise ExportError(
            f"{asked.kernel} needs global scratch memory, which a launch from C does not have"
        )
    shared, limit = metadata["shared"], processor(metadata["arch"]).shared_limit
    if shared > limit:
        why = OutOfResources(shared, limit, "shared memory")
        raise ExportError(f"{asked.kernel} does not fit {metadata['arch']}: {why}")
    face = _interface(asked)
    header = guarded(asked.symbol, _header(face, metadata, asked))
    return {".h": header.encode(), ".c": _source(stages, metadata, asked, face).encode()}


def _interface(asked: Export) -> Interface:
    extents = [("int64_t", axis) for axis in AXES] if asked.grid is None else []
    arguments = [("CUdeviceptr" if p.is_pointer else p.scalar, p.name) for p in asked.parameters]
    return Interface(
        symbol=asked.symbol,
        base=asked.base,
        algorithm=asked.algorithm,
        target=NAME,
        result="CUresult",
        failure="(CUresult)CUDA_ERROR_INVALID_VALUE",
        parameters=(("CUstream", "stream"), *extents, *arguments),
        hints={p.name: p.hint for p in asked.parameters if p.hint},
        lifecycle=("load_", "unload_"),
    )


def _header(face: Interface, metadata: Mapping[str, Any], asked: Export) -> str:
    return "\n".join(
        [
            f"/* {asked.kernel}, compiled for {metadata['arch']}; link with the source file of the",
            " * same name and the driver's library (-lcuda).",
            " *",
            *promises(asked),
            " */",
            face.directive,
            "#include <stdint.h>",
            _DECLARATIONS,
            LINKAGE_BEGIN,
            "",
            "/* Starts the kernel on a stream of the current context. An argument that is not what",
            " * this variant was compiled for gives CUDA_ERROR_INVALID_VALUE. */",
            f"CUresult {face.symbol}({listed(face.parameters)});",
            "",
            "/* Loads it into the current context, which otherwise the first launch there does. */",
            f"CUresult load_{face.symbol}(void);",
            "",
            "/* Unloads it everywhere: when no launch runs, and before a context is destroyed. */",
            f"CUresult unload_{face.symbol}(void);",
            "",
            LINKAGE_END,
        ]
    )


def _source(
    stages: Mapping[str, Stage], metadata: Mapping[str, Any], asked: Export, face: Interface
) -> str:
    attributes = _launch_attributes(metadata)
    parts = [
        f"/* {asked.kernel}, compiled for {metadata['arch']}: the other half of the header. */",
        f'#include "{asked.header}"',
        "#include <stdlib.h>\n#include <string.h>",
        _DRIVER,
        _EXTENDED if attributes else "",
        _image(stages),
        _LOADING.format(
            kernel=metadata["name"],
            symbol=asked.symbol,
            attributes=_function_attributes(metadata["shared"]),
        ),
        *(_BITS[type] for type in sorted({p.type for p in asked.passed if p.is_narrow})),
        _launch(metadata, asked, face, attributes),
    ]
    return "\n".join(part.strip() + "\n" for part in parts if part)


def _image(stages: Mapping[str, Stage]) -> str:
    """What the driver loads, as a table: a cubin, else PTX, which it compiles."""
    code = stages.get("cubin")
    form = "cubin" if isinstance(code, bytes) else "PTX, which the driver compiles"
    data = code if isinstance(code, bytes) else str(stages["ptx"]).encode() + b"\0"
    rows = [data[i : i + 20] for i in range(0, len(data), 20)]
    table = ",\n".join("  " + ",".join(map(str, row)) for row in rows)
    return f"/* {form} */\nstatic const unsigned char image[{len(data)}] = {{\n{table}\n}};"


def _function_attributes(shared: int) -> str:
    """Statements that ask for a kernel's shared memory."""
    wanted = [(_MAX_DYNAMIC_SHARED, shared)] if shared else []
    if shared > STATIC_SHARED_LIMIT:  # the cache gives way to it
        wanted.append((_SHARED_CARVEOUT, 100))
    return "".join(
        "  if (status == CUDA_SUCCESS)\n"
        f"    status = cuFuncSetAttribute(fresh->function, (CUfunction_attribute){n}, {value});\n"
        for n, value in wanted
    )


def _launch_attributes(metadata: Mapping[str, Any]) -> list[tuple[int, str]]:
    """What a launch asks for beyond grid, block and shared memory: numbers, and fields in C."""
    ctas = metadata["num_ctas"]
    return [
        *([(_CLUSTER, f"clusterDim.x = {ctas}")] if ctas > 1 else []),
        *([(_COOPERATIVE, "cooperative = 1")] if metadata["launch_cooperative_grid"] else []),
        *([(_DEPENDENT, f"{_SERIALIZATION} = 1")] if metadata["launch_pdl"] else []),
    ]


def _launch(
    metadata: Mapping[str, Any], asked: Export, face: Interface, attributes: list[tuple[int, str]]
) -> str:
    """The definition of the launch function."""
    body = [f"const {line}" for line in grid_lines(asked)]
    narrow = [p for p in asked.passed if p.is_narrow]
    body += [f"uint16_t {p.name}_bits = bits_{p.type}({p.name});" for p in narrow]
    places = [f"&{p.name}_bits" if p.is_narrow else f"&{p.name}" for p in asked.passed]
    body += [
        f"void *parameters[] = {{{', '.join([*places, 'NULL'])}}};",
        "CUfunction function;",
        "CUresult status;",
        *(f"if ({test}) {_REFUSED}" for test in broken_hints(asked)),
        f"if ({' || '.join(f'{axis} < 0 || {axis} > 2147483647' for axis in AXES)})",
        f"  {_REFUSED}",
        f"if ({' || '.join(f'{axis} == 0' for axis in AXES)}) return CUDA_SUCCESS;",
        "status = find(&function);",
        "if (status != CUDA_SUCCESS) return status;",
        *_call(metadata, attributes),
    ]
    lines = "\n".join(f"  {line}" for line in body)
    return f"CUresult {asked.symbol}({listed(face.parameters)}) {{\n{lines}\n}}"


def _call(metadata: Mapping[str, Any], attributes: list[tuple[int, str]]) -> list[str]:
    """Statements that start the kernel."""
    ctas = metadata["num_ctas"]
    blocks = ["(unsigned int)gridX", "(unsigned int)gridY", "(unsigned int)gridZ"]
    if ctas > 1:
        blocks[0] = f"(unsigned int)gridX * {ctas}"
    shape = [*blocks, str(metadata["num_warps"] * metadata["warp_size"]), "1", "1"]
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
