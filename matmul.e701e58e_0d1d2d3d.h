#ifndef TILEWRIGHT_MATMUL_E701E58E_0D1D2D3D_H
#define TILEWRIGHT_MATMUL_E701E58E_0D1D2D3D_H

/* matmul, compiled for sm86; link with the source file of
 * the same name and the driver's library (-lcuda).
 *
 *   a: *fp32, a multiple of 16
 *   b: *fp32, a multiple of 16
 *   c: *fp32, a multiple of 16
 *   n: i32, a multiple of 16
 *   stride = 1
 *   B = 128
 */
// tt-linker: {"symbol": "matmul_e701e58e_0d1d2d3d", "base": "matmul", "algorithm": "warps4xstages3,stride=1,B=128", "target": "cuda", "result": "CUresult", "failure": "(CUresult)CUDA_ERROR_INVALID_VALUE", "parameters": [["CUstream", "stream"], ["int64_t", "gridX"], ["int64_t", "gridY"], ["int64_t", "gridZ"], ["CUdeviceptr", "a"], ["CUdeviceptr", "b"], ["CUdeviceptr", "c"], ["int32_t", "n"]], "hints": {"a": 16, "b": 16, "c": 16, "n": 16}, "lifecycle": ["load_", "unload_"]}
#include <stdint.h>

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

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the kernel on a stream of the current context. Returns
 * CUDA_ERROR_INVALID_VALUE if this variant was not compiled for an argument. */
CUresult matmul_e701e58e_0d1d2d3d(CUstream stream, int64_t gridX, int64_t gridY, int64_t gridZ, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int32_t n);

/* Loads it into the current context; otherwise the first launch does. */
CUresult load_matmul_e701e58e_0d1d2d3d(void);

/* Unloads it from all contexts. Call it when no launch is running, and before a
 * context is destroyed. */
CUresult unload_matmul_e701e58e_0d1d2d3d(void);

#ifdef __cplusplus
}
#endif

#endif /* TILEWRIGHT_MATMUL_E701E58E_0D1D2D3D_H */
