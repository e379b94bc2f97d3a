"""The k largest values of every row and where they stand, for hard/05_topk_bitonic.

Formula.   values[r, i] is the i-th largest of x[r]; indices[r, i] its position (int64, distinct; equal values in any
           order).
Bytes.     4 per element in, 12 per winner out: 524 KB on the first shape, 2.1 MB on the largest.
Floors.    By bytes 0.11, 0.44, 0.44, 0.16, 0.44 us on an H200; by operations (one comparison an element) below 0.04
           us. The real floor is one call: 6 to 12 us for an empty one, about 18 us with one launch, on the host it
           was measured on.
Method.    One launch. A row stays in the registers of 1 to 8 blocks (a cluster). The k-th largest of the warps'
           maxima is a lower bound of the k-th largest element, so only what lies above it, a few more than k, is
           ranked, by counting. Ties with the bound need no rank. If more than 1024 lie above (sorted or clustered
           rows), a radix select of four 8-bit passes over the row takes over, inside the same launch.
Limits.    k up to 4096. The register path needs n divisible by 4, n up to 131072 and k up to min(256, warps of a
           row); anything else, and GPUs without clusters where one block does not hold the row, take the radix
           select.
Tried.     Device time, behind a busy stream: 10.0, 5.7, 10.9, 6.0, 5.4 us, hidden by the host's part of the call,
           which therefore decides. A bound function and two allocations: 31 us a call where an empty one took 12; a
           plain C function and one allocation: 19 to 20 us where it took 6. Without the module's hooks, and
           with a result's memory given out again once nobody holds it: 13 to 17 us where that took 16 to 21. 512 threads
           or wider clusters: within noise, clusters of 16 up to twice as slow. Measured: geomean 0.0181 (0.0147 before,
           in the same process); aim 0.030, above what one launch allows on that host.

Notes and all numbers: docs/kernels/topk.md.
"""

import functools

import torch
from torch import Tensor, nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace cg = cooperative_groups;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
constexpr unsigned FULL = 0xffffffffu;

// Unsigned integers in the order of the floats, and back.
DEVICE unsigned ordered(float x) {
    unsigned bits = __float_as_uint(x);
    return bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u);
}
DEVICE float restored(unsigned key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

DEVICE u64 packed(unsigned key, int index) { return ((u64)key << 32) | (unsigned)index; }

DEVICE void store(float* values, long long* indices, int rank, u64 candidate) {
    values[rank] = restored((unsigned)(candidate >> 32));
    indices[rank] = (long long)(unsigned)candidate;
}

// Each candidate's rank is the number of larger ones: eight lanes count for one candidate.
template <int THREADS>
DEVICE void store_ranked(const u64* found, int count, int k, float* values, long long* indices) {
    unsigned mask = 0xffu << (threadIdx.x & 24);
    for (int i = threadIdx.x / 8; i < count; i += THREADS / 8) {
        u64 mine = found[i];
        int rank = 0;
        for (int j = threadIdx.x % 8; j < count; j += 8) rank += found[j] > mine;
#pragma unroll
        for (int step = 1; step < 8; step *= 2) rank += __shfl_xor_sync(mask, rank, step);
        if (threadIdx.x % 8 == 0 && rank < k) store(values, indices, rank, mine);
    }
}

// Any distribution, one block a row: four histograms of eight bits fix the k-th key, a fifth pass collects.
template <int THREADS>
__device__ __noinline__ void radix_select(
    const float* x, int n, int k, float* values, long long* indices, u64* found, unsigned* histogram) {
    __shared__ unsigned prefix, wanted, above, equal;
    if (threadIdx.x == 0) { prefix = 0; wanted = k; above = 0; equal = 0; }
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS) histogram[i] = 0;
        __syncthreads();
        unsigned seen = prefix;
        for (int base = 0; base < n; base += THREADS) {
            int i = base + threadIdx.x;
            unsigned key = i < n ? ordered(x[i]) : 0;
            bool counts = i < n && (shift == 24 || (key >> (shift + 8)) == seen);
            unsigned digit = counts ? (key >> shift) & 255 : 256;
            int same;
            __match_all_sync(FULL, digit, &same);
            if (same) {
                if (digit < 256 && threadIdx.x % 32 == 0) atomicAdd(&histogram[digit], 32);
            } else if (digit < 256) {
                atomicAdd(&histogram[digit], 1);
            }
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            unsigned sum = 0;
            for (int i = 0; i < 8; i++) sum += histogram[255 - threadIdx.x * 8 - i];
            unsigned upto = sum;
            for (int step = 1; step < 32; step *= 2) {
                unsigned other = __shfl_up_sync(FULL, upto, step);
                if (threadIdx.x >= step) upto += other;
            }
            unsigned need = wanted, before = upto - sum;
            __syncwarp();
            if (before < need && need <= upto) {
                int digit = 255 - threadIdx.x * 8;
                while (before + histogram[digit] < need) before += histogram[digit--];
                prefix = seen << 8 | digit;
                wanted = need - before;
            }
        }
        __syncthreads();
    }
    unsigned last = prefix, ties = wanted;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        unsigned key = ordered(x[i]);
        if (key > last) {
            found[atomicAdd(&above, 1)] = packed(key, i);
        } else if (key == last && *(volatile unsigned*)&equal < ties) {
            unsigned place = atomicAdd(&equal, 1);
            if (place < ties) store(values, indices, k - ties + place, packed(key, i));
        }
    }
    __syncthreads();
    store_ranked<THREADS>(found, k - ties, k, values, indices);
}

