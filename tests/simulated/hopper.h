// A processor's stand-in for one GPU of compute capability 9.0, for the kernels of `grading/kernels`.
//
// Clusters run one after the other and their threads as fibers, each until it has to wait. A kernel's wrappers of PTX are
// replaced by the functions marked PRIMITIVE below, which do what the PTX manual says, as late as it allows: asynchronous
// copies and products happen when they are waited for, and until then their results are NaN. So a wait that is missing,
// an operand that is overwritten too early, a wrong layout, swizzle, fragment or count shows as a wrong answer, and a
// barrier that is never met as an error. Not seen: races between warps that a barrier of the CPU's order hides, missing
// fences between memory proxies, and anything about time.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define DEVICE inline
#define PRIMITIVE inline
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"), abort())
#define CHECK(condition, ...) ((condition) ? (void)0 : FAIL(__VA_ARGS__))

using std::max;
using std::min;

struct uint4 { uint32_t x, y, z, w; };
struct uint2 { uint32_t x, y; };
struct float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
struct float4 { float x, y, z, w; };
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline uint16_t to_bf16(float value) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline float half_of(uint32_t pair, int which) { return __uint_as_float(which ? pair & 0xffff0000u : pair << 16); }
struct __nv_bfloat16 { uint16_t bits; };
struct __nv_bfloat162 { uint16_t low, high; };
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {to_bf16(low), to_bf16(high)}; }
inline float __bfloat162float(__nv_bfloat16 x) { return half_of(x.bits, 0); }
inline __nv_bfloat16 __float2bfloat16(float x) { return {to_bf16(x)}; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {to_bf16(x)}; }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float x, float y) { return x / y; }
template <class T>
T __ldcs(const T* p) { return *p; }
template <class T>
T __ldg(const T* p) { return *p; }
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t which) {
    uint64_t all = (uint64_t)high << 32 | low;
    uint32_t found = 0;
    for (int i = 0; i < 4; i++) found |= (uint32_t)(all >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return found;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
    return ((uint64_t)high << 32 | low) >> (by & 31);
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct Index { int x, y; };
inline Index gridDim, blockDim;

namespace gpu {

constexpr int SHARED_BYTES = 232448;          // the most that a block may have
constexpr int STATIC_AT = 240 * 1024, MEMORY = 320 * 1024;
// A warpgroup's product of 64 rows, 32 bytes of inner elements and some columns; the left operand in registers or,
// described, in shared memory; the right one described, by columns (rows of inner elements) or by inner elements (rows of
// columns). Elements have two bytes (bf16) or one (e4m3).
struct Product {
    float* d;
    const uint32_t* a;
    uint64_t described, b;
    int columns;
    bool by_inner, adds;
    int group, bytes = 2;
};
struct Load { std::function<void()> work; int group; };
struct Thread {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(96 * 1024);
    int index = 0, rank = 0;                  // in its block; of its block in the cluster
    bool has_ended = false;
    const void* offered = nullptr;            // to the warp's collective
    unsigned cluster_generation = 0;          // at its last arrival
    std::vector<Product> products;            // asynchronous, not waited for
    int groups = 0, load_groups = 0;          // committed
    std::map<float*, std::vector<float>> kept;   // accumulators that products in flight hide
    std::vector<Load> loads;
    std::vector<std::function<void()>> stores;
};
struct Meeting { int count = 0; unsigned generation = 0; const char* name = nullptr; };
struct Barrier { int count, pending; long bytes; unsigned phase; };

inline ucontext_t scheduler;
inline std::vector<std::unique_ptr<Thread>> all;
inline Thread* me;
inline std::function<void()> body;
inline int first_block, threads, cluster;
inline long rounds_without_progress;
inline std::map<int64_t, Meeting> meetings;
inline std::map<int64_t, Barrier> barriers;
inline std::map<int, int> variables;          // offsets of a block's fixed variables, by their number
inline int variable_bytes, dynamic_bytes;

inline uint8_t* memory_of(int rank) {
    static uint8_t* memory = (uint8_t*)aligned_alloc(4096, 16 * MEMORY);
    return memory + rank * MEMORY;
}
inline uint8_t* shared(uint32_t at, int bytes) {
    CHECK(at + bytes <= MEMORY, "%d bytes at %u are beyond shared memory", bytes, at);
    return memory_of(me->rank) + at;
}
inline uint8_t* dynamic_memory() { return memory_of(me->rank); }
template <class T>
T& variable(int number) {
    if (!variables.count(number)) {
        variables[number] = variable_bytes;
        variable_bytes += (sizeof(T) + 15) / 16 * 16;
        CHECK(variable_bytes + dynamic_bytes <= SHARED_BYTES, "%d bytes of shared memory", variable_bytes + dynamic_bytes);
    }
    return *(T*)shared(STATIC_AT + variables[number], sizeof(T));
}
inline uint16_t& half_at(uint32_t at) { return *(uint16_t*)shared(at, 2); }
inline int warp() { return me->index / 32; }
inline int64_t here(int64_t what) { return what << 8 | me->rank; }     // of one block
inline std::unique_ptr<Thread>& mate(int index) { return all[me->rank * threads + index]; }
inline void yield() { swapcontext(&me->context, &scheduler); }

// Come to a place; the last of `expected` threads does `work`.
inline unsigned arrive(int64_t where, int expected, const char* name, const std::function<void()>& work = {}) {
    Meeting& meeting = meetings[where];
    CHECK(!meeting.count || !strcmp(meeting.name, name), "%s meets %s", name, meeting.name);
    meeting.name = name;
    unsigned before = meeting.generation;
    if (++meeting.count == expected) {
        if (work) work();
        meeting.count = 0;
        meeting.generation++;
        rounds_without_progress = 0;
    }
    return before;
}
inline void await(int64_t where, unsigned generation) {
    while (meetings[where].generation == generation) yield();
}
inline void meet(int64_t where, int expected, const char* name, const std::function<void()>& work = {}) {
    await(where, arrive(where, expected, name, work));
}
// Places to meet: the cluster's, and in each block its own, sixteen named barriers, warps (by mask), warpgroups.
constexpr int64_t CLUSTER = -1, BLOCK = 0, NAMED = 1, WARPGROUPS = 100, WARPS = 1000;

template <class Offer, class Work>
void with_warp(const char* name, Offer& offer, Work work, unsigned mask = 0xffffffffu) {
    me->offered = &offer;
    int64_t where = here(WARPS + ((int64_t)warp() << 32 | mask));
    meet(where, __builtin_popcount(mask), name, [&] {
        Offer* offers[32];
        for (int lane = 0; lane < 32; lane++) offers[lane] = (Offer*)mate(warp() * 32 + lane)->offered;
        work(offers);
    });
}

inline void run_thread() {
    body();
    CHECK(me->products.empty() && me->stores.empty(), "a thread ends before all is waited for");
    me->has_ended = true;
    rounds_without_progress = 0;
    yield();
}

inline std::map<void*, int> clusters;         // of kernels that name their own
inline void run_cluster() {
    meetings.clear();
    barriers.clear();
    all.clear();
    for (int rank = 0; rank < cluster; rank++) memset(memory_of(rank), 0xff, MEMORY);          // NaN
    for (int i = 0; i < cluster * threads; i++) {
        all.push_back(std::make_unique<Thread>());
        Thread& thread = *all.back();
        thread.index = i % threads, thread.rank = i / threads;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.data();
        thread.context.uc_stack.ss_size = thread.stack.size();
        makecontext(&thread.context, run_thread, 0);
    }
    for (bool is_left = true; is_left;) {
        is_left = false;
        for (auto& thread : all) {
            if (thread->has_ended) continue;
            is_left = true;
            me = thread.get();
            swapcontext(&scheduler, &me->context);
        }
        CHECK(++rounds_without_progress < 1000, "block %d hangs", first_block);
    }
}

inline int run(dim3 grid, int block, int bytes, int of_cluster, const std::function<void()>& work) {
    CHECK(grid.x % of_cluster == 0 && of_cluster <= 16 && bytes <= SHARED_BYTES, "a launch that no GPU takes");
    gridDim = {(int)grid.x, (int)grid.y}, blockDim.x = threads = block, cluster = of_cluster, body = work;
    variables.clear();
    variable_bytes = 0, dynamic_bytes = bytes;
    for (first_block = 0; first_block < (int)(grid.x * grid.y); first_block += cluster) run_cluster();
    return 0;
}

// An element of a described operand: rows of 128 bytes in groups of eight, swizzled by the row within eight. Descriptors
// hold a start, the distance of blocks that are 128 bytes wide and that of the groups, all in units of 16 bytes.
inline float from_e4m3(uint8_t bits) {
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    float size = exponent ? ldexpf(8 + fraction, exponent - 10) : ldexpf(fraction, -9);
    return (bits & 127) == 127 ? NAN : bits & 128 ? -size : size;
}
inline float element(uint64_t described, int row, int place, int bytes) {
    CHECK(described >> 62 == 1, "an operand without the 128-byte swizzle");
    uint32_t start = (described & 0x3fff) << 4, blocks = (described >> 16 & 0x3fff) << 4, groups = (described >> 32 & 0x3fff) << 4;
    CHECK(start / 128 % 8 == 0, "an operand begins within its swizzle, at %u", start);
    int wide = 128 / bytes;
    uint32_t at = start + place / wide * blocks + row / 8 * groups + row % 8 * 128 + place % wide * bytes;
    at ^= (at >> 7 & 7) << 4;
    return bytes == 2 ? half_of(half_at(at), 0) : from_e4m3(*shared(at, 1));
}
// The products of a warpgroup up to a group, in order.
inline void finish_products(int base, int upto) {
    const auto& plan = mate(base)->products;
    size_t count = 0;
    while (count < plan.size() && plan[count].group < upto) count++;
    for (int t = base; t < base + 128; t++) {
        Thread& thread = *mate(t);
        for (size_t i = 0; i < count; i++) {
            CHECK(i < thread.products.size() && thread.products[i].b == plan[i].b, "a product differs between lanes");
            auto found = thread.kept.find(thread.products[i].d);
            if (found == thread.kept.end()) continue;
            std::copy(found->second.begin(), found->second.end(), found->first);
            thread.kept.erase(found);
        }
    }
    for (size_t i = 0; i < count; i++) {
        static float a[64][32], b[32][256];
        const Product planned = plan[i];
        for (int t = 0; !planned.described && t < 128; t++)
            for (int r = 0; r < 4; r++)
                for (int e = 0; e < 2; e++)
                    a[t / 32 * 16 + t % 32 / 4 + r % 2 * 8][t % 4 * 2 + e + r / 2 * 8] =
                        half_of(mate(base + t)->products[i].a[r], e);
        int inner = 32 / planned.bytes;
        for (int k = 0; k < inner; k++) {
            for (int m = 0; planned.described && m < 64; m++) a[m][k] = element(planned.described, m, k, planned.bytes);
            for (int n = 0; n < planned.columns; n++)
                b[k][n] = element(planned.b, planned.by_inner ? k : n, planned.by_inner ? n : k, planned.bytes);
        }
        for (int t = 0; t < 128; t++) {
            const Product& product = mate(base + t)->products[i];
            for (int e = 0; e < planned.columns / 2; e++) {
                int row = t / 32 * 16 + t % 32 / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + t % 4 * 2 + e % 2;
                float sum = product.adds ? product.d[e] : 0.f;
                for (int k = 0; k < inner; k++) sum += a[row][k] * b[k][column];
                product.d[e] = sum;
            }
        }
    }
    for (int t = base; t < base + 128; t++) {
        auto& products = mate(t)->products;
        products.erase(products.begin(), products.begin() + count);
    }
}
inline void hide(Thread& thread, float* d, int columns) {
    if (thread.kept.count(d)) return;
    thread.kept[d] = std::vector<float>(d, d + columns / 2);
    std::fill(d, d + columns / 2, NAN);
}

inline Barrier& barrier(uint32_t at) {
    CHECK(barriers.count(here(at)), "no barrier at %u", at);
    return barriers[here(at)];
}
inline void settle(Barrier& b) {
    // Bytes may come before they are expected, of another block's copy, as long as an arrival is outstanding.
    CHECK(b.pending > 0 || (b.pending == 0 && b.bytes >= 0), "a barrier gets more than it expects");
    if (b.pending || b.bytes) return;
    b.phase++;
    b.pending = b.count;
    rounds_without_progress = 0;
}

template <bool TRANSPOSED, class Work>
void each_half(Work work) {                   // matrix, its row, its column, lane, half
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < 2; e++) {
                int x = lane / 4, y = lane % 4 * 2 + e;
                work(i, TRANSPOSED ? y : x, TRANSPOSED ? x : y, lane, e);
            }
}
template <bool TRANSPOSED>
void load(uint32_t (&r)[4], uint32_t from) {
    CHECK(from % 16 == 0, "ldmatrix reads from %u", from);
    struct Offer { uint32_t* r; uint32_t from; } offer{r, from};
    with_warp(TRANSPOSED ? "ldmatrix.trans" : "ldmatrix", offer, [](Offer** of) {
        uint32_t halves[4][32][2];
        each_half<TRANSPOSED>([&](int i, int row, int column, int lane, int e) {
            halves[i][lane][e] = half_at(of[i * 8 + row]->from + column * 2);
        });
        for (int i = 0; i < 4; i++)
            for (int lane = 0; lane < 32; lane++) of[lane]->r[i] = halves[i][lane][0] | halves[i][lane][1] << 16;
    });
}
template <bool TRANSPOSED>
void store(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    CHECK(to % 16 == 0, "stmatrix writes to %u", to);
    struct Offer { uint32_t r[4], to; } offer{{a, b, c, d}, to};
    with_warp(TRANSPOSED ? "stmatrix.trans" : "stmatrix", offer, [](Offer** of) {
        each_half<TRANSPOSED>([&](int i, int row, int column, int lane, int e) {
            half_at(of[i * 8 + row]->to + column * 2) = of[lane]->r[i] >> 16 * e;
        });
    });
}
// d (16 x 8) += a (16 x INNER) b (INNER x 8), read out of the lanes' registers by two functions.
template <int INNER, class Offer, class Left, class Right>
void multiply_in_warp(const char* name, Offer& offer, Left left, Right right) {
    with_warp(name, offer, [&](Offer** of) {
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < 4; e++) {
                float sum = 0.f;
                for (int k = 0; k < INNER; k++) sum += left(of, lane / 4 + e / 2 * 8, k) * right(of, k, lane % 4 * 2 + e % 2);
                of[lane]->d[e] += sum;
            }
    });
}

}  // namespace gpu

