"""Kimi delta attention, forward, for hard/02_kda_cutlass.

Formula.   S' = diag(exp g_t) S; u = beta_t (v_t - S'^T k_t); S = S' + k_t u^T; o_t = K^(-1/2) S^T q_t, from S = 0.
Bytes.     1538 per token and head: 25, 50, 50, 13 MB. The kernels add 72.5 KB of scratch per chunk and head (37 MB at
           most) and 64 KB per segment (4 MB).
Floors.    By bytes 5.2, 10.5, 10.5, 2.6 us on an H200; by operations (6 K V per token and head) 1.6, 3.3, 3.3, 0.8
           us. The chain of dependent steps is that of a segment, twice, and one step for each segment.
Method.    Chunks of 64, three kernels. `prepare`, chunks in parallel: running sums of g from the middle of the chunk,
           scores, T = (I + A)^-1 (16 x 16 blocks in fp32, then joined in tf32), w = T beta exp(G) k, u = T beta v.
           `follow`, segments in parallel, chunk after chunk: v' = u - w S and S = exp(G_end) S + k'^T v' on wgmma, the
           state in registers. What a segment does to the state before it is a matrix and an addend; the first run of
           `follow` makes both, from the unit matrix and from zero. The second run goes through those of the segments
           before its own, and then reads out on the way: o = q exp(G) S + (q k^T) v'. Each kernel is launched before
           the one before it ends, and waits for it.
Range.     Factored decays are used while they span at most 2^60 within half a chunk; beyond that the chunk's scores
           are summed pair by pair, slower. Growth (g > 0) was checked up to 0.1 a token. A segment's matrix is rounded
           to bf16, as the state is in every step: nominal and long-memory errors stay those of one chain.
Limits.    The Hopper path needs K = V = 128 and T divisible by 64; all else runs a token-by-token Triton kernel.
           Calls of one Model must not run concurrently: they share scratch. Every call recomputes everything.
Tried.     One chain a head with states kept for a third kernel: 43, 81, 100, 45 us (`do_bench`, one process) where this
           takes 39, 66, 67, 33. Aim 0.07 of the peak missed, and no floor forbids it.

Notes and all numbers: docs/kernels/kda.md.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__
typedef __nv_bfloat16 bf16;
constexpr int C = 64, K = 128;              // tokens a chunk, channels of q, k and of v
constexpr float LOG2E = 1.4426950408889634f;
constexpr float WIDEST = 60.f;              // log2 of the decay within half a chunk that the factored form may span

// What `prepare` leaves of a chunk of one head: where each part begins, bytes. Tiles lie as wgmma reads them, 64 rows of
// 128 bytes, swizzled: -w (64 x 128), k decayed to the chunk's end, transposed (128 x 64), q decayed from its start
// (64 x 128), q k^T (64 x 64). Then the chunk's whole decay, fp32, and u as fragments (registers of the tensor-core
// instructions, 16 bytes a lane).
constexpr int TILE = 8192, W = 0, KT = 2 * TILE, QG = 4 * TILE, QK = 6 * TILE, GAMMA = 7 * TILE, U = GAMMA + K * 4;
constexpr int CHUNK = U + 2 * TILE;
// What `follow` leaves of a segment: its transition (128 x 128, tiles), and as fragments the state it makes from zero.
constexpr int START = 4 * TILE, SEGMENT = 8 * TILE;

struct Args {
    const bf16 *q, *k, *v, *beta;
    const float* g;
    bf16* out;
    uint8_t *chunk, *segment;
    int tokens, heads, rows, chunks;        // rows: batch times heads
    int segments, length;                   // chunks of a segment; the last may have fewer
    int parts;                              // blocks that share a segment's columns of v
    float scale;
};

DEVICE uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE float exp_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE uint32_t pair(float low, float high) {
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&p);
}
DEVICE uint32_t pair_here(float low, float high) {   // not moved by the compiler
    uint32_t p;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low) : "memory");
    return p;
}
DEVICE float low_half(uint32_t p) { return __uint_as_float(p << 16); }
DEVICE float high_half(uint32_t p) { return __uint_as_float(p & 0xffff0000u); }
DEVICE uint32_t scaled(uint32_t p, float low, float high) { return pair(low_half(p) * low, high_half(p) * high); }
DEVICE void load_matrices(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEVICE void load_transposed(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
DEVICE void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
DEVICE void copy_16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEVICE void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
DEVICE void store_bulk(void* to, uint32_t from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
                 ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
DEVICE void stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
DEVICE void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEVICE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void await_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE float tf32(float x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}
// Operands are tf32 already: each is rounded once, where it is stored.
DEVICE void multiply_tf32(float (&d)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)), "r"(__float_as_uint(a3)),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
DEVICE void group_sync(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory"); }
DEVICE size_t token_row(const Args& a, int row, int token) {
    return ((size_t)(row / a.heads) * a.tokens + token) * a.heads + row % a.heads;
}
DEVICE void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Where 16 bytes of a row of a tile begin: the chunk of eight columns, counted over neighbouring tiles of 64 rows.
DEVICE int in_tiles(int row, int column_8) {
    return column_8 / 8 * TILE + row * 128 + ((column_8 % 8 ^ (row & 7)) << 4);
}

// ---- Kernel 1: everything inside a chunk, chunks in parallel, 256 threads each ----

constexpr int PITCH = K + 8, WIDE = 68;     // bf16 tiles and the 64 x 64 fp32 matrices, padded
struct alignas(128) Shared {
    union {
        float decay[C][K];                  // log2 of the decay since the middle of the chunk
        struct { float a[C][WIDE], t[C][WIDE]; } m;
    };
    bf16 kp[C][PITCH], kn[C][PITCH], qp[C][PITCH], v[C][PITCH];
    float middle[K], rest[K], to_middle[K], to_end[K], beta[C];
    int wide;
};

// Too wide a decay for the factored form: pair by pair.
__device__ __noinline__ void score_directly(const Args& a, Shared& s, int row, int start, int t, int group) {
    float kk[9], qk[9];
    for (int e = 0, p = t; p < C * (C + 1) / 2; e++, p += 256) {
        int i = (int)((sqrtf(8.f * p + 1.f) - 1.f) / 2.f);
        while ((i + 1) * (i + 2) / 2 <= p) i++;
        while (i * (i + 1) / 2 > p) i--;
        int j = p - i * (i + 1) / 2;
        size_t at_i = token_row(a, row, start + i) * K, at_j = token_row(a, row, start + j) * K;
        float sum_k = 0.f, sum_q = 0.f;
        for (int d = 0; d < K; d++) {
            float kj = __bfloat162float(a.k[at_j + d]) * exp_2(s.decay[i][d] - s.decay[j][d]);
            sum_k += __bfloat162float(a.k[at_i + d]) * kj;
            sum_q += __bfloat162float(a.q[at_i + d]) * kj;
        }
        kk[e] = sum_k;
        qk[e] = sum_q * a.scale;
    }
    group_sync(group);
    for (int e = 0, p = t; p < C * (C + 1) / 2; e++, p += 256) {
        int i = (int)((sqrtf(8.f * p + 1.f) - 1.f) / 2.f);
        while ((i + 1) * (i + 2) / 2 <= p) i++;
        while (i * (i + 1) / 2 > p) i--;
        int j = p - i * (i + 1) / 2;
        s.m.a[i][j] = kk[e] * s.beta[i];
        if (i / 16 != j / 16) s.m.a[i][j] = tf32(s.m.a[i][j]);
        s.m.t[i][j] = qk[e];
    }
    group_sync(group);
}

// T = (I + A)^-1, first the four 16 x 16 blocks on the diagonal: lane j solves column j.
// The results are stored at the end: a store between the loads would hold them up.
DEVICE void invert_block(Shared& s, int block, int lane) {
    int o = block * 16, j = lane % 16;
    float column[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float row[16], sum = i == j ? 1.f : 0.f;
#pragma unroll
        for (int m = 0; m < i; m += 4) *(float4*)(row + m) = *(const float4*)&s.m.a[o + i][o + m];
#pragma unroll
        for (int m = 0; m < i; m++) sum -= row[m] * column[m];
        column[i] = sum;
    }
    if (lane < 16)
#pragma unroll
        for (int i = 0; i < 16; i++) s.m.t[o + i][o + j] = tf32(column[i]);
}

// T[r.., c..] = -T[r.., r..] A[r.., c..] T[c.., c..] for square blocks of 16 or 32: one warp makes 16 x 8 of it.
template <int SIZE>
DEVICE void join_blocks(Shared& s, int r, int c, int m, int n, int lane) {
    int x = lane / 4, y = lane % 4;
    float left[SIZE / 8][4] = {}, d[4] = {};
#pragma unroll
    for (int k = 0; k < SIZE; k += 8) {
        if (k >= m + 16) break;
        const float* t = &s.m.t[r + m + x][r + k + y];
#pragma unroll
        for (int j = 0; j < SIZE / 8; j++) {
            const float* b = &s.m.a[r + k + y][c + j * 8 + x];
            multiply_tf32(left[j], t[0], t[8 * WIDE], t[4], t[8 * WIDE + 4], b[0], b[4 * WIDE]);
        }
    }
    // The product's columns 2y and 2y + 1 serve as the next product's inner indices y and y + 4.
#pragma unroll
    for (int j = 0; j < SIZE / 8; j++) {
        if (SIZE == 32 && n >= 16 && j < 2) continue;
        const float* b = &s.m.t[c + j * 8 + 2 * y][c + n + x];
        multiply_tf32(d, tf32(left[j][0]), tf32(left[j][2]), tf32(left[j][1]), tf32(left[j][3]), b[0], b[WIDE]);
    }
    float* to = &s.m.t[r + m + x][c + n + 2 * y];
    to[0] = tf32(-d[0]);
    to[1] = tf32(-d[1]);
    to[8 * WIDE] = tf32(-d[2]);
    to[8 * WIDE + 1] = tf32(-d[3]);
}

// Bring what the group will load next into the L2, a line of g and one or two of q, k and v a thread.
DEVICE void fetch_ahead(const Args& a, int task, int t) {
    if (task >= a.rows * a.chunks) return;
    int row = task % a.rows, start = task / a.rows * C;
    prefetch(a.g + token_row(a, row, start + t / 4) * K + t % 4 * 32);
    size_t at = token_row(a, row, start + t / 2 % C) * K + t % 2 * 64;
    prefetch((t < 128 ? a.q : a.k) + at);
    if (t < 128) prefetch(a.v + at);
}

// k and q of four tokens, 16 bytes each, decayed and grown again, to their places.
template <bool WIDE>
DEVICE void place_decayed(Shared& s, const uint4 (&key)[4], const uint4 (&query)[4], uint8_t* chunk, float scale, int t) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int token = i * 16 + t / 16, first = t % 16 * 8;
        uint32_t plus[4], minus[4], read[4], early[4];
        const uint32_t *k2 = (const uint32_t*)&key[i], *q2 = (const uint32_t*)&query[i];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float2 decay = *(const float2*)&s.decay[token][first + 2 * c], start = {1.f, 1.f};
            float2 m = {0.f, 0.f}, e = {0.f, 0.f};
            if (WIDE) m = *(const float2*)&s.middle[first + 2 * c], e = *(const float2*)&s.rest[first + 2 * c];
            else start = *(const float2*)&s.to_middle[first + 2 * c];
            float down0 = exp_2(decay.x + m.x), down1 = exp_2(decay.y + m.y);
            float up0 = exp_2(e.x - decay.x), up1 = exp_2(e.y - decay.y);
            plus[c] = scaled(k2[c], down0, down1);
            minus[c] = scaled(k2[c], up0, up1);
            read[c] = scaled(q2[c], down0 * scale, down1 * scale);
            early[c] = scaled(q2[c], down0 * scale * start.x, down1 * scale * start.y);
        }
        *(uint4*)&s.kp[token][first] = *(uint4*)plus;
        *(uint4*)&s.kn[token][first] = *(uint4*)minus;
        *(uint4*)&s.qp[token][first] = *(uint4*)read;
        *(uint4*)(chunk + QG + in_tiles(token, t % 16)) = *(uint4*)early;
    }
}

// 16 x 16 of q k^T, from the accumulators of one warp, as far as no query sees a later key.
DEVICE void put_scores(uint8_t* chunk, int row, int column, const float (&d)[2][4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int r = row + e % 2 * 8, c = column + e / 2 * 8;
        float low = d[e / 2][e % 2 * 2], high = d[e / 2][e % 2 * 2 + 1];
        *(uint32_t*)(chunk + QK + in_tiles(r, c / 8) + c % 8 * 2) = pair(c > r ? 0.f : low, c + 1 > r ? 0.f : high);
    }
}
// 16 x 16 of A; what is joined later is rounded to tf32.
DEVICE void keep_scores(Shared& s, int row, int column, bool is_joined, const float (&d)[2][4]) {
    float near = s.beta[row], far = s.beta[row + 8];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float low = d[e / 2][e % 2 * 2] * (e % 2 ? far : near), high = d[e / 2][e % 2 * 2 + 1] * (e % 2 ? far : near);
        float2 kept = {is_joined ? tf32(low) : low, is_joined ? tf32(high) : high};
        *(float2*)&s.m.a[row + e % 2 * 8][column + e / 2 * 8] = kept;
    }
}

__global__ void __launch_bounds__(512, 1) prepare(Args a) {
    extern __shared__ __align__(1024) uint8_t raw[];
    let_next_start();
    int group = threadIdx.x / 256, t = threadIdx.x % 256, warp = t / 32, lane = t % 32;
    Shared& s = reinterpret_cast<Shared*>(raw)[group];
    int quad = lane % 4, octet = lane / 4;
    uint32_t kp = address(s.kp), kn = address(s.kn), qp = address(s.qp), vs = address(s.v);

    for (int task = group * gridDim.x + blockIdx.x; task < a.rows * a.chunks; task += 2 * gridDim.x) {
        int row = task % a.rows, chunk = task / a.rows, start = chunk * C;
        uint8_t* to = a.chunk + ((size_t)row * a.chunks + chunk) * CHUNK;

        // Loads. For g: a thread takes one channel of half a chunk. For the rest: 16 bytes of four tokens.
        int channel = t % K, half = t / K;
        float g[C / 2];
#pragma unroll
        for (int i = 0; i < C / 2; i++) g[i] = __ldcs(a.g + token_row(a, row, start + half * 32 + i) * K + channel);
        uint4 key[4], query[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            size_t at = token_row(a, row, start + i * 16 + t / 16) * K + t % 16 * 8;
            key[i] = __ldcs((const uint4*)(a.k + at));
            query[i] = __ldcs((const uint4*)(a.q + at));
            copy_16(vs + ((i * 16 + t / 16) * PITCH + t % 16 * 8) * 2, a.v + at);
        }
        copies_end();
        if (t < C) s.beta[t] = __bfloat162float(a.beta[token_row(a, row, start + t)]);
        if (t == 0) s.wide = 0;

        // Running sums from the middle of the chunk outwards.
        float sum = 0.f, extent = 0.f;
#pragma unroll
        for (int i = 0; i < C / 2; i++) g[i] = sum += g[i] * LOG2E;
        if (t % 128 == 0) stores_read();      // of the chunk before, whose places are filled again
        group_sync(group);
        fetch_ahead(a, task + 2 * gridDim.x, t);
#pragma unroll
        for (int i = 0; i < C / 2; i++) {
            float decay = half ? g[i] : g[i] - sum;
            extent = fmaxf(extent, fabsf(decay));
            s.decay[half * 32 + i][channel] = decay;
        }
        if (half) s.rest[channel] = sum, s.to_end[channel] = exp_2(sum);
        else s.middle[channel] = sum, s.to_middle[channel] = exp_2(sum);
        if (!(fmaxf(extent, fabsf(sum)) <= WIDEST)) s.wide = 1;
        group_sync(group);
        bool wide = s.wide;
        if (wide) {           // then everything decays from the chunk's start, or to its end, as it stands
            if (t < K) s.to_middle[t] = s.to_end[t] = 1.f;
            group_sync(group);
        }
        if (t < K) ((float*)(to + GAMMA))[t] = exp_2(s.middle[t] + s.rest[t]);
        if (wide) place_decayed<true>(s, key, query, to, a.scale, t);
        else place_decayed<false>(s, key, query, to, a.scale, t);
        group_sync(group);
        if (wide) score_directly(a, s, row, start, t, group);

        // Scores: warps 0 to 3 make A = beta k k^T, warps 4 to 7 q k^T, which leaves.
        if (!wide) {
            int m = warp < 4 ? warp : 7 - warp;
            uint32_t from = (warp < 4 ? kp : qp) + ((m * 16 + lane % 16) * PITCH + lane / 16 * 8) * 2, x[8][4];
#pragma unroll
            for (int ks = 0; ks < 8; ks++) load_matrices(x[ks], from + ks * 32);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (j > m) break;
                float d[2][4] = {};
                uint32_t b = kn + ((j * 16 + lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8) * 2, y[4];
#pragma unroll
                for (int ks = 0; ks < 8; ks++) {
                    load_matrices(y, b + ks * 32);
                    multiply(d[0], x[ks], y[0], y[1]);
                    multiply(d[1], x[ks], y[2], y[3]);
                }
                if (warp < 4) keep_scores(s, m * 16 + octet, j * 16 + 2 * quad, j < m, d);
                else put_scores(to, m * 16 + octet, j * 16 + 2 * quad, d);
            }
        } else if (warp >= 4) {
            for (int j = 0; j < 8 - warp; j++) {
                float d[2][4];
                for (int e = 0; e < 8; e++)
                    d[e / 4][e % 4] = s.m.t[(7 - warp) * 16 + octet + e / 2 % 2 * 8][j * 16 + 2 * quad + e / 4 * 8 + e % 2];
                put_scores(to, (7 - warp) * 16 + octet, j * 16 + 2 * quad, d);
            }
        }
        if (warp >= 4)
            for (int j = 8 - warp; j < 4; j++) {
                float none[2][4] = {};
                put_scores(to, (7 - warp) * 16 + octet, j * 16 + 2 * quad, none);
            }
        group_sync(group);

        // Warps 0 to 3 invert; 4 to 7 decay k to the chunk's end and transpose it, into the place of qp.
        int token_16 = lane / 8 % 2 * 8 + lane % 8;
        if (warp < 4) {
            invert_block(s, warp, lane);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                int channel_16 = (warp - 4) * 32 + e / 4 * 16, step = e % 4;
                uint32_t x[4];
                load_transposed(x, kn + ((step * 16 + token_16) * PITCH + channel_16 + lane / 16 * 8) * 2);
                float near = s.to_end[channel_16 + octet], far = s.to_end[channel_16 + 8 + octet];
                int r = channel_16 + lane / 16 * 8 + lane % 8, c = step * 2 + lane / 8 % 2;
                store_matrices(qp + r * 128 + ((c ^ (r & 7)) << 4), scaled(x[0], near, near), scaled(x[1], near, near),
                               scaled(x[2], far, far), scaled(x[3], far, far));
            }
            fence_async();
        }
        group_sync(group);
        if (t == 128) store_bulk(to + KT, qp, 2 * TILE);
        if (warp < 4) join_blocks<16>(s, warp < 2 ? 16 : 48, warp < 2 ? 0 : 32, 0, warp % 2 * 8, lane);
        await_copies();
        group_sync(group);
        join_blocks<32>(s, 32, 0, warp / 4 * 16, warp % 4 * 8, lane);
        group_sync(group);

        // w = T diag(beta) exp(G) k (16 channels a warp), u = T diag(beta) v (16 columns a warp, transposed).
        {
            uint32_t kb[4][4], va[4][4];
#pragma unroll
            for (int ks = 0; ks < 4; ks++) {
                load_transposed(kb[ks], kp + ((ks * 16 + token_16) * PITCH + warp * 16 + lane / 16 * 8) * 2);
                load_transposed(va[ks], vs + ((ks * 16 + lane / 16 * 8 + lane % 8) * PITCH + warp * 16 + lane / 8 % 2 * 8) * 2);
            }
            float2 e = *(const float2*)&s.to_middle[warp * 16 + 2 * quad];
            float2 f = *(const float2*)&s.to_middle[warp * 16 + 8 + 2 * quad];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                float w[2][4] = {}, u[2][4] = {};
#pragma unroll
                for (int ks = 0; ks <= m; ks++) {
                    float2 near = *(const float2*)&s.beta[ks * 16 + 2 * quad];
                    float2 far = *(const float2*)&s.beta[ks * 16 + 8 + 2 * quad];
                    const float* from = &s.m.t[m * 16 + octet][ks * 16 + 2 * quad];
                    float2 t0 = *(const float2*)from, t1 = *(const float2*)(from + 8 * WIDE);
                    float2 t2 = *(const float2*)(from + 8), t3 = *(const float2*)(from + 8 * WIDE + 8);
                    uint32_t x[4] = {pair(t0.x * near.x, t0.y * near.y), pair(t1.x * near.x, t1.y * near.y),
                                     pair(t2.x * far.x, t2.y * far.y), pair(t3.x * far.x, t3.y * far.y)};
                    multiply(w[0], x, kb[ks][0], kb[ks][1]);
                    multiply(w[1], x, kb[ks][2], kb[ks][3]);
                    multiply(u[0], va[ks], x[0], x[2]);
                    multiply(u[1], va[ks], x[1], x[3]);
                }
                ((uint4*)(to + U))[(warp * 4 + m) * 32 + lane] = make_uint4(
                    pair(u[0][0], u[0][1]), pair(u[0][2], u[0][3]), pair(u[1][0], u[1][1]), pair(u[1][2], u[1][3]));
                int r = m * 16 + token_16, c = warp * 2 + lane / 16;
                store_matrices(kn + in_tiles(r, c), pair(-w[0][0] * e.x, -w[0][1] * e.y),
                               pair(-w[0][2] * e.x, -w[0][3] * e.y), pair(-w[1][0] * f.x, -w[1][1] * f.y),
                               pair(-w[1][2] * f.x, -w[1][3] * f.y));
            }
        }
        fence_async();
        group_sync(group);
        if (t == 0) store_bulk(to + W, kn, 2 * TILE);
    }
    if (t % 128 == 0) await_stores();
}

// ---- Kernels 2 and 3: the state, chunk after chunk of a segment, 16 columns of v a warp ----

constexpr int STAGES = 3, STAGE = 73 * 1024;

DEVICE void barrier_init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
DEVICE void barrier_expect(uint32_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEVICE void barrier_wait(uint32_t bar, int parity) {
    uint32_t done = 0;
    for (int spin = 0; !done; spin++) {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done) : "r"(bar), "r"(parity) : "memory");
        if (spin > 1 << 24) __trap();
    }
}
DEVICE void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
DEVICE void consumers_sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
// Rows of 128 bytes, 128-byte swizzle, eight rows 1024 bytes apart.
DEVICE uint64_t describe(uint32_t at) {
    return (uint64_t)((at & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d, i) R4(d, i), R4(d, i + 4), R4(d, i + 8), R4(d, i + 12)
template <bool ADD = true>
DEVICE void multiply_64(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
        : R16(d, 0), R16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// d (64 columns) += a (16 rows a warp, 64 inner) b, a tile; d = a b if not ADD.
template <bool ADD = true>
DEVICE void multiply_tile(float (&d)[32], const uint32_t (&a)[4][4], uint32_t tile) {
    multiply_64<ADD>(d, a[0], describe(tile));
#pragma unroll
    for (int i = 1; i < 4; i++) multiply_64(d, a[i], describe(tile + i * 32));
}
// Accumulators as the left operand of the next product.
DEVICE void round_off(const float (&d)[32], uint32_t (&x)[4][4]) {
#pragma unroll
    for (int i = 0; i < 16; i++) x[i / 4][i % 4] = pair_here(d[2 * i], d[2 * i + 1]);
}
DEVICE void widen(const uint4* x, float (&d)[32]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 u = x[i * 32];
        const uint32_t* p = (const uint32_t*)&u;
#pragma unroll
        for (int j = 0; j < 4; j++) d[i * 8 + 2 * j] = low_half(p[j]), d[i * 8 + 2 * j + 1] = high_half(p[j]);
    }
}
DEVICE void round_and_decay(float (&state)[32], uint32_t (&x)[4][4], const float* gamma) {
    round_off(state, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float2 f = *(const float2*)(gamma + i * 8);
        state[i * 4] *= f.x;
        state[i * 4 + 1] *= f.y;
        state[i * 4 + 2] *= f.x;
        state[i * 4 + 3] *= f.y;
    }
}

// A block's share of the work: a segment of a head, which columns, which role.
struct Share {
    int row, segment, part;
    bool is_transition;
};
template <bool READ>
DEVICE Share share_of(const Args& a, int block) {
    if (READ) {               // the last segment, which has the longest way, first
        int rest = block / a.parts;
        return {rest % a.rows, a.segments - 1 - rest / a.rows, block % a.parts, false};
    }
    int states = a.rows * (a.segments - 1);
    if (block < states) return {block % a.rows, block / a.rows, 0, false};
    return {(block - states) % a.rows, 1 + (block - states) / a.rows, 0, true};
}

// Loads into the ring, in the order of use, by one thread.
template <bool READ>
DEVICE void feed(const Args& a, const Share& share, uint32_t stages, const uint64_t* full, const uint64_t* empty) {
    int item = 0, bytes = 2 * TILE / (READ ? a.parts : 1);
    uint32_t bar, to;
    auto take = [&](int expected) {
        int stage = item % STAGES;
        if (item >= STAGES) barrier_wait(address(empty + stage), (item / STAGES - 1) & 1);
        bar = address(full + stage), to = stages + stage * STAGE;
        barrier_expect(bar, expected);
        item++;
    };
    for (int i = 0; READ && i < share.segment; i++) {
        const uint8_t* from = a.segment + ((size_t)share.row * a.segments + i) * SEGMENT;
        take((i ? START : 0) + 2 * bytes);
        if (i) copy_bulk(to, from, START, bar);
        copy_bulk(to + START, from + START + share.part * 2 * bytes, 2 * bytes, bar);
    }
    int first = share.segment * a.length, last = min(first + a.length, a.chunks);
    for (int c = first; c < last; c++) {
        const uint8_t* from = a.chunk + ((size_t)share.row * a.chunks + c) * CHUNK;
        int front = READ ? GAMMA : QG, columns = share.is_transition ? 0 : bytes;
        take(front + K * 4 + columns);
        copy_bulk(to, from, front, bar);
        copy_bulk(to + GAMMA, from + GAMMA, K * 4, bar);
        if (columns) copy_bulk(to + U, from + U + share.part * bytes, columns, bar);
    }
}

// 64 tokens of 16 columns, transposed through the warp's own part of u's place.
DEVICE void write_out(const Args& a, const uint32_t (&x)[4][4], uint8_t* place, bf16* to, int lane) {
    uint32_t at = address(place);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int token = i * 16 + lane / 16 * 8 + lane % 8;
        store_transposed(at + token * 32 + ((lane / 8 ^ token / 4) % 2 << 4), x[i][0], x[i][1], x[i][2], x[i][3]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int token = i * 16 + lane / 2;
        uint4 line = *(const uint4*)(place + token * 32 + ((lane ^ token / 4) % 2 << 4));
        *(uint4*)(to + (size_t)token * a.heads * K + lane % 2 * 8) = line;
    }
}

// Follow a segment. To sum it up (READ is false): from zero, which gives the state that it adds, or, without u, from the
// unit matrix, which gives what it makes of a state before it. To read it out: from what the segments before it leave.
template <bool READ>
__global__ void __launch_bounds__(384, 1) follow(Args a) {
    extern __shared__ __align__(1024) uint8_t raw[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    uint32_t stages = (address(raw) + 1023) & ~1023u;
    int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, workers = blockDim.x / 32 - 4;
    const Share share = share_of<READ>(a, blockIdx.x);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(address(full + i), 1);
            barrier_init(address(empty + i), workers);
        }
        barriers_ready();
    }
    let_next_start();
    __syncthreads();
    if (warp >= workers) {
        fewer_registers();
        if (warp == workers && lane == 0) {
            await_previous();
            fence_async();
            feed<READ>(a, share, stages, full, empty);
        }
        return;
    }
    more_registers();
    // The state, transposed, channels in two halves: while the tensor cores work on one, the other is rounded.
    float low[32] = {}, high[32] = {}, d[32], o[32] = {};
    int item = 0;
    uint32_t at;
    uint8_t* here = raw;
    auto await_item = [&] {
        int stage = item % STAGES;
        at = stages + stage * STAGE;
        here = raw + (at - address(raw));
        barrier_wait(address(full + stage), item / STAGES & 1);
        item++;
    };
    auto finish = [&](int which) {
        __syncwarp();
        if (lane == 0) barrier_arrive(address(empty + which % STAGES));
    };
    uint32_t x[4][4], y[4][4], z[4][4];
    for (int i = 0; READ && i < share.segment; i++) {     // the state before this segment
        await_item();
        round_off(low, x);
        round_off(high, z);
        const uint4* added = (const uint4*)(here + START) + warp * 256 + lane;
        widen(added, low);
        widen(added + 128, high);
        if (i) {
            wgmma_fence();
            multiply_tile(low, x, at);
            multiply_tile(low, z, at + TILE);
            wgmma_commit();
            multiply_tile(high, x, at + 2 * TILE);
            multiply_tile(high, z, at + 3 * TILE);
            wgmma_commit();
            wgmma_wait<0>();
        }
        finish(item - 1);
    }
    if (share.is_transition)
#pragma unroll
        for (int e = 0; e < 32; e++) {
            int r = warp % 4 * 16 + lane / 4 + e / 2 % 2 * 8, c = e / 4 * 8 + lane % 4 * 2 + e % 2;
            low[e] = warp < 4 && r == c;
            high[e] = warp >= 4 && r == c;
        }
    int first = share.segment * a.length, last = min(first + a.length, a.chunks);
    bf16* out = a.out + token_row(a, share.row, first * C) * K + (share.part * 4 + warp) * 16;
    const float* gamma;
    auto begin = [&] {        // d = u
        await_item();
        gamma = (const float*)(here + GAMMA) + 2 * (lane % 4);
        if (share.is_transition)
#pragma unroll
            for (int e = 0; e < 32; e++) d[e] = 0.f;
        else
            widen((const uint4*)(here + U) + warp * 128 + lane, d);
    };
    begin();
    round_and_decay(low, x, gamma);
    round_and_decay(high, z, gamma + 64);
    wgmma_fence();
    multiply_tile(d, x, at + W);
    multiply_tile(d, z, at + W + TILE);
    if (READ) {
        multiply_tile<false>(o, x, at + QG);
        multiply_tile(o, z, at + QG + TILE);
    }
    wgmma_commit();
    wgmma_wait<0>();
    for (int c = first;; c++) {
        round_off(d, y);
        wgmma_fence();
        multiply_tile(low, y, at + KT);
        wgmma_commit();
        multiply_tile(high, y, at + KT + TILE);
        wgmma_commit();
        if (READ) {
            multiply_tile(o, y, at + QK);
            wgmma_commit();
        }
        if (c + 1 == last) break;
        uint8_t* place = here + U + warp * 2048;
        begin();
        wgmma_wait<READ ? 2 : 1>();
        round_and_decay(low, x, gamma);
        wgmma_fence();
        multiply_tile(d, x, at + W);
        wgmma_commit();
        wgmma_wait<READ ? 2 : 1>();
        if (!READ) finish(item - 2);
        round_and_decay(high, z, gamma + 64);
        wgmma_fence();
        multiply_tile(d, z, at + W + TILE);
        wgmma_commit();
        if (READ) {
            wgmma_wait<2>();
            round_off(o, y);
            wgmma_fence();
            multiply_tile<false>(o, x, at + QG);
            multiply_tile(o, z, at + QG + TILE);
            wgmma_commit();
            write_out(a, y, place, out, lane);
            out += (size_t)C * a.heads * K;
            fence_async();
            finish(item - 2);
        }
        wgmma_wait<0>();
    }
    wgmma_wait<0>();
    if (READ) {
        round_off(o, y);
        write_out(a, y, here + U + warp * 2048, out, lane);
        return;
    }
    uint8_t* to = a.segment + ((size_t)share.row * a.segments + share.segment) * SEGMENT;
    round_off(low, x);
    round_off(high, z);
    if (!share.is_transition) {
        uint4* added = (uint4*)(to + START) + warp * 256 + lane;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            added[i * 32] = make_uint4(x[i][0], x[i][1], x[i][2], x[i][3]);
            added[128 + i * 32] = make_uint4(z[i][0], z[i][1], z[i][2], z[i][3]);
        }
        return;
    }
    // Transposed into tiles: columns of the transition are rows there, two tiles for its first 64 columns, two for the rest.
    consumers_sync();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i * 16 + lane / 16 * 8 + lane % 8, c = warp * 2 + lane / 8 % 2;
        store_transposed(stages + in_tiles(r, c), x[i][0], x[i][1], x[i][2], x[i][3]);
        store_transposed(stages + 2 * TILE + in_tiles(r, c), z[i][0], z[i][1], z[i][2], z[i][3]);
    }
    consumers_sync();
    for (int i = threadIdx.x; i < START / 16; i += 256) ((uint4*)to)[i] = ((const uint4*)(raw + (stages - address(raw))))[i];
}

// Segments of a head: the more, the shorter the chains, but each later one first follows those before it. One block a
// multiprocessor makes the summaries, and where they fit two share what a segment reads out. The weights, in tenths of a
// microsecond, rank the lengths as they were measured on an H200: a chunk summed up and read out, a segment passed.
bool is_shared(int rows, int segments, int processors) { return 2 * rows * segments <= processors; }
int best_length(int rows, int chunks, int processors) {
    int best = chunks, least = 1 << 30;
    for (int length = 1; length <= chunks; length++) {
        int segments = (chunks + length - 1) / length;
        if (segments > 1 && rows * (2 * segments - 3) > processors) continue;
        int summed = segments > 1 ? 18 * length + 6 * (segments - 2) : 11 * length;
        int cost = summed + (is_shared(rows, segments, processors) ? 0 : 50);
        if (cost < least) least = cost, best = length;
    }
    return best;
}
size_t scratch_bytes(int rows, int chunks, int processors) {
    int length = best_length(rows, chunks, processors);
    return (size_t)rows * chunks * CHUNK + (size_t)rows * ((chunks + length - 1) / length) * SEGMENT;
}

// early: the kernel may start before the one before it has ended, and waits for it by itself.
cudaError_t launch(void (*kernel)(Args), int blocks, int threads, int bytes, bool early, const Args& a, cudaStream_t s) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    config.stream = s;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = early;
    return cudaLaunchKernelEx(&config, kernel, a);
}

int attend(
    const void* q, const void* k, const void* v, const float* g, const void* beta, void* out, uint8_t* scratch, int batch,
    int tokens, int heads, int processors, float scale, cudaStream_t s) {
    Args a;
    a.q = (const bf16*)q, a.k = (const bf16*)k, a.v = (const bf16*)v, a.beta = (const bf16*)beta;
    a.g = g, a.out = (bf16*)out;
    a.tokens = tokens, a.heads = heads, a.rows = batch * heads, a.chunks = tokens / C, a.scale = scale;
    size_t tasks = (size_t)a.rows * a.chunks;
    a.length = best_length(a.rows, a.chunks, processors);
    a.segments = (a.chunks + a.length - 1) / a.length;
    a.parts = is_shared(a.rows, a.segments, processors) ? 2 : 1;
    a.chunk = scratch;
    a.segment = scratch + tasks * CHUNK;
    constexpr int first = 2 * sizeof(Shared), second = STAGES * STAGE + 1024;
    static cudaError_t one = cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, first);
    static cudaError_t two = cudaFuncSetAttribute(follow<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, second);
    static cudaError_t three = cudaFuncSetAttribute(follow<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, second);
    for (cudaError_t error : {one, two, three})
        if (error != cudaSuccess) return error;
    cudaError_t error = launch(prepare, processors < (int)tasks ? processors : (int)tasks, 512, first, false, a, s);
    int summaries = a.rows * (2 * a.segments - 3);
    if (error == cudaSuccess && a.segments > 1) error = launch(follow<false>, summaries, 384, second, true, a, s);
    if (error == cudaSuccess)
        error = launch(follow<true>, a.rows * a.segments * a.parts, 128 + 256 / a.parts, second, true, a, s);
    return error;
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

size_t scratch_bytes(int, int, int);
int attend(const void*, const void*, const void*, const float*, const void*, void*, uint8_t*, int, int, int, int, float,
           cudaStream_t);

// The chunks' intermediate results, and the memory of the next result. That memory is asked for behind the launches, while
// the kernels run; every result has memory of its own all the same.
struct Plan {
    int processors;
    at::TensorBase scratch, next;
    cudaStream_t owner;

    static at::TensorBase take(at::TensorBase& from, at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
        at::TensorBase memory = std::move(from);
        if (memory.defined() && memory.sizes() == sizes && memory.device() == device) return memory;
        return at::detail::empty_cuda(sizes, type, device, std::nullopt);
    }
};

// run(q, k, v, g, beta), a plain C function whose self is the plan: half the cost of a bound one.
static PyObject* run(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    Plan& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, nullptr));
    TORCH_CHECK(count == 5, "run: need 5 arguments");
    for (int i = 0; i < 5; i++) {
        TORCH_CHECK(THPVariable_Check(args[i]), "run: need five tensors");
        const at::Tensor& t = THPVariable_Unpack(args[i]);
        TORCH_CHECK(t.is_cuda() && t.is_contiguous() && t.scalar_type() == (i == 3 ? at::kFloat : at::kBFloat16),
                    "run: need contiguous inputs, g fp32 and the others bf16");
    }
    const at::Tensor &q = THPVariable_Unpack(args[0]), &k = THPVariable_Unpack(args[1]), &v = THPVariable_Unpack(args[2]);
    const at::Tensor &g = THPVariable_Unpack(args[3]), &beta = THPVariable_Unpack(args[4]);
    c10::cuda::OptionalCUDAGuard guard(q.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    // A graph must own what it writes to.
    const bool captures = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    if (captures || plan.owner != stream) plan.next.reset(), plan.scratch.reset();
    const int64_t bytes = scratch_bytes(q.size(0) * q.size(2), q.size(1) / 64, plan.processors);
    at::TensorBase scratch = Plan::take(plan.scratch, {bytes}, at::kByte, q.device());
    at::TensorBase out = Plan::take(plan.next, v.sizes(), at::kBFloat16, v.device());
    int error = attend(q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), g.const_data_ptr<float>(),
                       beta.const_data_ptr(), out.mutable_data_ptr(), scratch.mutable_data_ptr<uint8_t>(), q.size(0), q.size(1),
                       q.size(2), plan.processors, 1.0 / std::sqrt(double(q.size(3))), stream);
    TORCH_CHECK(error == 0, "launch failed with CUDA error ", error);
    if (!captures) {
        plan.next = at::detail::empty_cuda(v.sizes(), at::kBFloat16, v.device(), std::nullopt);
        plan.scratch = std::move(scratch);
        plan.owner = stream;
    }
    return THPVariable_Wrap(std::move(out));
    END_HANDLE_TH_ERRORS
}

static PyMethodDef method = {"run", (PyCFunction)(void*)run, METH_FASTCALL, nullptr};

static pybind11::object bind(int processors) {
    pybind11::capsule plan(new Plan{processors, {}, {}, nullptr}, [](void* p) { delete static_cast<Plan*>(p); });
    return pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(&method, plan.ptr()));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bind", &bind); }
"""


