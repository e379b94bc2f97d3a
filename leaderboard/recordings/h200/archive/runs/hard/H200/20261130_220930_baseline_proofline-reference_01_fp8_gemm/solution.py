"""FP8 matrix product: ``y = bf16(bf16(x @ W^T) * c)``, x (M, K) and W (N, K) in e4m3, one fp32 scale c per column of y.

Bytes moved: ``M*K + K*N + 2*M*N + 4*N``; operations: ``2*M*N*K``. Floors on an H200 (1979 TFLOPS, 4800 GB/s), larger one
first: 69.4 us operations / 14.0 us bytes (4096, 4096, 4096); 70.0 / 14.1 us (4096, 4096, 4127); 14.2 us bytes / 2.2 us
operations (32, 8192, 8192); 243 us operations / 40.2 us bytes (4096, 14336, 4096).

Three Hopper kernels. ``wide``: 128 x 256 tiles, 128 columns of K a step, four stages, one loading and two multiplying
warpgroups that stay on the chip from tile to tile; the two blocks of a cluster share the tile of W by multicast. ``narrow``,
for M <= 32: the roles of x and W are exchanged, a block streams 128 rows of W over half of K, a cluster adds the halves.
``pad``: where K is no multiple of 16, the bulk loads cannot address the rows, so x is copied to padded rows in every call and
W once for each version of the weight. Other GPUs, and N that is no multiple of 8, use the portable Triton kernel.

Limits: indices are 32-bit except those of y and of the padded copy. Products are added in the tensor core's own accumulator over
all of K, as the vendor's fast accumulation does: where most terms of a sum have one sign, it loses low bits (a test with x
and W correlated by accident was off by up to 9 % in the sums of about 70).

Measured (us by the deck's method, one call on an idle stream; then kernel time): 107 / 120 / 31 / 356, geomean 0.368 (the version
before: 117 / 128 / 38 / 363, 0.334, in the same process); kernels 97.7, 10.5 + 101.8, 22.0, 330. The vendor library, in another
process: 132 / 189 / 51 / 384, geomean 0.270; kernels 91.9, 92 + padding, 29.7, 312. A call is one plain C function bound to its
plan; the memory of the next result is asked for while the kernel runs. Tried: W read without evict-first (0.355), barrier
arrivals with cluster-wide release (a full memory barrier each step), bursts of 1, 2 and 5 loads in ``narrow`` (25.1, 25.1, 26.2
us), multiplying warpgroups out of step (no gain), rows of x read unpadded, sixteen at a time (faulted). See the notes in
``docs/kernels/fp8_gemm.md``.
"""

import functools
import warnings

import torch
import triton
import triton.language as tl
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__

DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

DEVICE uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// For the end of a kernel and after barrier_init: blocks wait for each other, but pass no data.
DEVICE void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

DEVICE void barrier_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

DEVICE void barrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

DEVICE void barrier_arrive(uint32_t bar, uint32_t rank) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar), "r"(rank) : "memory");
}

DEVICE void barrier_wait(uint32_t bar, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
}

DEVICE void tma_load(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(bar), "r"(inner), "r"(outer) : "memory");
}

// For what is read once: its lines are the first that the L2 should give up.
DEVICE void tma_load_once(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(bar), "r"(inner), "r"(outer), "l"(policy) : "memory");
}

DEVICE void tma_load_both(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(bar), "r"(inner), "r"(outer), "h"((uint16_t)3)
        : "memory");
}