#define threadIdx (Index{gpu::me->index, 0})
#define blockIdx (Index{(gpu::first_block + gpu::me->rank) % gridDim.x, (gpu::first_block + gpu::me->rank) / gridDim.x})
inline void __syncthreads() { gpu::meet(gpu::here(gpu::BLOCK), gpu::threads, "syncthreads"); }
inline void __syncwarp() {
    int nothing = 0;
    gpu::with_warp("syncwarp", nothing, [](int**) {});
}
inline void __trap() { FAIL("block %d traps", blockIdx.x); }
inline uint32_t __cvta_generic_to_shared(const void* p) { return (const uint8_t*)p - gpu::memory_of(gpu::me->rank); }
template <class T>
T shuffle(unsigned mask, T value, int from) {
    struct Offer { T value, received; int from; } offer{value, value, from};
    gpu::with_warp("shfl", offer, [&](Offer** of) {
        for (int lane = 0; lane < 32; lane++)
            if (mask >> lane & 1) of[lane]->received = of[of[lane]->from]->value;
    }, mask);
    return offer.received;
}
inline int lane() { return gpu::me->index % 32; }
template <class T>
T __shfl_sync(unsigned mask, T value, int from) { return shuffle(mask, value, from); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int step) { return shuffle(mask, value, lane() ^ step); }
template <class T>
T __shfl_up_sync(unsigned mask, T value, int step) { return shuffle(mask, value, lane() < step ? lane() : lane() - step); }
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
    for (int step = 16; step; step /= 2) value = max(value, __shfl_xor_sync(mask, value, step));
    return value;
}
inline unsigned __match_all_sync(unsigned mask, unsigned value, int* are_same) {
    unsigned most = __reduce_max_sync(mask, value), least = ~__reduce_max_sync(mask, ~value);
    *are_same = most == least;
    return *are_same ? mask : 0;
}
template <class T>
T atomicAdd(T* at, int more) {
    T before = *at;
    *at += more;
    return before;
}
inline void cluster_arrive() {
    gpu::me->cluster_generation = gpu::arrive(gpu::CLUSTER, gpu::cluster * gpu::threads, "cluster");
}
inline void cluster_wait() { gpu::await(gpu::CLUSTER, gpu::me->cluster_generation); }
namespace cooperative_groups {
struct cluster_group {
    void sync() { cluster_arrive(), cluster_wait(); }
    int block_rank() { return gpu::me->rank; }
    template <class T>
    T* map_shared_rank(T* p, int rank) { return (T*)(gpu::memory_of(rank) + __cvta_generic_to_shared(p)); }
};
inline cluster_group this_cluster() { return {}; }
}  // namespace cooperative_groups

