"""Attention of one query per sequence over a paged cache, for hard/03_paged_attention.

Formula.   out[b, h] = sum over l < L of softmax(q k_l / sqrt(D)) v_l, token l in page block_table[b, l // P], slot l
           % P.
Bytes.     Keys and values once: 2 batch L kv_heads D 2 bytes, 16 to 268 MB; query, output and page table add under 1
           %.
Floors.    By bytes 7.0, 56.0, 14.0, 21.0, 3.4 us on an H200; by operations (4 batch heads L D on the bf16 tensor
           cores) at most 1.1 us. Cold, after the deck's flush, reading n bytes also evicts up to 50 MB of the flush's
           dirty lines.
Method.    Split over tokens; a block takes one sequence, one kv head and one share, so up to 8 query heads share each
           load. Every warp streams its own tokens with 16-byte asynchronous copies into padded rows and keeps its own
           running softmax: S^T = K Q^T and O^T = V^T P^T, tokens and channels in the 16 rows of the instruction,
           heads in its 8 columns. The shares meet in a cluster's shared memory, so one launch does it all. Lengths
           and the table are read on the device; dead slots are not read at all.
Limits.    head_dim 64 or 128, whole groups; any page size, length (0 gives zeros) and group size. Without clusters,
           or when few sequences need more than 8 shares, a second small kernel adds the shares up.
Tried.     Telling the L2 that the cache is read once: on the device 20.1 to 18.3 us (shape 0), 32.8 to 29.5 us (shape
           2), 80.0 to 84.5 us (shape 1). Three copy stages instead of two, 2 or 8 warps, other splits: within the
           host's noise but for shape 2, 8 to 14 us slower a call with three stages. Measured: geomean 0.384, 0.354
           with hooks and an allocation in each call (aim 0.50 missed); the library's dense attention on contiguous keys
           reached 0.248 where the latter reached 0.318.

Notes and all numbers: docs/kernels/paged_attention.md.
"""

import functools
import math

import torch
from torch import Tensor, nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace cg = cooperative_groups;
#define DEVICE __device__ __forceinline__
constexpr unsigned FULL = 0xffffffffu;
constexpr int STEP = 16;   // tokens a warp takes at a time
constexpr int HEADS = 8;   // query heads of one kv head that share its loads