// K-major operand, rows of 128 bytes, 128-byte swizzle: eight rows are one 1024-byte atom.
DEVICE uint64_t descriptor(uint32_t address) {
    return (uint64_t)((address & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

WGMMA_CODE

DEVICE uint32_t scaled_pair(float a, float b, float2 scale) {
    float pa = __bfloat162float(__float2bfloat16_rn(a)) * scale.x;
    float pb = __bfloat162float(__float2bfloat16_rn(b)) * scale.y;
    __nv_bfloat162 pair = __floats2bfloat162_rn(pa, pb);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// Lane t of a quad holds word t of four 16-byte vectors; afterwards it holds all of vector t.
DEVICE uint4 quad_transpose(uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3, int t) {
    bool odd = t & 1, high = t & 2;
    uint32_t a = __shfl_xor_sync(~0u, odd ? v0 : v1, 1), b = __shfl_xor_sync(~0u, odd ? v2 : v3, 1);
    if (odd) { v0 = a; v2 = b; } else { v1 = a; v3 = b; }
    a = __shfl_xor_sync(~0u, high ? v0 : v2, 2), b = __shfl_xor_sync(~0u, high ? v1 : v3, 2);
    if (high) { v0 = a; v1 = b; } else { v2 = a; v3 = b; }
    return make_uint4(v0, v1, v2, v3);
}

// ---------------------------------------------------------------- wide: 128 x 256 tiles, two blocks share the W tile

constexpr int WIDE_STAGES = 4;
constexpr int WIDE_A = 128 * 128, WIDE_B = 256 * 128;
constexpr int WIDE_SHARED = WIDE_STAGES * (WIDE_A + WIDE_B) + 1024 + 256 + 2 * 1024;

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
wide_kernel(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
            const float* __restrict__ scale, __nv_bfloat16* __restrict__ y, int M, int N, int K) {
    extern __shared__ uint8_t raw[];
    const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
    const uint32_t tiles_b = base + WIDE_STAGES * WIDE_A;
    const uint32_t full = tiles_b + WIDE_STAGES * WIDE_B, empty = full + 8 * WIDE_STAGES;
    const uint32_t rank = cluster_rank();
    const int group = threadIdx.x / 128;
    const int blocks_k = (K + 127) / 128;
    const int tiles_m = (M + 255) / 256, tiles = tiles_m * ((N + 255) / 256);

    if (threadIdx.x == 0) {
        for (int s = 0; s < WIDE_STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 16);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_meet();

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int stage = 0, phase = 1;
            asm volatile("griddepcontrol.wait;" ::: "memory");
            for (int tile = blockIdx.x / 2; tile < tiles; tile += gridDim.x / 2) {
                const int row = (tile % tiles_m) * 256 + rank * 128, column = (tile / tiles_m) * 256 + rank * 128;
                for (int kb = 0; kb < blocks_k; kb++) {
                    const uint32_t bar = full + 8 * stage, a = base + stage * WIDE_A;
                    barrier_wait(empty + 8 * stage, phase);
                    barrier_expect(bar, WIDE_A + WIDE_B);
                    tma_load_both(tiles_b + stage * WIDE_B + rank * (WIDE_B / 2), &map_w, bar, kb * 128, column);
                    tma_load(a, &map_x, bar, kb * 128, row);
                    if (++stage == WIDE_STAGES) { stage = 0; phase ^= 1; }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int half = group - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, t = lane % 4, g = lane / 4;
        // Each warpgroup has its own copy of the tile's scales, fetched before the products that hide it.
        float* const scales = reinterpret_cast<float*>(raw + (empty + 8 * WIDE_STAGES - shared_address(raw))) + half * 256;
        int stage = 0, phase = 0;
        float d[128];
        for (int tile = blockIdx.x / 2; tile < tiles; tile += gridDim.x / 2) {
            const int row0 = (tile % tiles_m) * 256 + rank * 128, column0 = (tile / tiles_m) * 256;
            int previous = 0;
            const int mine = column0 + 2 * (threadIdx.x % 128);
            float2 own = make_float2(0, 0);
            if (mine < N) own = __ldg(reinterpret_cast<const float2*>(scale + mine));
            *reinterpret_cast<float2*>(scales + mine - column0) = own;
            for (int kb = 0; kb < blocks_k; kb++) {
                barrier_wait(full + 8 * stage, phase);
                const uint64_t a = descriptor(base + stage * WIDE_A + half * 8192);
                const uint64_t b = descriptor(tiles_b + stage * WIDE_B);
                wgmma_fence();
                wgmma_e4m3_256(d, a, b, kb > 0);
#pragma unroll
                for (int k = 1; k < 4; k++) wgmma_e4m3_256(d, a + 2 * k, b + 2 * k, 1);
                wgmma_commit();
                if (kb > 0) {
                    wgmma_wait<1>();
                    if (lane < 2) barrier_arrive(empty + 8 * previous, lane);
                }
                previous = stage;
                if (++stage == WIDE_STAGES) { stage = 0; phase ^= 1; }
            }
            wgmma_wait<0>();
            if (lane < 2) barrier_arrive(empty + 8 * previous, lane);

            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            const int r = half * 64 + warp * 16 + g;
            const int top = row0 + r, bottom = top + 8;
#pragma unroll
            for (int q = 0; q < 8; q++) {
                uint32_t up[4], down[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int block = 4 * q + j;
                    const float2 c = *reinterpret_cast<const float2*>(scales + 8 * block + 2 * t);
                    up[j] = scaled_pair(d[4 * block], d[4 * block + 1], c);
                    down[j] = scaled_pair(d[4 * block + 2], d[4 * block + 3], c);
                }
                const uint4 first = quad_transpose(up[0], up[1], up[2], up[3], t);
                const uint4 second = quad_transpose(down[0], down[1], down[2], down[3], t);
                const int column = column0 + 8 * (4 * q + t);
                if (column < N) {
                    if (top < M) *reinterpret_cast<uint4*>(y + (size_t)top * N + column) = first;
                    if (bottom < M) *reinterpret_cast<uint4*>(y + (size_t)bottom * N + column) = second;
                }
            }
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
        }
    }
    cluster_meet();
}

// ---------------------------------------------------------------- narrow: M <= 32, 128 rows of W per block, K in halves

constexpr int NARROW_W = 128 * 128, NARROW_X = 32 * 128, NARROW_PITCH = 132;

template <int STAGES, int BURST>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(288, 1)
narrow_kernel(const __grid_constant__ CUtensorMap map_x, const __grid_constant__ CUtensorMap map_w,
              const float* __restrict__ scale, __nv_bfloat16* __restrict__ y, int M, int N, int K) {
    extern __shared__ uint8_t raw[];
    const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
    const uint32_t tiles_x = base + STAGES * NARROW_W;
    const uint32_t full = tiles_x + STAGES * NARROW_X, empty = full + 8 * STAGES;
    const uint32_t rank = cluster_rank();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int column0 = blockIdx.x / 2 * 128;
    const int all = (K + 127) / 128, first = rank == 0 ? 0 : all / 2, last = rank == 0 ? all / 2 : all;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    float d[16];
#pragma unroll
    for (int i = 0; i < 16; i++) d[i] = 0;
    if (warp == 8) {
        if (lane == 0) {
            int stage = 0, phase = 1;
            for (int kb = first; kb < last; kb += BURST) {
                const int many = min(BURST, last - kb);
                for (int i = 0; i < many; i++) barrier_wait(empty + 8 * (stage + i), phase);
                for (int i = 0; i < many; i++) {
                    const uint32_t bar = full + 8 * (stage + i);
                    barrier_expect(bar, NARROW_W + NARROW_X);
                    tma_load_once(base + (stage + i) * NARROW_W, &map_w, bar, (kb + i) * 128, column0);
                    tma_load(tiles_x + (stage + i) * NARROW_X, &map_x, bar, (kb + i) * 128, 0);
                }
                stage += BURST;
                if (stage == STAGES) { stage = 0; phase ^= 1; }
            }
        }
    } else {
        int stage = 0, phase = 0;
        for (int kb = first; kb < last; kb++) {
            barrier_wait(full + 8 * stage, phase);
            const uint64_t a = descriptor(base + stage * NARROW_W + warp / 4 * 8192);
            const uint64_t b = descriptor(tiles_x + stage * NARROW_X);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) wgmma_e4m3_32(d, a + 2 * k, b + 2 * k, 1);
            wgmma_commit();
            wgmma_wait<0>();
            if (lane == 0) barrier_arrive(empty + 8 * stage, rank);
            if (++stage == STAGES) { stage = 0; phase ^= 1; }
        }
    }
    __syncthreads();
    float* partial = reinterpret_cast<float*>(raw + (base - shared_address(raw)));
    if (warp < 8) {
        const int row = warp * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float* at = partial + (8 * j + 2 * (lane % 4)) * NARROW_PITCH + row;
            at[0] = d[4 * j];
            at[NARROW_PITCH] = d[4 * j + 1];
            at[8] = d[4 * j + 2];
            at[NARROW_PITCH + 8] = d[4 * j + 3];
        }
    }
    cluster_sync();
    if (warp < 8) {
        uint32_t mine = shared_address(partial), other;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(mine), "r"(rank ^ 1));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int m = rank * 16 + i * 8 + warp, n = 4 * lane, column = column0 + n;
            const int at = m * NARROW_PITCH + n;
            float4 p = *reinterpret_cast<float4*>(partial + at), q;
            asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(q.x), "=f"(q.y), "=f"(q.z), "=f"(q.w) : "r"(other + 4 * at));
            if (m < M && column < N) {
                const float4 c = __ldg(reinterpret_cast<const float4*>(scale + column));
                uint2 out;
                out.x = scaled_pair(p.x + q.x, p.y + q.y, make_float2(c.x, c.y));
                out.y = scaled_pair(p.z + q.z, p.w + q.w, make_float2(c.z, c.w));
                *reinterpret_cast<uint2*>(y + (size_t)m * N + column) = out;
            }
        }
    }
    cluster_meet();
}

// ---------------------------------------------------------------- rows of x moved to multiples of 16 bytes, zeros after them

__global__ void __launch_bounds__(288) pad_kernel(const uint8_t* __restrict__ x, uint8_t* __restrict__ to, int M, int K, int pitch) {
    const int row = blockIdx.x;
    const uint64_t total = (uint64_t)M * K;
    asm volatile("griddepcontrol.launch_dependents;");
    for (int at = threadIdx.x * 16; at < pitch; at += 288 * 16) {
        const int left = K - at;
        const uint64_t from = (uint64_t)row * K + at;
        const uint32_t* word = reinterpret_cast<const uint32_t*>(x + (from & ~3ull));
        const uint32_t shift = from % 4 * 8;
        uint32_t w[5], out[4];
#pragma unroll
        for (int j = 0; j < 5; j++) {
            const uint64_t here = (from & ~3ull) + 4 * j;
            w[j] = 0;
            if (here + 4 <= total) w[j] = __ldg(word + j);
            else
                for (int byte = 0; byte < 4; byte++)
                    if (here + byte < total) w[j] |= (uint32_t)x[here + byte] << (8 * byte);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            out[j] = __funnelshift_r(w[j], w[j + 1], shift);
            const int valid = left - 4 * j;
            if (valid <= 0) out[j] = 0;
            else if (valid < 4) out[j] &= (1u << (8 * valid)) - 1;
        }
        *reinterpret_cast<uint4*>(to + (size_t)row * pitch + at) = make_uint4(out[0], out[1], out[2], out[3]);
    }
}

// ---------------------------------------------------------------- host

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static bool encode_map(CUtensorMap* map, const void* data, uint64_t inner, uint64_t outer, uint32_t rows) {
    static Encode encode = nullptr;
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000, cudaEnableDefault, &found);
        if (!encode) return false;
    }
    cuuint64_t sizes[2] = {inner, outer}, strides[1] = {inner};
    cuuint32_t box[2] = {128, rows}, steps[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// A map holds an address and sizes, no contents, so the last one of each matrix serves while those are the same.
struct Mapped {
    const void* data;
    uint64_t inner, outer;
    uint32_t rows;
    CUtensorMap map;

    bool make(const void* of, uint64_t wide, uint64_t high, uint32_t box) {
        if (data == of && inner == wide && outer == high && rows == box) return true;
        data = encode_map(&map, of, wide, high, box) ? of : nullptr;
        inner = wide, outer = high, rows = box;
        return data;
    }
};

int pad(const void* x, void* to, int M, int K, int pitch, cudaStream_t stream) {
    pad_kernel<<<M, 288, 0, stream>>>(static_cast<const uint8_t*>(x), static_cast<uint8_t*>(to), M, K, pitch);
    return cudaGetLastError();
}

// K: a multiple of 16, for both matrices. Returns a CUDA error code, or -1 for a bad map.
int launch(const void* x, const void* w, const float* scale, void* y, int M, int N, int K, int processors,
           int after_pad, cudaStream_t stream) {
    static bool ready = false;
    constexpr int stages = 10, narrow_shared = stages * (NARROW_W + NARROW_X + 16) + 1024;
    if (!ready) {
        cudaFuncSetAttribute(wide_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WIDE_SHARED);
        cudaFuncSetAttribute(narrow_kernel<stages, 2>, cudaFuncAttributeMaxDynamicSharedMemorySize, narrow_shared);
        ready = true;
    }
    static thread_local Mapped of_x, of_w;
    __nv_bfloat16* out = static_cast<__nv_bfloat16*>(y);
    if (!of_w.make(w, K, N, 128) || !of_x.make(x, K, M, M <= 32 ? 32 : 128)) return -1;
    const CUtensorMap &map_x = of_x.map, &map_w = of_w.map;
    if (M <= 32) {
        narrow_kernel<stages, 2><<<(N + 127) / 128 * 2, 288, narrow_shared, stream>>>(map_x, map_w, scale, out, M, N, K);
    } else {
        const int tiles = (M + 255) / 256 * ((N + 255) / 256);
        const int blocks = 2 * (tiles < processors / 2 ? tiles : processors / 2);
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(384);
        config.dynamicSmemBytes = WIDE_SHARED;
        config.stream = stream;
        cudaLaunchAttribute attribute[1];
        attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[0].val.programmaticStreamSerializationAllowed = 1;
        config.attrs = attribute;
        config.numAttrs = after_pad;
        return cudaLaunchKernelEx(&config, wide_kernel, map_x, map_w, scale, out, M, N, K);
    }
    return cudaGetLastError();
}
"""

BINDING = r"""
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

int pad(const void*, void*, int, int, int, cudaStream_t);
int launch(const void*, const void*, const float*, void*, int, int, int, int, int, cudaStream_t);

// The rows of W with zeros after them up to a multiple of 16 bytes (the weight itself where that adds nothing), and which
// weight, at which version, they were made from; and the memory of the next result. That memory is asked for behind the
// launch, while the kernel runs; every result has memory of its own all the same.
struct Plan {
    at::Tensor rows;
    const void* from;
    int64_t version, processors;
    at::TensorBase next, next_padded;
    cudaStream_t owner;

    static at::TensorBase take(at::TensorBase& from, at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
        at::TensorBase memory = std::move(from);
        if (memory.defined() && memory.sizes() == sizes && memory.device() == device) return memory;
        return at::detail::empty_cuda(sizes, type, device, std::nullopt);
    }
};

// run(x, weight, scale), a plain C function whose self is the plan: half the cost of a bound one. None where the weight has
// changed since the plan was made.
static PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    TORCH_CHECK(count == 3, "run: need 3 arguments");
    for (int i = 0; i < 3; i++) TORCH_CHECK(THPVariable_Check(args[i]), "run: need three tensors");
    const at::Tensor &given = THPVariable_Unpack(args[0]), &weight = THPVariable_Unpack(args[1]);
    const at::Tensor& scale = THPVariable_Unpack(args[2]);
    if (plan.from != weight.const_data_ptr() || plan.version != weight._version()) Py_RETURN_NONE;
    const bool usable = given.is_contiguous() && reinterpret_cast<uintptr_t>(given.const_data_ptr()) % 16 == 0;
    const at::Tensor x = usable ? given : given.clone(at::MemoryFormat::Contiguous);
    const int64_t M = x.size(0), K = x.size(1), N = plan.rows.size(0), pitch = plan.rows.size(1);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    // A graph must own what it writes to.
    const bool captures = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    if (captures || plan.owner != stream) plan.next.reset(), plan.next_padded.reset();
    at::TensorBase y, padded;
    const void* source = x.const_data_ptr();
    int error = 0;
    if (pitch != K && M > 0) {
        padded = Plan::take(plan.next_padded, {M, pitch}, at::kByte, x.device());
        error = pad(source, padded.mutable_data_ptr(), M, K, pitch, stream);
        source = padded.const_data_ptr();
    }
    y = Plan::take(plan.next, {M, N}, at::kBFloat16, x.device());
    if (!error && M > 0)
        error = launch(source, plan.rows.const_data_ptr(), scale.const_data_ptr<float>(), y.mutable_data_ptr(), M, N, pitch,
                       plan.processors, pitch != K, stream);
    TORCH_CHECK(error == 0, "launch failed: ", error);
    if (!captures) {
        plan.next = at::detail::empty_cuda({M, N}, at::kBFloat16, x.device(), std::nullopt);
        plan.next_padded = std::move(padded);
        plan.owner = stream;
    }
    return THPVariable_Wrap(std::move(y));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef method = {"run", (PyCFunction)(void*)run, METH_FASTCALL, nullptr};

static pybind11::object bind(const at::Tensor& rows, const at::Tensor& weight, int64_t processors) {
    Plan* plan = new Plan{rows, weight.const_data_ptr(), static_cast<int64_t>(weight._version()), processors, {}, {}, nullptr};
    pybind11::capsule self(plan, [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, self.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""


def wgmma(columns):
    """Return the C++ wrapper of one warpgroup product of 64 rows, 32 e4m3 columns and a given width."""
    count = columns // 2
    outputs = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        f"DEVICE void wgmma_e4m3_{columns}(float (&d)[{count}], uint64_t a, uint64_t b, int add) {{\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'        "wgmma.mma_async.sync.aligned.m64n{columns}k32.f32.e4m3.e4m3 {{{outputs}}}, "\n'
        f'        "%{count}, %{count + 1}, p, 1, 1;\\n}}" : {operands} : "l"(a), "l"(b), "r"(add));\n}}\n'
    )


def cuda_source():
    """Return the CUDA text with the generated wrappers in place."""
    return CUDA.replace("WGMMA_CODE", wgmma(256) + wgmma(32))


@functools.cache
def hopper():
    """Build the Hopper kernels once in a process; None where that is not possible."""
    try:
        return load_inline(
            "proofline_fp8_gemm",
            cpp_sources=BINDING,
            cuda_sources=cuda_source(),
            extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
            extra_cflags=["-O2"],
            with_cuda=True,
            no_implicit_headers=True,
        ).bind
    except (OSError, RuntimeError) as error:
        warnings.warn(f"the Hopper kernels were not built: {error}", stacklevel=2)
        return None


def padded(matrix):
    """Return the matrix with zeros added to its rows up to a multiple of 16 bytes."""
    missing = -matrix.shape[1] % 16
    return torch.nn.functional.pad(matrix.view(torch.uint8), (0, missing)).view(matrix.dtype)


@triton.jit
def widened(byte):
    """e4m3 bits to fp32: three mantissa bits and four exponent bits move up, the bias is off by 120."""
    bits = byte.to(tl.int32)
    magnitude = bits & 127
    exponent = magnitude >> 3
    normal = ((magnitude << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    value = tl.where(exponent == 0, magnitude.to(tl.float32) * 0.001953125, normal)
    value = tl.where(magnitude == 127, float("nan"), value)
    return tl.where(bits > 127, -value, value)


@triton.jit
def portable_kernel(
    x_ptr, w_ptr, c_ptr, y_ptr, M, N, K, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        total = tl.dot(widened(x).to(KIND), widened(w).to(KIND), total)
    c = tl.load(c_ptr + n, mask=n < N, other=0.0)
    y = total.to(y_ptr.dtype.element_ty).to(tl.float32) * c[None, :]
    tl.store(
        y_ptr + m[:, None] * N + n[None, :], y.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


def portable(x, weight, scale, kind=tl.bfloat16, out=torch.bfloat16):
    """Compute on any GPU and for any size."""
    (rows, inner), columns = x.shape, weight.shape[0]
    y = torch.empty(rows, columns, dtype=out, device=x.device)
    tall = 16 if rows <= 16 else 64
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, tall))
    x, weight = x.view(torch.uint8), weight.view(torch.uint8)
    portable_kernel[grid](x, weight, scale, y, rows, columns, inner, kind, tall, 64, 64, num_warps=4)
    return y


class Model(nn.Module):
    """``y = bf16(bf16(x @ weight^T) * weight_scale)``."""

    def __init__(self, M, N, K):
        super().__init__()
        self.register_buffer("weight", torch.zeros(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("weight_scale", torch.ones(N))
        self.run = None

    def forward(self, x):
        buffers, run = self._buffers, self.run
        weight, scale = buffers["weight"], buffers["weight_scale"]
        y = run(x, weight, scale) if run else None
        return self.prepare(x, weight, scale) if y is None else y

    # nn.Module's own call only adds hooks, and took 2.7 us on the host of the notes.
    __call__ = forward

    def prepare(self, x, weight, scale):
        """Give the kernels rows of W that they can read, the tensor itself where it fits; then compute."""
        self.run = None
        properties = torch.cuda.get_device_properties(weight.device)
        is_hopper = (properties.major, properties.minor) == (9, 0)
        if not is_hopper or weight.shape[0] % 8 or hopper() is None:
            return portable(x.contiguous(), weight, scale)
        rows = padded(weight) if weight.shape[1] % 16 else weight
        self.run = hopper()(rows, weight, properties.multi_processor_count)
        return self.run(x, weight, scale)


def get_init_inputs():
    return [4096, 4096, 4096]


def get_inputs():
    return [(8 * torch.rand(4096, 4096) - 4).to(torch.float8_e4m3fn)]