// ---- What replaces a kernel's own wrappers ----

PRIMITIVE uint32_t address(const void* p) { return __cvta_generic_to_shared(p); }
PRIMITIVE uint64_t read_once() { return 0; }
PRIMITIVE float exp_2(float x) { return exp2f(x); }
PRIMITIVE uint32_t pair_here(float low, float high) { return to_bf16(low) | (uint32_t)to_bf16(high) << 16; }
PRIMITIVE float tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & ~0x1fffu); }
PRIMITIVE void prefetch(const void*) {}
PRIMITIVE void let_next_start() {}
PRIMITIVE void await_previous() {}
PRIMITIVE void fence_async() {}
PRIMITIVE void barriers_ready() {}
PRIMITIVE void fewer_registers() {}
PRIMITIVE void more_registers() {}
PRIMITIVE void group_sync(int group) { gpu::meet(gpu::here(gpu::NAMED + group), 256, "group_sync"); }
PRIMITIVE void meet_128(int number) { gpu::meet(gpu::here(gpu::NAMED + number), 128, "bar.sync"); }
// An address in another block of the cluster, and what stands there.
PRIMITIVE uint32_t map_shared(uint32_t at, uint32_t rank) { return at | (rank + 1) << 24; }
PRIMITIVE void load_remote(float& x, float& y, float& z, float& w, uint32_t at) {
    const float* from = (const float*)(gpu::memory_of((at >> 24) - 1) + (at & 0xffffff));
    x = from[0], y = from[1], z = from[2], w = from[3];
}
PRIMITIVE void load_remote(float& x, float& y, uint32_t at) {
    int rank = at >> 24 ? (at >> 24) - 1 : gpu::me->rank;
    const float* from = (const float*)(gpu::memory_of(rank) + (at & 0xffffff));
    x = from[0], y = from[1];
}
PRIMITIVE void meet_384() { gpu::meet(gpu::here(gpu::NAMED + 1), 384, "bar.sync"); }
PRIMITIVE void consumers_sync() { gpu::meet(gpu::here(gpu::NAMED), 256, "consumers_sync"); }