// The cache is read once: its lines are the first that the L2 should give up.
DEVICE uint64_t read_once() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEVICE void copy_16(uint32_t to, const void* from, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "l"(policy) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

DEVICE void load_matrices(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEVICE void load_transposed(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEVICE uint32_t transposed(uint32_t x) {
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE uint32_t pair(float low, float high) {
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&p);
}
DEVICE float low_half(uint32_t p) { return __uint_as_float(p << 16); }
DEVICE float high_half(uint32_t p) { return __uint_as_float(p & 0xffff0000u); }
DEVICE float weight(float peak, float other) { return peak == -INFINITY ? 0.f : exp2f(peak - other); }

struct Problem {
    const __nv_bfloat16 *query, *cache;
    const int *table, *lengths;
    __nv_bfloat16* out;
    float *parts, *peaks;   // per split, for the second kernel only
    int heads, kv_heads, pages_a_row, page_size, splits, steps_a_split, head_tiles;
    float scale;
};

// One block: one sequence, one kv head, one share of the tokens. S^T = K Q^T and O^T = V^T P^T on the tensor cores, so
// tokens and channels fill the 16 rows and the query heads the 8 columns.
template <int D, int WARPS, int STAGES, bool CLUSTER>
__global__ void __launch_bounds__(WARPS * 32) attend(Problem p) {
    constexpr int ROW = 4 * D + 16;           // bytes of a cached token in shared memory, padded against bank conflicts
    constexpr int STAGE = STEP * ROW, CHUNKS = 4 * D / 16;
    extern __shared__ __align__(128) uint8_t shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int split = blockIdx.x % p.splits, tile = blockIdx.x / p.splits % p.head_tiles;
    int kv_head = blockIdx.x / p.splits / p.head_tiles % p.kv_heads;
    int batch = blockIdx.x / p.splits / p.head_tiles / p.kv_heads;
    int group = p.heads / p.kv_heads, first_head = kv_head * group + tile * HEADS;
    int live_heads = min(HEADS, group - tile * HEADS);
    uint32_t stages = (uint32_t)__cvta_generic_to_shared(shared) + warp * STAGES * STAGE;

    uint64_t policy = read_once();
    const int* table = p.table + (size_t)batch * p.pages_a_row;
    int capacity = p.pages_a_row * p.page_size;
    int first = split * p.steps_a_split;
    // The row that lane l (and l + 16) will point at in the warp's s-th step, read before the length is known.
    auto row_of = [&](int token) {
        token = min(token, capacity - 1);
        int page = token / p.page_size;
        return (int64_t)table[page] * p.page_size + (token - page * p.page_size);
    };
    int64_t next_row = row_of((first + warp) * STEP + lane % 16);
    int length = p.lengths[batch];
    int stop = min(first + p.steps_a_split, (length + STEP - 1) / STEP);

    const uint8_t* cache = (const uint8_t*)p.cache + (size_t)kv_head * 4 * D;
    size_t token_bytes = (size_t)p.kv_heads * 4 * D;
    auto fetch = [&](int step, int stage) {
        if (step < stop) {
            int64_t row = next_row;
            // Slots past the end are not read: the last live token stands in for them.
            int spare = length - 1 - step * STEP;
            int64_t last = __shfl_sync(FULL, row, min(max(spare, 0), 15));
            if (lane % 16 > spare) row = last;
            uint32_t to = stages + stage * STAGE;
            constexpr int ROWS = 32 / CHUNKS;   // cached tokens one warp-wide copy covers
#pragma unroll
            for (int r = 0; r < STEP; r += ROWS) {
                int mine = r + lane / CHUNKS;
                int64_t from = __shfl_sync(FULL, row, mine);
                copy_16(to + mine * ROW + lane % CHUNKS * 16, cache + from * token_bytes + lane % CHUNKS * 16, policy);
            }
            next_row = row_of((step + WARPS) * STEP + lane % 16);
        }
        copy_commit();
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) fetch(first + warp + s * WARPS, s);

    // Query fragments (columns are heads), unscaled.
    uint32_t q[D / 16][2];
    {
        int head = lane / 4;
        const uint32_t* from = (const uint32_t*)(p.query + ((size_t)batch * p.heads + first_head + head) * D);
#pragma unroll
        for (int ks = 0; ks < D / 16; ks++) {
            q[ks][0] = head < live_heads ? from[ks * 8 + lane % 4] : 0;
            q[ks][1] = head < live_heads ? from[ks * 8 + 4 + lane % 4] : 0;
        }
    }
    float out[D / 16][4] = {};
    float peak[2] = {-INFINITY, -INFINITY}, total[2] = {0.f, 0.f};

    int stage = 0;
    for (int step = first + warp; step < stop; step += WARPS) {
        copy_wait<STAGES - 2>();
        __syncwarp();
        fetch(step + (STAGES - 1) * WARPS, stage == 0 ? STAGES - 1 : stage - 1);
        uint32_t base = stages + stage * STAGE + lane % 16 * ROW + lane / 16 * 16;
        float score[2][4] = {};
#pragma unroll
        for (int ks = 0; ks < D / 16; ks++) {
            uint32_t a[4];
            load_matrices(a, base + ks * 32);
            multiply(score[ks % 2], a, q[ks][0], q[ks][1]);
        }
        // score rows: tokens lane/4 and lane/4 + 8; columns: heads 2 (lane%4) and + 1.
        float s[4];
        int token = step * STEP + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[i] = (score[0][i] + score[1][i]) * p.scale;
            if (token + i / 2 * 8 >= length) s[i] = -INFINITY;
        }
        float next[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])}, shrink[2];
#pragma unroll
        for (int c = 0; c < 2; c++) {
#pragma unroll
            for (int hop = 4; hop < 32; hop *= 2) next[c] = fmaxf(next[c], __shfl_xor_sync(FULL, next[c], hop));
            next[c] = fmaxf(next[c], peak[c]);
            shrink[c] = weight(peak[c], next[c]);
            peak[c] = next[c];
        }
        uint32_t upper = pair(exp2f(s[0] - peak[0]), exp2f(s[1] - peak[1]));
        uint32_t lower = pair(exp2f(s[2] - peak[0]), exp2f(s[3] - peak[1]));
        total[0] = total[0] * shrink[0] + low_half(upper) + low_half(lower);
        total[1] = total[1] * shrink[1] + high_half(upper) + high_half(lower);
        uint32_t b0 = transposed(upper), b1 = transposed(lower);
        // V^T tiles: rows are channels, so the 8x8 blocks (token, channel) are read transposed.
        uint32_t values = stages + stage * STAGE + 2 * D + (lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 16;
#pragma unroll
        for (int m = 0; m < D / 16; m++) {
            uint32_t a[4];
            load_transposed(a, values + m * 32);
            out[m][0] *= shrink[0];
            out[m][1] *= shrink[1];
            out[m][2] *= shrink[0];
            out[m][3] *= shrink[1];
            multiply(out[m], a, b0, b1);
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        __syncwarp();
    }
#pragma unroll
    for (int c = 0; c < 2; c++)
#pragma unroll
        for (int hop = 4; hop < 32; hop *= 2) total[c] += __shfl_xor_sync(FULL, total[c], hop);

    // The warps of the block, then the blocks of the cluster, add up their shares under a common peak.
    __shared__ float warp_peak[WARPS][HEADS], warp_total[WARPS][HEADS];
    __shared__ float block_peak[HEADS], block_total[HEADS];
    if (lane < 4) {
        for (int c = 0; c < 2; c++) {
            warp_peak[warp][2 * lane + c] = peak[c];
            warp_total[warp][2 * lane + c] = total[c];
        }
    }
    copy_wait<0>();
    __syncthreads();
    constexpr int PITCH = D + 4;
    float* sums = (float*)shared;   // [warp][head][channel]
    float common[2] = {-INFINITY, -INFINITY};
    for (int c = 0; c < 2; c++)
        for (int w = 0; w < WARPS; w++) common[c] = fmaxf(common[c], warp_peak[w][2 * (lane % 4) + c]);
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float scale = weight(peak[c], common[c]);
        float* to = sums + (warp * HEADS + 2 * (lane % 4) + c) * PITCH + lane / 4;
#pragma unroll
        for (int m = 0; m < D / 16; m++) {
            to[m * 16] = out[m][c] * scale;
            to[m * 16 + 8] = out[m][c + 2] * scale;
        }
    }
    if (threadIdx.x < HEADS) {
        float top = -INFINITY, sum = 0.f;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, warp_peak[w][threadIdx.x]);
        for (int w = 0; w < WARPS; w++) sum += warp_total[w][threadIdx.x] * weight(warp_peak[w][threadIdx.x], top);
        block_peak[threadIdx.x] = top;
        block_total[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < HEADS * D; i += WARPS * 32) {
        float* at = sums + i / D * PITCH + i % D;
        float sum = at[0];
#pragma unroll
        for (int w = 1; w < WARPS; w++) sum += at[w * HEADS * PITCH];
        if (!CLUSTER && p.splits > 1) {
            size_t part = (size_t)blockIdx.x * HEADS;
            p.parts[part * D + i] = sum;
            if (i % D == 0) {
                p.peaks[2 * (part + i / D)] = block_peak[i / D];
                p.peaks[2 * (part + i / D) + 1] = block_total[i / D];
            }
        } else if (p.splits > 1) {
            at[0] = sum;
        } else if (i / D < live_heads) {
            float whole = block_total[i / D];
            p.out[((size_t)batch * p.heads + first_head) * D + i] = __float2bfloat16(whole > 0.f ? sum / whole : 0.f);
        }
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (CLUSTER) {
        if (p.splits == 1) return;
        cg::cluster_group cluster = cg::this_cluster();
        cluster.sync();
        int rank = cluster.block_rank();
        for (int i = rank * WARPS * 32 + threadIdx.x; i < live_heads * D; i += p.splits * WARPS * 32) {
            int head = i / D;
            float sum = 0.f, whole = 0.f, top = -INFINITY, tops[8], wholes[8], shares[8];
#pragma unroll
            for (int r = 0; r < 8; r++) {
                if (r < p.splits) {
                    tops[r] = *cluster.map_shared_rank(&block_peak[head], r);
                    wholes[r] = *cluster.map_shared_rank(&block_total[head], r);
                    shares[r] = *cluster.map_shared_rank(sums + head * PITCH + i % D, r);
                }
            }
#pragma unroll
            for (int r = 0; r < 8; r++)
                if (r < p.splits) top = fmaxf(top, tops[r]);
#pragma unroll
            for (int r = 0; r < 8; r++) {
                if (r < p.splits) {
                    float scale = weight(tops[r], top);
                    sum += shares[r] * scale;
                    whole += wholes[r] * scale;
                }
            }
            p.out[((size_t)batch * p.heads + first_head) * D + i] = __float2bfloat16(whole > 0.f ? sum / whole : 0.f);
        }
        cluster.sync();
    }
#endif
}

// Without clusters, or with more than eight splits: add up the splits' shares.
template <int D>
__global__ void combine(Problem p) {
    int head = blockIdx.x % HEADS, unit = blockIdx.x / HEADS, tile = unit % p.head_tiles;
    int group = p.heads / p.kv_heads, kv_head = unit / p.head_tiles % p.kv_heads;
    int batch = unit / p.head_tiles / p.kv_heads;
    if (tile * HEADS + head >= group) return;
    size_t part = (size_t)unit * p.splits * HEADS + head;
    float top = -INFINITY, sum = 0.f, whole = 0.f;
    for (int s = 0; s < p.splits; s++) top = fmaxf(top, p.peaks[2 * (part + (size_t)s * HEADS)]);
    for (int s = 0; s < p.splits; s++) {
        size_t at = part + (size_t)s * HEADS;
        float scale = weight(p.peaks[2 * at], top);
        sum += p.parts[at * D + threadIdx.x] * scale;
        whole += p.peaks[2 * at + 1] * scale;
    }
    size_t row = (size_t)batch * p.heads + kv_head * group + tile * HEADS + head;
    p.out[row * D + threadIdx.x] = __float2bfloat16(whole > 0.f ? sum / whole : 0.f);
}

template <int D, int WARPS, int STAGES, bool CLUSTER>
cudaError_t launch(const Problem& p, int units, cudaStream_t stream) {
    auto kernel = attend<D, WARPS, STAGES, CLUSTER>;
    constexpr int stages = WARPS * STAGES * STEP * (4 * D + 16), sums = WARPS * HEADS * (D + 4) * 4;
    constexpr int bytes = stages > sums ? stages : sums;
    static cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (allowed != cudaSuccess) return allowed;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(units * p.splits);
    config.blockDim = dim3(WARPS * 32);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = p.splits;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = CLUSTER && p.splits > 1;
    cudaError_t error = cudaLaunchKernelEx(&config, kernel, p);
    if (error == cudaSuccess && !CLUSTER && p.splits > 1) {
        combine<D><<<units * HEADS, D, 0, stream>>>(p);
        error = cudaGetLastError();
    }
    return error;
}

template <int D>
cudaError_t by_shape(const Problem& p, int units, int warps, int stages, bool cluster, cudaStream_t s) {
#define TRY(W, S) \
    if (warps == W && stages == S) return cluster ? launch<D, W, S, true>(p, units, s) : launch<D, W, S, false>(p, units, s);
    TRY(4, 2) TRY(4, 3) TRY(4, 4) TRY(8, 2) TRY(8, 3) TRY(2, 3) TRY(2, 6)
#undef TRY
    return cudaErrorInvalidValue;
}

int attend_pages(
    const void* query, const void* cache, const int* table, const int* lengths, void* out, float* scratch, int batch,
    int heads, int kv_heads, int head_dim, int pages_a_row, int page_size, int splits, int warps, int stages, bool cluster,
    float scale, cudaStream_t stream) {
    Problem p;
    p.query = (const __nv_bfloat16*)query;
    p.cache = (const __nv_bfloat16*)cache;
    p.table = table;
    p.lengths = lengths;
    p.out = (__nv_bfloat16*)out;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.pages_a_row = pages_a_row;
    p.page_size = page_size;
    p.splits = splits;
    p.steps_a_split = ((pages_a_row * page_size + STEP - 1) / STEP + splits - 1) / splits;
    p.head_tiles = (heads / kv_heads + HEADS - 1) / HEADS;
    p.scale = scale;
    int units = batch * kv_heads * p.head_tiles;
    p.parts = scratch;
    p.peaks = scratch + (size_t)units * splits * HEADS * head_dim;
    if (head_dim == 64) return by_shape<64>(p, units, warps, stages, cluster, stream);
    if (head_dim == 128) return by_shape<128>(p, units, warps, stages, cluster, stream);
    return cudaErrorInvalidValue;
}
"""

CPP = r"""
#include <ATen/ATen.h>
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

int attend_pages(const void*, const void*, const int*, const int*, void*, float*, int, int, int, int, int, int, int, int,
                 int, bool, float, cudaStream_t);

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

struct Plan {
    int splits, warps, stages;
    bool cluster;
    Kept result;
};

// attend(query, kv_cache, block_table, seq_lens), a plain C function whose self is the plan: half the cost of a bound one.
static PyObject* attend(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    TORCH_CHECK(count == 4, "attend: need 4 arguments");
    for (int i = 0; i < 4; i++) TORCH_CHECK(THPVariable_Check(args[i]), "attend: need four tensors");
    const at::Tensor &query = THPVariable_Unpack(args[0]), &cache = THPVariable_Unpack(args[1]);
    const at::Tensor &table = THPVariable_Unpack(args[2]), &lengths = THPVariable_Unpack(args[3]);
    TORCH_CHECK(query.is_cuda() && query.is_contiguous() && query.dim() == 3 && query.scalar_type() == at::kBFloat16,
                "query: need a contiguous (batch, heads, head_dim) bf16 CUDA tensor");
    TORCH_CHECK(cache.is_cuda() && cache.is_contiguous() && cache.dim() == 4 && cache.scalar_type() == at::kBFloat16,
                "kv_cache: need a contiguous (pages, page_size, kv_heads, 2 head_dim) bf16 CUDA tensor");
    TORCH_CHECK(table.is_contiguous() && table.scalar_type() == at::kInt && lengths.is_contiguous() &&
                lengths.scalar_type() == at::kInt, "block_table, seq_lens: need contiguous int32 tensors");
    c10::cuda::OptionalCUDAGuard guard(query.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const int64_t batch = query.size(0), heads = query.size(1), width = query.size(2), kv_heads = cache.size(2);
    at::Tensor out = plan.result.take(query.sizes(), at::kBFloat16, query.device(), stream);
    at::TensorBase scratch;
    if (!plan.cluster && plan.splits > 1) {
        int64_t units = batch * kv_heads * ((heads / kv_heads + 7) / 8);
        scratch = at::detail::empty_cuda({units * plan.splits * 8 * (width + 2)}, at::kFloat, query.device(), std::nullopt);
    }
    int error = attend_pages(
        query.const_data_ptr(), cache.const_data_ptr(), table.const_data_ptr<int>(), lengths.const_data_ptr<int>(),
        out.mutable_data_ptr(), scratch.defined() ? scratch.mutable_data_ptr<float>() : nullptr, batch, heads, kv_heads,
        width, table.size(1), cache.size(1), plan.splits, plan.warps, plan.stages, plan.cluster,
        1.4426950408889634 / std::sqrt(double(width)), stream);
    TORCH_CHECK(error == 0, "launch failed with CUDA error ", error);
    return THPVariable_Wrap(std::move(out));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef method = {"attend", (PyCFunction)(void*)attend, METH_FASTCALL, nullptr};

static pybind11::object bind(int splits, int warps, int stages, bool cluster) {
    pybind11::capsule plan(new Plan{splits, warps, stages, cluster, {}}, [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, plan.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""


@functools.cache
def extension():
    """Compile the kernels for the current device."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}"
    return load_inline(
        "proofline_paged_attention",
        CPP,
        CUDA,
        extra_cflags=["-O2"],
        extra_cuda_cflags=["-O3", "-std=c++17", f"-gencode=arch=compute_{arch},code=sm_{arch}"],
        no_implicit_headers=True,
    )


def launch_plan(units: int, seq_len: int, has_clusters: bool) -> tuple[int, int, int, bool]:
    """Return splits, warps a block, stages, and whether the splits form a cluster."""
    slots = 2 * torch.cuda.get_device_properties().multi_processor_count
    most = max(1, math.ceil(seq_len / 128))
    splits = min(max(1, slots // units), most)
    if has_clusters and (splits <= 8 or units * 8 >= slots // 2):
        return min(splits, 8), 4, 2, True
    return splits, 4, 2, False


class Model(nn.Module):
    """Attend from one query per sequence to its pages of keys and values."""

    def __init__(
        self, batch: int, num_heads: int, num_kv_heads: int, head_dim: int, seq_len: int, page_size: int
    ) -> None:
        super().__init__()
        if head_dim not in (64, 128) or num_heads % num_kv_heads:
            raise ValueError(
                f"head_dim is {head_dim}, heads {num_heads}/{num_kv_heads}; need 64 or 128 and whole groups"
            )
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16), persistent=False)
        units = batch * num_kv_heads * math.ceil(num_heads / num_kv_heads / 8)
        plan = launch_plan(units, seq_len, torch.cuda.get_device_capability() >= (9, 0))
        self.attend = extension().bind(*plan)

    def forward(self, query: Tensor, kv_cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
        return self.attend(query, kv_cache, block_table, seq_lens)

    # nn.Module's own call only adds hooks, and took 2.7 us on the host of the notes.
    __call__ = forward
