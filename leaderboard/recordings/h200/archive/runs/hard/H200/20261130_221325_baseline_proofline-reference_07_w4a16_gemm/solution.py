"""W4A16 matrix product: ``y = x @ w``, ``w = bf16(bf16(q - z) * s)``, q 4-bit (K, N), s and z bf16 per 128 rows and column.

Bytes moved: ``2*M*K + K*N/2 + K/128*N*4 + 2*M*N``; operations: ``2*M*N*K``. Floors on an H200 (4800 GB/s, 989.5 TFLOPS): bytes 5.58 us
(M, N = 1, 12288), 5.79 us (32, 12288), 1.86 us (1, 4096), 6.62 us (16, 14336); operations 26.0 us (256, 12288; bytes 7.3 us).

The weights are put once, for each version of the three tensors, into the order in which the matrix units want them; each product
reads them anew. A shift and a mask-or make two bf16 values 128 + q, one exact subtraction takes the zero point. Three kernels:
``few`` (M <= 8): a block has 16, 32 or 48 columns and all of K, sixteen warps share K, every warp asks for all its weights at once by bulk
copies, and the scale is applied to fp32 sums of a group. ``some`` (M <= 32) and ``many``: the weights go from global memory to
registers, are rounded as the formula says and multiply x in shared memory (wgmma with weights as the register operand); in ``some``
the blocks of a cluster share K, in ``many`` three warpgroups have 64 columns by 128 rows each and two blocks share x by multicast.
Other GPUs, groups other than 128, and N that is no multiple of 32, use the portable Triton kernel.

A call is one plain C function bound to its plan; a result's memory is given out again once nobody holds that result.

Limits: where a block's share does not fit in shared memory (long K), the next kernel takes over. The ordered weights need as
much memory as the given ones.

Measured (us by the deck's method, one call on an idle stream; then kernel time): 21.0 / 28.5 / 45.8 / 19.1 / 24.9, geomean 0.186
(the version before last: 26.5 / 33.1 / 49.5 / 25.1 / 29.6, 0.155, in the same process); kernels 12.7, 20.0, 37.3, 6.1, 16.2.
Earlier, on slower hosts, 22.5 / 29.0 / 51.7 / 18.9 / 31.8 (0.170) and a bf16 product with weights dequantised before, by the
vendor library: 48.7 / 54.4 / 53.6 / 31.4 / 58.0, geomean 0.103. An empty call takes 6.4 to 6.9 us there. Tried: bulk copies of 1
KB and 64 bytes with mma.sync and clusters of 4 and 8 along K (kernels 16.4 to 22.3 us for the first shape), 1, 2 and 4 groups a
copy, 8 or 16 warps along K, clusters of 2, 3, 4 and 8 in ``some``, weights read without evict-first (0.204). See the notes in
``docs/kernels/w4a16_gemm.md``.
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

// ---------------------------------------------------------------- 4-bit weights

// One word holds four pairs of consecutive k: rows g and g + 8 of a 16-row tile, columns 2t and 2t + 8 of a 16-column step.
// Pair i has its even k in bits 4i and its odd k in bits 16 + 4i. 0x4300 is bf16 128, whose last mantissa bit is 1.
DEVICE uint32_t level_pair(uint32_t word, int i) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word >> (4 * i)), "n"(0x000F000F), "n"(0x43004300));
    return out;
}
DEVICE uint32_t subtract(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
DEVICE uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
DEVICE uint32_t low_twice(uint32_t v) { return __byte_perm(v, 0, 0x1010); }
DEVICE uint32_t high_twice(uint32_t v) { return __byte_perm(v, 0, 0x3232); }

// Weights lie in blocks of 16 columns by 128 rows: 1024 bytes, then 64 with the scale and zero point of each column.
constexpr int BLOCK_BYTES = 1088;

// The weights are read once: their lines are the first that the L2 should give up.
DEVICE uint64_t read_once() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

DEVICE uint4 stream(const uint4* p, uint64_t policy) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(policy));
    return v;
}

struct Group { uint4 w[2]; uint32_t sz[2]; };

// from: the first block of the warp's columns, with the lane's offset; pairs: likewise, at the scales.
DEVICE void fetch(Group& to, const uint8_t* from, const uint8_t* pairs, int group, uint64_t policy) {
    const uint4* const w = reinterpret_cast<const uint4*>(from + group * BLOCK_BYTES);
    const uint32_t* const sz = reinterpret_cast<const uint32_t*>(pairs + group * BLOCK_BYTES);
    to.w[0] = stream(w, policy);
    to.w[1] = stream(w + 32, policy);
    to.sz[0] = __ldg(sz);
    to.sz[1] = __ldg(sz + 8);
}

DEVICE void dequantise(uint32_t (&a)[4][4], uint4 w, const uint32_t (&sz)[2]) {
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
    const uint32_t scale[2] = {low_twice(sz[0]), low_twice(sz[1])}, zero[2] = {high_twice(sz[0]), high_twice(sz[1])};
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int p = 0; p < 4; p++)
            a[k][p] = multiply(subtract(level_pair(words[k], p), zero[p % 2]), scale[p % 2]);
}


// Add the parts of all warps along K and of all blocks of the cluster: PARTS x SPLIT matrices of MT * 8 rows.
template <int MT, int COLUMNS, int PARTS, int SPLIT>
DEVICE void combine(const float* partial, __nv_bfloat16* y, int M, int N, int column0, int rank) {
    constexpr int PITCH = COLUMNS + 4;
    if (SPLIT > 1) cluster_sync(); else __syncthreads();
    for (int i = rank * blockDim.x + threadIdx.x; i < M * (COLUMNS / 2); i += SPLIT * blockDim.x) {
        const int row = i / (COLUMNS / 2), n = i % (COLUMNS / 2) * 2;
        const uint32_t here = shared_address(partial + row * PITCH + n);
        float2 part[SPLIT * PARTS], sum = make_float2(0, 0);
#pragma unroll
        for (int r = 0; r < SPLIT; r++) {
            uint32_t at = here;
            if (SPLIT > 1) asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(here), "r"(r));
#pragma unroll
            for (int p = 0; p < PARTS; p++)
                asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(part[r * PARTS + p].x), "=f"(part[r * PARTS + p].y)
                             : "r"(at + p * MT * 8 * PITCH * 4) : "memory");
        }
#pragma unroll
        for (int r = 0; r < SPLIT * PARTS; r++) {
            sum.x += part[r].x;
            sum.y += part[r].y;
        }
        if (column0 + n < N)
            *reinterpret_cast<__nv_bfloat162*>(y + (size_t)row * N + column0 + n) = __floats2bfloat162_rn(sum.x, sum.y);
    }
    if (SPLIT > 1) cluster_meet();
}

// ---------------------------------------------------------------- few rows: M <= 8

DEVICE void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(read_once()) : "memory");
}

// A block has TILES * 16 columns of the result. Its WK warps share K. Every warp asks for all of its weights at once, CHUNK
// groups of 128 rows for each barrier.
constexpr int CHUNK = 2;
template <int TILES, int WK>
__global__ void __launch_bounds__(WK * 32, 1024 / (WK * 32))
few_kernel(const uint8_t* __restrict__ packed, const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int M, int N,
           int K) {
    extern __shared__ __align__(128) uint8_t raw[];
    const int groups = K / 128, most = (groups + WK - 1) / WK, pitch = K + 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int column0 = blockIdx.x * TILES * 16;
    const int first = warp * groups / WK, mine = (warp + 1) * groups / WK - first;
    uint8_t* const weights = raw + warp * most * TILES * BLOCK_BYTES;
    const uint32_t bars = shared_address(raw + WK * most * TILES * BLOCK_BYTES) + warp * most * 8;
    __nv_bfloat16* const xs = reinterpret_cast<__nv_bfloat16*>(raw + WK * most * (TILES * BLOCK_BYTES + 8));
    float* const partial = reinterpret_cast<float*>(raw);

    if (lane * CHUNK < mine) {
        const int bytes = min(CHUNK, mine - lane * CHUNK) * BLOCK_BYTES;
        barrier_init(bars + 8 * lane, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(bars + 8 * lane, TILES * bytes);
        for (int tile = 0; tile < TILES; tile++) {
            const size_t at = (size_t)min(column0 / 16 + tile, N / 16 - 1) * groups + first + lane * CHUNK;
            copy_bulk(shared_address(weights) + (tile * most + lane * CHUNK) * BLOCK_BYTES, packed + at * BLOCK_BYTES, bytes,
                      bars + 8 * lane);
        }
    }
    for (int row = 0; row < M; row++)
        for (int at = threadIdx.x * 8; at < K; at += WK * 256)
            *reinterpret_cast<uint4*>(xs + row * pitch + at) = __ldg(reinterpret_cast<const uint4*>(x + (size_t)row * K + at));
    __syncthreads();

    float d[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) (&d[0][0])[i] = 0;
    // The last row stands for all rows from M on, whose results are not used.
    const uint32_t rows = shared_address(xs) + (min(lane % 8, M - 1) * pitch + lane / 8 * 8 + first * 128) * 2;

    for (int group = 0; group < mine; group++) {
        if (group % CHUNK == 0) barrier_wait(bars + 8 * (group / CHUNK), 0);
        uint32_t b[4][4];
#pragma unroll
        for (int q = 0; q < 4; q++)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(b[q][0]), "=r"(b[q][1]), "=r"(b[q][2]), "=r"(b[q][3]) : "r"(rows + (group * 128 + q * 32) * 2));
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint8_t* const block = weights + (tile * most + group) * BLOCK_BYTES;
            uint32_t sz[2];
            float part[4] = {0, 0, 0, 0};
#pragma unroll
            for (int r = 0; r < 2; r++) sz[r] = reinterpret_cast<const uint32_t*>(block + 1024)[g + 8 * r];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 v = reinterpret_cast<const uint4*>(block + half * 512)[lane];
                const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int q = half * 2 + k / 2;
                    uint32_t a[4];
#pragma unroll
                    for (int p = 0; p < 4; p++) a[p] = subtract(level_pair(words[k], p), high_twice(sz[p % 2]));
                    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                        "{%0, %1, %2, %3};"
                        : "+f"(part[0]), "+f"(part[1]), "+f"(part[2]), "+f"(part[3])
                        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[q][k % 2 * 2]), "r"(b[q][k % 2 * 2 + 1]));
                }
            }
#pragma unroll
            for (int c = 0; c < 4; c++) d[tile][c] += __uint_as_float(sz[c / 2] << 16) * part[c];
        }
    }

    constexpr int PITCH = TILES * 16 + 4;
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        float* at = partial + (warp * 8 + lane % 4 * 2) * PITCH + tile * 16 + g;
        at[0] = d[tile][0];
        at[PITCH] = d[tile][1];
        at[8] = d[tile][2];
        at[PITCH + 8] = d[tile][3];
    }
    combine<1, TILES * 16, WK, 1>(partial, y, M, N, column0, 0);
}

// ---------------------------------------------------------------- some rows: M <= 8 * MT

// WG warpgroups have 64 columns each; the SPLIT blocks of a cluster have a part of K each. All of x that a block needs is loaded
// at the start.
// DEPTH groups of weights are on their way to the registers of a warp.
template <int MT, int WG, int SPLIT, int PER_SM, int DEPTH>
__global__ void __launch_bounds__(WG * 128, PER_SM)
some_kernel(const __grid_constant__ CUtensorMap map_x, const uint8_t* __restrict__ packed, __nv_bfloat16* __restrict__ y, int M,
            int N, int K) {
    extern __shared__ uint8_t raw[];
    const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
    const int groups = K / 128, most = (groups + SPLIT - 1) / SPLIT;
    const int rank = blockIdx.x % SPLIT, column0 = blockIdx.x / SPLIT * (WG * 64);
    const int first = rank * groups / SPLIT, mine = (rank + 1) * groups / SPLIT - first;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    constexpr int X_GROUP = MT * 2048;
    const uint32_t bars = base + most * X_GROUP;

    const int tile = min(column0 / 16 + warp, N / 16 - 1);
    const uint8_t* const block = packed + ((size_t)tile * groups + first) * BLOCK_BYTES;
    const uint8_t* const source = block + lane * 16;
    const uint8_t* const pairs = block + 1024 + g * 4;
    const uint64_t policy = read_once();
    Group next[DEPTH];
#pragma unroll
    for (int slot = 0; slot < DEPTH; slot++)
        if (slot < mine) fetch(next[slot], source, pairs, slot, policy);
    if (threadIdx.x < mine) {
        const uint32_t bar = bars + 8 * threadIdx.x, to = base + threadIdx.x * X_GROUP;
        barrier_init(bar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(bar, X_GROUP);
        tma_load(to, &map_x, bar, (first + threadIdx.x) * 128, 0);
        tma_load(to + X_GROUP / 2, &map_x, bar, (first + threadIdx.x) * 128 + 64, 0);
    }
    __syncthreads();

    float d[MT * 4];
#pragma unroll
    for (int i = 0; i < MT * 4; i++) d[i] = 0;
    for (int group = 0; group < mine; group += DEPTH) {
#pragma unroll
        for (int slot = 0; slot < DEPTH; slot++) {
            const int here = group + slot;
            if (here >= mine) break;
            barrier_wait(bars + 8 * here, 0);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t a[4][4];
                dequantise(a, next[slot].w[h], next[slot].sz);
                if (h == 1 && here + DEPTH < mine) fetch(next[slot], source, pairs, here + DEPTH, policy);
                const uint64_t b = descriptor(base + here * X_GROUP + h * (X_GROUP / 2));
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4; k++) wgmma_bf16(d, a[k], b + 2 * k);
                wgmma_commit();
                wgmma_wait<0>();
            }
        }
    }
    constexpr int PITCH = WG * 64 + 4;
    float* const partial = reinterpret_cast<float*>(raw + (base - shared_address(raw)));
    __syncthreads();
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
        float* at = partial + (mt * 8 + lane % 4 * 2) * PITCH + warp * 16 + g;
        at[0] = d[4 * mt];
        at[PITCH] = d[4 * mt + 1];
        at[8] = d[4 * mt + 2];
        at[PITCH + 8] = d[4 * mt + 3];
    }
    combine<MT, WG * 64, 1, SPLIT>(partial, y, M, N, column0, rank);
}

// ---------------------------------------------------------------- many rows: tiles of 192 columns by 128 rows

constexpr int STAGES = 8, X_BYTES = 128 * 128, OUT_PITCH = 200;
constexpr int MANY_SHARED = STAGES * X_BYTES + 1024 + 16 * STAGES;

// Two neighbouring column tiles share the tile of x. Three warpgroups multiply, each 64 columns of W by 128 rows of x.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1)
many_kernel(const __grid_constant__ CUtensorMap map_x, const uint8_t* __restrict__ packed, __nv_bfloat16* __restrict__ y, int M,
            int N, int K) {
    extern __shared__ uint8_t raw[];
    const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
    const uint32_t full = base + STAGES * X_BYTES, empty = full + 8 * STAGES;
    const uint32_t rank = cluster_rank();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    const int column0 = blockIdx.x * 192, row0 = blockIdx.y * 128;
    const int groups = K / 128;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 24);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_meet();

    if (warp >= 12) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 384) {
            int stage = 0, phase = 1;
            for (int kb = 0; kb < 2 * groups; kb++) {
                barrier_wait(empty + 8 * stage, phase);
                barrier_expect(full + 8 * stage, X_BYTES);
                tma_load_both(base + stage * X_BYTES + rank * (X_BYTES / 2), &map_x, full + 8 * stage, kb * 64,
                              row0 + rank * 64);
                if (++stage == STAGES) { stage = 0; phase ^= 1; }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        const int tile = min(column0 / 16 + warp, N / 16 - 1);
        const uint8_t* const block = packed + (size_t)tile * groups * BLOCK_BYTES;
        const uint8_t* const source = block + lane * 16;
        const uint8_t* const pairs = block + 1024 + g * 4;
        float d[64];
#pragma unroll
        for (int i = 0; i < 64; i++) d[i] = 0;
        const uint64_t policy = read_once();
        Group next[2];
        fetch(next[0], source, pairs, 0, policy);
        if (groups > 1) fetch(next[1], source, pairs, 1, policy);
        uint32_t a0[4][4], a1[4][4];
        int stage = 0, phase = 0, previous = 0;
#define STEP(a, is_first)                                                                   \
    {                                                                                       \
        barrier_wait(full + 8 * stage, phase);                                              \
        const uint64_t b = descriptor(base + stage * X_BYTES);                              \
        wgmma_fence();                                                                      \
        _Pragma("unroll") for (int k = 0; k < 4; k++) wgmma_bf16(d, a[k], b + 2 * k);   \
        wgmma_commit();                                                                     \
        wgmma_wait<1>();                                                                    \
        if (!(is_first) && lane < 2) barrier_arrive(empty + 8 * previous, lane);            \
        previous = stage;                                                                   \
        if (++stage == STAGES) { stage = 0; phase ^= 1; }                                   \
    }
#define PAIR(slot, group)                                                    \
    {                                                                        \
        dequantise(a0, next[slot].w[0], next[slot].sz);                      \
        STEP(a0, (group) == 0)                                               \
        dequantise(a1, next[slot].w[1], next[slot].sz);                      \
        if ((group) + 2 < groups) fetch(next[slot], source, pairs, (group) + 2, policy); \
        STEP(a1, false)                                                      \
    }
        for (int group = 0; group < groups; group += 2) {
            PAIR(0, group)
            if (group + 1 < groups) PAIR(1, group + 1)
        }
#undef PAIR
#undef STEP
        wgmma_wait<0>();
        if (lane < 2) barrier_arrive(empty + 8 * previous, lane);

        // Every load into this block's tiles has been waited for, so they can hold the result, rows of x by columns of W.
        asm volatile("bar.sync 1, 384;" ::: "memory");
        const uint32_t at = base + ((lane / 16 * 8 + lane % 8) * OUT_PITCH + warp * 16 + lane / 8 % 2 * 8) * 2;
#pragma unroll
        for (int j = 0; j < 16; j += 2) {
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                __nv_bfloat162 pair = __floats2bfloat162_rn(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]);
                v[i] = *reinterpret_cast<uint32_t*>(&pair);
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             at + j * 8 * OUT_PITCH * 2), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        }
        asm volatile("bar.sync 1, 384;" ::: "memory");
        const uint8_t* const tiles = raw + (base - shared_address(raw));
        for (int i = threadIdx.x; i < 128 * 24; i += 384) {
            const int m = row0 + i / 24, n = column0 + i % 24 * 8;
            if (m < M && n < N)
                *reinterpret_cast<uint4*>(y + (size_t)m * N + n) =
                    *reinterpret_cast<const uint4*>(tiles + (i / 24 * OUT_PITCH + i % 24 * 8) * 2);
        }
    }
    cluster_meet();
}

// ---------------------------------------------------------------- host

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static bool make_map(CUtensorMap* map, const void* x, int M, int K, uint32_t rows) {
    static Encode encode = nullptr;
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000, cudaEnableDefault, &found);
        if (!encode) return false;
    }
    // A map holds an address and sizes, no contents.
    static thread_local struct { const void* x; int M, K; uint32_t rows; CUtensorMap map; } last;
    if (last.x == x && last.M == M && last.K == K && last.rows == rows) {
        *map = last.map;
        return true;
    }
    last.x = nullptr;
    cuuint64_t sizes[2] = {(cuuint64_t)K, (cuuint64_t)M}, strides[1] = {2ull * K};
    cuuint32_t box[2] = {64, rows}, steps[2] = {1, 1};
    const CUresult result = encode(&last.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(x), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return false;
    last.x = x, last.M = M, last.K = K, last.rows = rows;
    *map = last.map;
    return true;
}

typedef const uint8_t* Bytes;
typedef __nv_bfloat16* Out;

static int many(Bytes packed, const void* x, Out y, int M, int N, int K, cudaStream_t stream) {
    static int ready = cudaFuncSetAttribute(many_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MANY_SHARED);
    CUtensorMap map;
    if (ready || !make_map(&map, x, M, K, 64)) return -1;
    const dim3 grid((N + 383) / 384 * 2, (M + 127) / 128);
    many_kernel<<<grid, 512, MANY_SHARED, stream>>>(map, packed, y, M, N, K);
    return cudaGetLastError();
}

static int larger(int a, int b) { return a > b ? a : b; }

// Both return -3 where the block's share does not fit in shared memory.
template <int TILES, int WK> static int few(Bytes packed, const void* x, Out y, int M, int N, int K, cudaStream_t stream) {
    const int most = (K / 128 + WK - 1) / WK;
    const int shared = larger(WK * most * (TILES * BLOCK_BYTES + 8) + M * (K + 8) * 2, WK * 8 * (TILES * 16 + 4) * 4);
    static int ready = cudaFuncSetAttribute(few_kernel<TILES, WK>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
    if (ready || shared > 227 * 1024 || most > 32 * CHUNK) return -3;
    few_kernel<TILES, WK><<<(N + TILES * 16 - 1) / (TILES * 16), WK * 32, shared, stream>>>(
        packed, static_cast<const __nv_bfloat16*>(x), y, M, N, K);
    return cudaGetLastError();
}

template <int MT, int WG, int SPLIT, int PER_SM, int DEPTH>
static int some(Bytes packed, const void* x, Out y, int M, int N, int K, cudaStream_t stream) {
    const int most = (K / 128 + SPLIT - 1) / SPLIT;
    const int shared = larger(most * (MT * 2048 + 8), MT * 8 * (WG * 64 + 4) * 4) + 1024;
    const auto kernel = some_kernel<MT, WG, SPLIT, PER_SM, DEPTH>;
    static int ready = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
    CUtensorMap map;
    if (ready || shared > 227 * 1024 || most > WG * 128) return -3;
    if (!make_map(&map, x, M, K, MT * 8)) return -1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((N + WG * 64 - 1) / (WG * 64) * SPLIT);
    config.blockDim = dim3(WG * 128);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim = {SPLIT, 1, 1};
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, map, packed, y, M, N, K);
}

int launch(const void* blocks, const void* x, void* out, int M, int N, int K, int processors, cudaStream_t stream) {
    const Bytes packed = static_cast<Bytes>(blocks);
    const Out y = static_cast<Out>(out);
    int error = -3;
    // Two blocks have room on a multiprocessor: the narrowest tile with which all blocks run at once.
    if (M <= 8 && (N + 15) / 16 <= 2 * processors) error = few<1, 16>(packed, x, y, M, N, K, stream);
    if (M <= 8 && error == -3 && (N + 31) / 32 <= 2 * processors) error = few<2, 16>(packed, x, y, M, N, K, stream);
    if (M <= 8 && error == -3) error = few<3, 16>(packed, x, y, M, N, K, stream);
    if (M <= 8 && error == -3) error = few<2, 16>(packed, x, y, M, N, K, stream);
    // Four parts of K where all blocks then run at once, else two.
    const bool four = (N + 127) / 128 * 4 <= 3 * processors;
#define SOME(rows, mt)                                                            \
    if (error == -3 && M <= rows)                                                 \
        error = four ? some<mt, 2, 4, 3, 2>(packed, x, y, M, N, K, stream)        \
                     : some<mt, 2, 2, 2, 4>(packed, x, y, M, N, K, stream);
    SOME(8, 1)
    SOME(16, 2)
    SOME(32, 4)
    return error == -3 ? many(packed, x, y, M, N, K, stream) : error;
}
"""