PRIMITIVE void load_matrices(uint32_t (&r)[4], uint32_t from) { gpu::load<false>(r, from); }
PRIMITIVE void load_matrices(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t from) {
    uint32_t r[4];
    gpu::load<false>(r, from);
    a = r[0], b = r[1], c = r[2], d = r[3];
}
PRIMITIVE void load_transposed(uint32_t (&r)[4], uint32_t from) { gpu::load<true>(r, from); }
PRIMITIVE void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { gpu::store<false>(to, a, b, c, d); }
PRIMITIVE void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) { gpu::store<true>(to, a, b, c, d); }
PRIMITIVE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct Offer { float* d; uint32_t a[4], b[2]; } offer{d, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    gpu::multiply_in_warp<16>(
        "mma", offer, [](Offer** of, int m, int k) { return half_of(of[m % 8 * 4 + k % 8 / 2]->a[m / 8 + k / 8 * 2], k % 2); },
        [](Offer** of, int k, int n) { return half_of(of[n * 4 + k % 8 / 2]->b[k / 8], k % 2); });
}
PRIMITIVE void multiply(
    float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    float d[4] = {d0, d1, d2, d3};
    multiply(d, {a0, a1, a2, a3}, b0, b1);
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
// Pairs of bf16 numbers; four bits of a word beside 128, a bf16 number whose last bit is 1.
inline uint32_t each_half_of(uint32_t a, uint32_t b, float (*work)(float, float)) {
    return to_bf16(work(half_of(a, 0), half_of(b, 0))) | (uint32_t)to_bf16(work(half_of(a, 1), half_of(b, 1))) << 16;
}
PRIMITIVE uint32_t subtract(uint32_t a, uint32_t b) { return each_half_of(a, b, [](float x, float y) { return x - y; }); }
PRIMITIVE uint32_t multiply(uint32_t a, uint32_t b) { return each_half_of(a, b, [](float x, float y) { return x * y; }); }
PRIMITIVE uint32_t level_pair(uint32_t word, int i) { return (word >> 4 * i & 0x000f000f) | 0x43004300; }
PRIMITIVE uint4 stream(const uint4* p, uint64_t) { return *p; }
PRIMITIVE void multiply_tf32(float (&d)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    struct Offer { float *d, a[4], b[2]; } offer{d, {a0, a1, a2, a3}, {b0, b1}};
    for (float* operand : {&offer.a[0], &offer.a[1], &offer.a[2], &offer.a[3], &offer.b[0], &offer.b[1]})
        *operand = __uint_as_float(__float_as_uint(*operand) & ~0x1fffu);          // the lower bits are not looked at
    gpu::multiply_in_warp<8>(
        "mma.tf32", offer, [](Offer** of, int m, int k) { return of[m % 8 * 4 + k % 4]->a[m / 8 + k / 4 * 2]; },
        [](Offer** of, int k, int n) { return of[n * 4 + k % 4]->b[k / 4]; });
}

PRIMITIVE uint32_t transposed(uint32_t x) {
    struct Offer { uint32_t given, received; } offer{x, 0};
    gpu::with_warp("movmatrix.trans", offer, [](Offer** of) {
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < 2; e++) {
                int from = (lane % 4 * 2 + e) * 4 + lane / 4 / 2;
                of[lane]->received |= (of[from]->given >> lane / 4 % 2 * 16 & 0xffff) << 16 * e;
            }
    });
    return offer.received;
}
PRIMITIVE void copy_16(uint32_t to, const void* from, uint64_t = 0) {
    CHECK(to % 16 == 0 && (uintptr_t)from % 16 == 0, "cp.async is not aligned");
    gpu::me->loads.push_back({[=] { memcpy(gpu::shared(to, 16), from, 16); }, gpu::me->load_groups});
}
PRIMITIVE void copy_commit() { gpu::me->load_groups++; }
template <int LEFT>
PRIMITIVE void copy_wait() {
    auto& loads = gpu::me->loads;
    size_t done = 0;
    while (done < loads.size() && loads[done].group < gpu::me->load_groups - LEFT) loads[done++].work();
    loads.erase(loads.begin(), loads.begin() + done);
}
PRIMITIVE void copies_end() { copy_commit(); }
PRIMITIVE void await_copies() { copy_wait<0>(); }
PRIMITIVE void store_bulk(void* to, uint32_t from, int bytes) {
    CHECK((from | (uintptr_t)to | bytes) % 16 == 0 && bytes > 0, "a bulk store is not aligned");
    gpu::me->stores.push_back([=] { memcpy(to, gpu::shared(from, bytes), bytes); });
}
PRIMITIVE void await_stores() {
    for (auto& store : gpu::me->stores) store();
    gpu::me->stores.clear();
}
PRIMITIVE void stores_read() { await_stores(); }