constexpr int CAPACITY = 1024;

// The row stays in the registers of SPAN blocks. The k-th largest of the warps' maxima is a lower bound of the k-th
// largest element; what lies above it (a few more than k for most data) is ranked by the first block.
template <int THREADS, int VECTORS, int SPAN>
__global__ void __launch_bounds__(THREADS) select_top(
    const float* __restrict__ x, float* __restrict__ values, long long* __restrict__ indices, int n, int k) {
    constexpr int WARPS = THREADS / 32, GROUPS = SPAN * WARPS;
    __shared__ __align__(16) unsigned maxima[GROUPS];
    __shared__ u64 found[CAPACITY];
    __shared__ u64 tied[256];
    __shared__ unsigned above, equal, tied_here, bound;
    int rank = SPAN == 1 ? 0 : blockIdx.x % SPAN, row = blockIdx.x / SPAN;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    x += (size_t)row * n;
    values += (size_t)row * k;
    indices += (size_t)row * k;
    if (threadIdx.x == 0) { above = 0; equal = 0; tied_here = 0; }
#if __CUDA_ARCH__ >= 900
    if constexpr (SPAN > 1) asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif

    int share = (n / 4 + SPAN - 1) / SPAN, first = rank * share;
    int stop = min(share, n / 4 - first);
    float4 loaded[VECTORS];
#pragma unroll
    for (int e = 0; e < VECTORS; e++) {
        int i = e * THREADS + threadIdx.x;
        if (i < stop) loaded[e] = __ldcs((const float4*)x + first + i);
    }
    unsigned keys[VECTORS][4], top = 0;
#pragma unroll
    for (int e = 0; e < VECTORS; e++) {
        bool live = e * THREADS + (int)threadIdx.x < stop;
        keys[e][0] = live ? ordered(loaded[e].x) : 0;
        keys[e][1] = live ? ordered(loaded[e].y) : 0;
        keys[e][2] = live ? ordered(loaded[e].z) : 0;
        keys[e][3] = live ? ordered(loaded[e].w) : 0;
        top = max(max(top, max(keys[e][0], keys[e][1])), max(keys[e][2], keys[e][3]));
    }
#if __CUDA_ARCH__ >= 800
    top = __reduce_max_sync(FULL, top);
#else
    for (int step = 16; step; step /= 2) top = max(top, __shfl_xor_sync(FULL, top, step));
#endif

    unsigned *far_above = &above, *far_equal = &equal;
    u64 *far_found = found, *far_tied = tied;
#if __CUDA_ARCH__ >= 900
    if constexpr (SPAN > 1) {
        cg::cluster_group cluster = cg::this_cluster();
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        if (lane < SPAN) *cluster.map_shared_rank(&maxima[rank * WARPS + warp], lane) = top;
        cluster.sync();
        far_above = cluster.map_shared_rank(&above, 0);
        far_equal = cluster.map_shared_rank(&equal, 0);
        far_found = cluster.map_shared_rank(found, 0);
        far_tied = cluster.map_shared_rank(tied, 0);
    }
#endif
    if constexpr (SPAN == 1) {
        if (lane == 0) maxima[warp] = top;
        __syncthreads();
    }
    constexpr int LANES = THREADS / GROUPS;  // lanes that rank one maximum
    int group = threadIdx.x / LANES, larger = 0;
    unsigned mine = maxima[group];
    if constexpr (GROUPS / LANES >= 4) {
#pragma unroll 4
        for (int j = threadIdx.x % LANES; j < GROUPS / 4; j += LANES) {
            uint4 other = ((const uint4*)maxima)[j];
            larger += (other.x > mine) + (other.y > mine) + (other.z > mine) + (other.w > mine);
            larger += (other.x == mine && 4 * j < group) + (other.y == mine && 4 * j + 1 < group);
            larger += (other.z == mine && 4 * j + 2 < group) + (other.w == mine && 4 * j + 3 < group);
        }
    } else {
        for (int j = threadIdx.x % LANES; j < GROUPS; j += LANES)
            larger += maxima[j] > mine || (maxima[j] == mine && j < group);
    }
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) larger += __shfl_xor_sync(FULL, larger, step);
    if (larger == k - 1 && threadIdx.x % LANES == 0) bound = mine;
    __syncthreads();

    unsigned floor = bound;
    if (top >= floor) {
#pragma unroll
        for (int e = 0; e < VECTORS; e++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                unsigned key = keys[e][c];
                int i = e * THREADS + threadIdx.x, index = 4 * (first + i) + c;
                if (key > floor) {
                    unsigned place = atomicAdd(far_above, 1);
                    if (place < CAPACITY) far_found[place] = packed(key, index);
                } else if (key == floor && i < stop && *(volatile unsigned*)&tied_here < k) {
                    if (atomicAdd(&tied_here, 1) < k) {
                        unsigned place = atomicAdd(far_equal, 1);
                        if (place < k) far_tied[place] = packed(key, index);
                    }
                }
            }
        }
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (SPAN > 1) cg::this_cluster().sync();
#endif
    if constexpr (SPAN == 1) __syncthreads();
    if (rank) return;
    int count = above;
    if (count > CAPACITY) {
        radix_select<THREADS>(x, n, k, values, indices, found, (unsigned*)tied);
        return;
    }
    store_ranked<THREADS>(found, count, k, values, indices);
    for (int i = threadIdx.x; i < k - count; i += THREADS) store(values, indices, count + i, tied[i]);
}