BINDING = r"""
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

int launch(const void*, const void*, void*, int, int, int, int, cudaStream_t);

// The memory of the last result, given out again once nobody holds that result: to ask the allocator takes as long as the
// launch. A graph that is being captured gets memory of its own.
struct Kept {
    at::TensorBase memory;
    cudaStream_t owner;

    at::Tensor take(at::IntArrayRef sizes, at::ScalarType type, c10::Device device, cudaStream_t stream) {
        if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
            return at::Tensor(at::detail::empty_cuda(sizes, type, device, std::nullopt));
        const bool is_free = memory.defined() && memory.storage().use_count() == 1 && owner == stream;
        if (!is_free || memory.sizes() != sizes || memory.device() != device) {
            memory = at::detail::empty_cuda(sizes, type, device, std::nullopt);
            owner = stream;
        }
        at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
            c10::Storage(memory.storage()), memory.key_set(), memory.dtype());
        result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
        return result;
    }
};

// The packed weights, and which tensors, at which version, they were made from.
struct Plan {
    at::Tensor packed;
    const void* from[3];
    int64_t version[3], columns, processors;
    Kept result;

    bool is_made_from(PyObject* const* tensors) const {
        for (int i = 0; i < 3; i++) {
            if (!THPVariable_Check(tensors[i])) return false;
            const at::Tensor& t = THPVariable_Unpack(tensors[i]);
            if (from[i] != t.const_data_ptr() || version[i] != t._version()) return false;
        }
        return true;
    }
};

// run(x, w_q, scales, zeros), a plain C function whose self is the plan: half the cost of a bound one. None where the
// weights have changed since the plan was made.
static PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    TORCH_CHECK(count == 4 && THPVariable_Check(args[0]), "run: need x and the three tensors of the weight");
    if (!plan.is_made_from(args + 1)) Py_RETURN_NONE;
    const at::Tensor& given = THPVariable_Unpack(args[0]);
    const bool usable = given.is_contiguous() && reinterpret_cast<uintptr_t>(given.const_data_ptr()) % 16 == 0;
    const at::Tensor x = usable ? given : given.clone(at::MemoryFormat::Contiguous);
    const int64_t M = x.size(0), K = x.size(1);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    at::Tensor y = plan.result.take({M, plan.columns}, at::kBFloat16, x.device(), stream);
    if (M > 0) {
        const int error = launch(plan.packed.const_data_ptr(), x.const_data_ptr(), y.mutable_data_ptr(), M, plan.columns, K,
                                 plan.processors, stream);
        TORCH_CHECK(error == 0, "launch failed: ", error);
    }
    return THPVariable_Wrap(std::move(y));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef method = {"run", (PyCFunction)(void*)run, METH_FASTCALL, nullptr};

static pybind11::object bind(const at::Tensor& packed, const at::Tensor& w_q, const at::Tensor& scales, const at::Tensor& zeros,
                             int64_t processors) {
    Plan* plan = new Plan{packed, {}, {}, w_q.size(1), processors, {}};
    const at::Tensor* all[3] = {&w_q, &scales, &zeros};
    for (int i = 0; i < 3; i++) plan->from[i] = all[i]->const_data_ptr(), plan->version[i] = all[i]->_version();
    pybind11::capsule self(plan, [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, self.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""


def wgmma(columns):
    """Return the C++ wrapper of one warpgroup product: 64 rows and 16 bf16 columns from registers, a given width."""
    count = columns // 2
    outputs = ", ".join(f"%{i}" for i in range(count))
    inputs = ", ".join(f"%{count + i}" for i in range(4))
    operands = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        f"DEVICE void wgmma_bf16(float (&d)[{count}], const uint32_t (&a)[4], uint64_t b) {{\n"
        f'    asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{outputs}}}, {{{inputs}}}, "\n'
        f'        "%{count + 4}, 1, 1, 1, 0;" : {operands}\n'
        f'        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));\n}}\n'
    )


def cuda_source():
    """Return the CUDA text with the generated wrapper in place."""
    return CUDA.replace("WGMMA_CODE", "".join(wgmma(columns) for columns in (8, 16, 32, 128)))


@functools.cache
def hopper():
    """Build the Hopper kernels once in a process; None where that is not possible."""
    try:
        return load_inline(
            "proofline_w4a16_gemm",
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


def pack(w_q, scales, zeros):
    """Return the weights in the order of the matrix units: bytes (16 columns, group, 1088).

    A block holds words [half][lane][step], see ``level_pair`` in the CUDA text, then the pairs of scale and 128 + zero
    point of each column.
    """
    groups, columns = scales.shape
    tiles = columns // 16
    b = w_q.view(groups, 2, 4, 2, 4, tiles, 2, 8).to(torch.int32)  # group, half, step, k + 8, t, tile, n + 8, g
    words = torch.zeros_like(b[:, :, :, 0, :, :, 0])
    for upper in range(2):
        for right in range(2):
            byte, shift = b[:, :, :, right, :, :, upper], 4 * (upper + 2 * right)
            words |= ((byte & 15) << shift) | ((byte >> 4) << (16 + shift))
    words = words.permute(4, 0, 1, 5, 3, 2)  # tile, group, half, g, t, step
    pairs = torch.stack((scales, zeros + 128), dim=-1).view(groups, tiles, 32).transpose(0, 1)
    parts = (words.reshape(tiles, groups, 256).view(torch.uint8), pairs.contiguous().view(torch.uint8))
    return torch.cat(parts, dim=-1).contiguous()


@triton.jit
def portable_kernel(
    x_ptr, q_ptr, s_ptr, z_ptr, y_ptr, M, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        r = k0 // 2 + tl.arange(0, BK // 2)
        k = k0 + tl.arange(0, BK)
        byte = tl.load(q_ptr + r[:, None] * N + n[None, :], mask=(r[:, None] < K // 2) & (n[None, :] < N), other=0)
        level = tl.join(byte & 15, byte >> 4).permute(0, 2, 1).reshape(BK, BN)
        inside = (k[:, None] < K) & (n[None, :] < N)
        at = (k[:, None] // G) * N + n[None, :]
        scale = tl.load(s_ptr + at, mask=inside, other=0.0)
        zero = tl.load(z_ptr + at, mask=inside, other=0.0)
        weight = ((level.to(tl.float32) - zero.to(tl.float32)) * scale.to(tl.float32)).to(x_ptr.dtype.element_ty)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        total = tl.dot(x, weight, total)
    tl.store(
        y_ptr + m[:, None] * N + n[None, :], total.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


def portable(x, w_q, scales, zeros, group_size):
    """Compute on any GPU and for any size."""
    rows, inner = x.shape
    columns = w_q.shape[1]
    y = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    tall = 16 if rows <= 16 else 64
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, tall))
    portable_kernel[grid](x, w_q, scales, zeros, y, rows, columns, inner, group_size, tall, 64, 64, num_warps=4)
    return y


class Model(nn.Module):
    """``y = x @ w`` with the 4-bit weight of the deck."""

    def __init__(self, M, N, K, group_size=128):
        super().__init__()
        self.group_size = group_size
        self.register_buffer("w_q", torch.zeros(K // 2, N, dtype=torch.uint8))
        self.register_buffer("scales", torch.ones(K // group_size, N, dtype=torch.bfloat16))
        self.register_buffer("zeros", torch.zeros(K // group_size, N, dtype=torch.bfloat16))
        self.run = None

    def forward(self, x):
        buffers, run = self._buffers, self.run
        w_q, scales, zeros = buffers["w_q"], buffers["scales"], buffers["zeros"]
        y = run(x, w_q, scales, zeros) if run else None
        return self.prepare(x, w_q, scales, zeros) if y is None else y

    # nn.Module's own call only adds hooks, and took 2.7 us on the host of the notes.
    __call__ = forward

    def prepare(self, x, w_q, scales, zeros):
        """Bring the weights into the order of the Hopper kernels, the tensors themselves stay as they are; then compute."""
        self.run = None
        properties = torch.cuda.get_device_properties(w_q.device)
        fits = self.group_size == 128 and w_q.shape[0] % 64 == 0 and w_q.shape[1] % 32 == 0
        if not fits or (properties.major, properties.minor) != (9, 0) or hopper() is None:
            return portable(x.contiguous(), w_q, scales, zeros, self.group_size)
        packed = pack(w_q, scales, zeros)
        self.run = hopper()(packed, w_q, scales, zeros, properties.multi_processor_count)
        return self.run(x, w_q, scales, zeros)


def get_init_inputs():
    return [1, 12288, 4096]


def get_inputs():
    return [torch.randn(1, 4096, dtype=torch.bfloat16)]