PRIMITIVE void barrier_init(uint32_t bar, int count) { gpu::barriers[gpu::here(bar)] = {count, count, 0, 0}; }
PRIMITIVE void barrier_arrive(uint32_t bar) {
    gpu::Barrier& b = gpu::barrier(bar);
    b.pending--;
    gpu::settle(b);
}
PRIMITIVE void barrier_arrive(uint32_t bar, uint32_t rank) {        // of another block of the cluster
    CHECK(gpu::barriers.count((int64_t)bar << 8 | rank), "no barrier at %u of block %u", bar, rank);
    gpu::Barrier& b = gpu::barriers[(int64_t)bar << 8 | rank];
    b.pending--;
    gpu::settle(b);
}
PRIMITIVE void barrier_expect(uint32_t bar, int bytes) {
    gpu::barrier(bar).bytes += bytes;
    barrier_arrive(bar);
}
PRIMITIVE void barrier_wait(uint32_t bar, int parity) {
    while ((gpu::barrier(bar).phase & 1) == (unsigned)parity) gpu::yield();
}
PRIMITIVE void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t bar) {
    CHECK((to | (uintptr_t)from | bytes) % 16 == 0 && bytes > 0, "a bulk copy is not aligned");
    memcpy(gpu::shared(to, bytes), from, bytes);
    gpu::Barrier& b = gpu::barrier(bar);
    b.bytes -= bytes;
    gpu::settle(b);
}