@functools.cache
def extension():
    """Compile the Hopper kernels."""
    return load_inline(
        "proofline_kda",
        CPP,
        CUDA,
        extra_cflags=["-O2"],
        extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"],
        no_implicit_headers=True,
    )


@triton.jit
def attend_by_token(
    q, k, v, g, beta, out, tokens, heads, scale, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    """Follow the recurrence token by token in fp32, BV columns of the state per program."""
    row, part = tl.program_id(0), tl.program_id(1)
    channel, column = tl.arange(0, BK), part * BV + tl.arange(0, BV)
    has_channel, has_column = channel < K, column < V
    state = tl.zeros((BK, BV), tl.float32)
    for token in range(tokens):
        at = ((row // heads) * tokens + token).to(tl.int64) * heads + row % heads
        key = tl.load(k + at * K + channel, has_channel, 0.0).to(tl.float32)
        query = tl.load(q + at * K + channel, has_channel, 0.0).to(tl.float32) * scale
        value = tl.load(v + at * V + column, has_column, 0.0).to(tl.float32)
        state *= tl.exp(tl.load(g + at * K + channel, has_channel, 0.0))[:, None]
        update = tl.load(beta + at).to(tl.float32) * (value - tl.sum(state * key[:, None], 0))
        state += key[:, None] * update[None, :]
        result = tl.sum(state * query[:, None], 0)
        tl.store(out + at * V + column, result.to(out.dtype.element_ty), has_column)


class Model(nn.Module):
    """The gated delta rule with a decay per key channel."""

    def __init__(self, B: int, T: int, H: int, K: int, V: int, chunk_size: int = 64) -> None:
        super().__init__()
        self.register_buffer("_dummy", torch.zeros(1), persistent=False)
        self.is_chunked = K == V == 128 and T % 64 == 0 and torch.cuda.get_device_capability() == (9, 0)
        if self.is_chunked:
            self.run = extension().bind(torch.cuda.get_device_properties().multi_processor_count)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        if self.is_chunked:
            return self.run(q, k, v, g, beta)
        out = torch.empty_like(v)
        (batch, tokens, heads, width), columns = q.shape, v.shape[3]
        grid = (batch * heads, triton.cdiv(columns, 16))
        attend_by_token[grid](
            q, k, v, g, beta, out, tokens, heads, width**-0.5, width, columns, triton.next_power_of_2(width), 16
        )
        return out

    # nn.Module's own call only adds hooks, and took 2.7 us on the host of the notes.
    __call__ = forward