__global__ void __launch_bounds__(1024) select_any(
    const float* __restrict__ x, float* __restrict__ values, long long* __restrict__ indices, int n, int k) {
    __shared__ u64 found[4096];
    __shared__ unsigned histogram[256];
    size_t row = blockIdx.x;
    radix_select<1024>(x + row * n, n, k, values + row * k, indices + row * k, found, histogram);
}

template <int THREADS, int VECTORS, int SPAN>
cudaError_t launch(const float* x, float* values, long long* indices, int rows, int n, int k, cudaStream_t stream) {
    auto kernel = select_top<THREADS, VECTORS, SPAN>;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(rows * SPAN);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = SPAN;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = SPAN > 1;
    return cudaLaunchKernelEx(&config, kernel, x, values, indices, n, k);
}

template <int THREADS, int SPAN>
cudaError_t by_size(const float* x, float* v, long long* i, int rows, int n, int k, cudaStream_t s) {
    int vectors = ((n / 4 + SPAN - 1) / SPAN + THREADS - 1) / THREADS;
    if (vectors <= 1) return launch<THREADS, 1, SPAN>(x, v, i, rows, n, k, s);
    if (vectors <= 2) return launch<THREADS, 2, SPAN>(x, v, i, rows, n, k, s);
    if (vectors <= 4) return launch<THREADS, 4, SPAN>(x, v, i, rows, n, k, s);
    return launch<THREADS, 8, SPAN>(x, v, i, rows, n, k, s);
}

template <int THREADS>
cudaError_t by_span(const float* x, float* v, long long* i, int rows, int n, int k, int span, cudaStream_t s) {
    if (span == 1) return by_size<THREADS, 1>(x, v, i, rows, n, k, s);
    if (span == 2) return by_size<THREADS, 2>(x, v, i, rows, n, k, s);
    if (span == 4) return by_size<THREADS, 4>(x, v, i, rows, n, k, s);
    return by_size<THREADS, 8>(x, v, i, rows, n, k, s);
}