template <bool ADD = true>
PRIMITIVE void multiply_64(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    gpu::hide(*gpu::me, d, 64);
    gpu::me->products.push_back({d, a, 0, b, 64, false, ADD, gpu::me->groups});
}
template <int COUNT>
PRIMITIVE void wgmma_bf16(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b) {
    gpu::hide(*gpu::me, d, 2 * COUNT);
    gpu::me->products.push_back({d, a, 0, b, 2 * COUNT, false, true, gpu::me->groups});
}
PRIMITIVE void wgmma_bf16_256(float (&d)[128], uint64_t a, uint64_t b, int add) {
    gpu::hide(*gpu::me, d, 256);
    gpu::me->products.push_back({d, nullptr, a, b, 256, true, add != 0, gpu::me->groups});
}
template <int COLUMNS>
void multiply_e4m3(float* d, uint64_t a, uint64_t b, int add) {
    gpu::hide(*gpu::me, d, COLUMNS);
    gpu::me->products.push_back({d, nullptr, a, b, COLUMNS, false, add != 0, gpu::me->groups, 1});
}
PRIMITIVE void wgmma_e4m3_256(float (&d)[128], uint64_t a, uint64_t b, int add) { multiply_e4m3<256>(d, a, b, add); }
PRIMITIVE void wgmma_e4m3_32(float (&d)[16], uint64_t a, uint64_t b, int add) { multiply_e4m3<32>(d, a, b, add); }
PRIMITIVE void wgmma_fence() { gpu::meet(gpu::here(gpu::WARPGROUPS + gpu::warp() / 4), 128, "wgmma.fence"); }
PRIMITIVE void wgmma_commit() { gpu::me->groups++; }
template <int LEFT>
PRIMITIVE void wgmma_wait() {
    int group = gpu::warp() / 4, upto = gpu::me->groups - LEFT;
    gpu::meet(gpu::here(gpu::WARPGROUPS + group), 128, "wgmma.wait", [=] {
        gpu::finish_products(group * 128, upto);
        for (int t = group * 128; t < group * 128 + 128; t++)
            for (gpu::Product& product : gpu::mate(t)->products) gpu::hide(*gpu::mate(t), product.d, product.columns);
    });
}

// Boxes of tensors, swizzled by 128 bytes, zeros beyond the tensor; to one block, or to both of a cluster.
struct CUtensorMap { const uint8_t* data; int bytes; uint64_t sizes[3], strides[3]; uint32_t box[3]; };
namespace gpu {
inline void copy_box(uint32_t to, const CUtensorMap& map, uint32_t bar, const int (&at)[3], int rank) {
    CHECK(to % 1024 == 0 && map.box[0] * map.bytes == 128, "a box of %u columns goes to %u", map.box[0], to);
    int row = 0;
    for (uint32_t z = 0; z < map.box[2]; z++)
        for (uint32_t y = 0; y < map.box[1]; y++, row++)
            for (uint32_t x = 0; x < map.box[0]; x++) {
                int64_t place[3] = {at[0] + (int64_t)x, at[1] + (int64_t)y, at[2] + (int64_t)z};
                bool inside = true;
                for (int i = 0; i < 3; i++) inside &= place[i] >= 0 && place[i] < (int64_t)map.sizes[i];
                const uint8_t* from = map.data + place[0] * map.bytes + place[1] * map.strides[0] + place[2] * map.strides[1];
                uint32_t offset = to + row * 128 + x * map.bytes;
                CHECK(offset < MEMORY, "a box goes beyond shared memory");
                for (int i = 0; i < map.bytes; i++)
                    memory_of(rank)[(offset ^ (offset >> 7 & 7) << 4) + i] = inside ? from[i] : 0;
            }
    Barrier& b = barriers.at((int64_t)bar << 8 | rank);
    b.bytes -= row * 128;
    settle(b);
}
}  // namespace gpu
PRIMITIVE void tma_load(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    gpu::copy_box(to, *map, bar, {inner, outer, 0}, gpu::me->rank);
}
PRIMITIVE void tma_load_both(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int middle, int outer) {
    for (int rank = 0; rank < 2; rank++) gpu::copy_box(to, *map, bar, {inner, middle, outer}, rank);
}
PRIMITIVE void tma_load_both(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    tma_load_both(to, map, bar, inner, outer, 0);
}
PRIMITIVE void tma_load_once(uint32_t to, const CUtensorMap* map, uint32_t bar, int inner, int outer) {
    tma_load(to, map, bar, inner, outer);
}
PRIMITIVE uint32_t cluster_rank() { return gpu::me->rank; }
PRIMITIVE void cluster_sync() { cluster_arrive(), cluster_wait(); }
PRIMITIVE void cluster_meet() { cluster_sync(); }