int select_rows(
    const float* x, float* v, long long* i, int rows, int n, int k, int threads, int span, cudaStream_t s) {
    if (threads == 1024) return by_span<1024>(x, v, i, rows, n, k, span, s);
    select_any<<<rows, 1024, 0, s>>>(x, v, i, n, k);
    return cudaGetLastError();
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

int select_rows(const float*, float*, long long*, int, int, int, int, int, cudaStream_t);

static at::Tensor part(const at::TensorBase& of, at::ScalarType type, int64_t offset, int64_t rows, int64_t columns) {
    at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(of.storage()), of.key_set(), c10::scalarTypeToTypeMeta(type));
    t.unsafeGetTensorImpl()->set_storage_offset(offset);
    t.unsafeGetTensorImpl()->set_sizes_contiguous({rows, columns});
    return t;
}

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
    int64_t k;
    int threads, span;
    Kept result;
};

// A plain C function whose self is the plan: half the cost of a bound one.
static PyObject* select_top_k(PyObject* self, PyObject* given) {
    HANDLE_TH_ERRORS
    Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    TORCH_CHECK(THPVariable_Check(given), "x: need a tensor");
    const at::Tensor& x = THPVariable_Unpack(given);
    TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.is_contiguous() && x.scalar_type() == at::kFloat,
                "x: need a contiguous 2-d fp32 CUDA tensor");
    c10::cuda::OptionalCUDAGuard guard(x.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const int64_t rows = x.size(0), n = x.size(1), k = plan.k;
    const bool aligned = reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
    // One piece of memory holds both results.
    const at::Tensor both = plan.result.take({rows * k * 12}, at::kByte, x.device(), stream);
    char* const memory = static_cast<char*>(both.mutable_data_ptr());
    int error = select_rows(x.const_data_ptr<float>(), reinterpret_cast<float*>(memory + rows * k * 8),
                            reinterpret_cast<long long*>(memory), rows, n, k, aligned ? plan.threads : 0, plan.span, stream);
    TORCH_CHECK(error == 0, "launch failed with CUDA error ", error);
    PyObject* pair = PyTuple_New(2);
    if (!pair) return nullptr;
    PyTuple_SET_ITEM(pair, 0, THPVariable_Wrap(part(both, at::kFloat, rows * k * 2, rows, k)));
    PyTuple_SET_ITEM(pair, 1, THPVariable_Wrap(part(both, at::kLong, 0, rows, k)));
    return pair;
    END_HANDLE_TH_ERRORS
}

static PyMethodDef method = {"select", select_top_k, METH_O, nullptr};

static pybind11::object bind(int64_t k, int threads, int span) {
    pybind11::capsule plan(new Plan{k, threads, span, {}}, [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, plan.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""

LARGEST_K = 4096


@functools.cache
def extension():
    """Compile the kernels for the current device."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}"
    return load_inline(
        "proofline_topk",
        CPP,
        CUDA,
        extra_cflags=["-O2"],
        extra_cuda_cflags=["-O3", "-std=c++17", f"-gencode=arch=compute_{arch},code=sm_{arch}"],
        no_implicit_headers=True,
    )


def launch_plan(batch: int, n: int, k: int, has_clusters: bool, processors: int) -> tuple[int, int]:
    """Return threads a block and blocks a row; zero threads stand for the kernel that takes any size.

    Two warps for each winner make a bound that few other elements pass; more blocks a row than that only for want of
    room.
    """
    spans = (1, 2, 4, 8) if has_clusters else (1,)
    fitting = [span for span in spans if n % 4 == 0 and k <= min(256, 32 * span) and n <= span * 16384]
    if not fitting:
        return 0, 1
    sharp = [span for span in fitting if span == fitting[0] or batch * span <= processors]
    return 1024, next((span for span in sharp if 32 * span >= 2 * k), sharp[-1])


class Model(nn.Module):
    """Return the k largest values of each row, in descending order, and where they stand."""

    def __init__(self, batch: int, n: int, k: int) -> None:
        super().__init__()
        if not 1 <= k <= min(n, LARGEST_K):
            raise ValueError(f"k is {k}; need 1 to {min(n, LARGEST_K)}")
        self.batch, self.n, self.k = batch, n, k
        self.register_buffer("_dummy", torch.zeros(1))
        processors = torch.cuda.get_device_properties().multi_processor_count
        plan = launch_plan(batch, n, k, torch.cuda.get_device_capability() >= (9, 0), processors)
        self.select = extension().bind(k, *plan)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.select(x)

    # nn.Module's own call only adds hooks, and took 2.7 us on the host of the notes.
    __call__ = forward