// ---- The host's side ----

using CUresult = int;
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
using CUtensorMapDataType = int;
using CUtensorMapInterleave = int;
using CUtensorMapSwizzle = int;
using CUtensorMapL2promotion = int;
using CUtensorMapFloatOOBfill = int;
using cudaDriverEntryPointQueryResult = int;
constexpr int CUDA_SUCCESS = 0, CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9;
constexpr int CU_TENSOR_MAP_INTERLEAVE_NONE = 0;
constexpr int CU_TENSOR_MAP_SWIZZLE_128B = 3, CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0;
constexpr int cudaEnableDefault = 0;
inline CUresult describe_tensor(
    CUtensorMap* map, int type, uint32_t rank, void* data, const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
    const uint32_t* steps, int, int swizzle, int, int) {
    bool is_known = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_UINT8;
    CHECK(is_known && swizzle == CU_TENSOR_MAP_SWIZZLE_128B && rank <= 3 && (uintptr_t)data % 16 == 0, "a map of another kind");
    *map = {(const uint8_t*)data, type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
    for (uint32_t i = 0; i < rank; i++) {
        CHECK(steps[i] == 1 && box[i] <= 256, "a map of another kind");
        map->sizes[i] = sizes[i], map->box[i] = box[i];
        if (i + 1 < rank) {
            CHECK(strides[i] % 16 == 0, "a stride of %lu bytes", (unsigned long)strides[i]);
            map->strides[i] = strides[i];
        }
    }
    return CUDA_SUCCESS;
}
inline void cudaGetDriverEntryPointByVersion(const char*, void** entry, int, int, int*) { *entry = (void*)describe_tensor; }

using cudaError_t = int;
using cudaStream_t = void*;
constexpr int cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
constexpr int cudaLaunchAttributeClusterDimension = 4, cudaLaunchAttributeProgrammaticStreamSerialization = 6;
struct cudaLaunchAttribute {
    int id;
    struct { struct { unsigned x, y, z; } clusterDim; int programmaticStreamSerializationAllowed; } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    int numAttrs;
};
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int, int bytes) { return bytes > gpu::SHARED_BYTES; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments... given) {
    int cluster = gpu::clusters.count((void*)kernel) ? gpu::clusters[(void*)kernel] : 1;
    for (int i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = config->attrs[i].val.clusterDim.x;
    return gpu::run(config->gridDim, config->blockDim.x, config->dynamicSmemBytes, cluster, [=] { kernel(given...); });
}
