"""Gated delta rule over the S tokens of a verify step, every token's state kept in its page (verify/02_kda_recurrence).

Formula.   M = state[slot[a-1]]; per token M *= e^g, u = sigmoid(rate) (v - M k), M += u k^T, o = M q, state[slot[t]] = M, with q
           and k of unit length, q also times 128^-1/2, and g = -5 sigmoid(e^A (raw + bias)) per channel.
Bytes.     (B + T)*H*65536 of states, 1282*T*H of the rest; T = B*S tokens. Operations: 9*128*128 a token and head.
Floors.    H200: 0.5 us (H 12, S 2, B 1) to 768 us (H 96, S 8, B 64) by bytes; operations at most 7.3 us.
Method.    One program per request, head and slice of the values; its slice of the state stays in registers through all S
           tokens, so each state is written once and none is read back. Slices are thin where there are few heads.
Limits.    Head width 128. All tensors contiguous. Requests that start from page 0 do nothing; their answer is unwritten.

Notes: docs/kernels/kda_verify.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def rounded(x):
    """Return x rounded to bf16, as fp32; by hand, since Triton's interpreter cuts the lower bits off."""
    bits = x.to(tl.uint32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def verify_kernel(
    mixed,
    rows,
    raw_g,
    a_log,
    dt_bias,
    states,
    slots,
    accepted,
    out,
    row_stride,
    page_stride,
    H: tl.constexpr,
    S: tl.constexpr,
    SLICE: tl.constexpr,
):
    head = tl.program_id(0) % H
    request = tl.program_id(0) // H
    start = tl.load(slots + request * S + tl.load(accepted + request) - 1)
    if start > 0:
        key = tl.arange(0, 128)
        value = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
        at = head * 16384 + value[:, None] * 128 + key[None, :]
        state = tl.load(states + start.to(tl.int64) * page_stride + at)
        sharpness = tl.exp(tl.load(a_log + head))
        bias = tl.load(dt_bias + head * 128 + key)
        for t in tl.static_range(S):
            token = (request * S + t).to(tl.int64)
            here = mixed + token * (384 * H) + head * 128
            q = tl.load(here + key).to(tl.float32)
            k = tl.load(here + 128 * H + key).to(tl.float32)
            v = tl.load(here + 256 * H + value).to(tl.float32)
            q = q * tl.rsqrt(tl.sum(q * q, axis=0) + 1e-6) * 0.08838834764831845
            k = k * tl.rsqrt(tl.sum(k * k, axis=0) + 1e-6)
            gate = sharpness * (tl.load(raw_g + (token * H + head) * 128 + key).to(tl.float32) + bias)
            decay = tl.exp(-5.0 / (1.0 + tl.exp(-gate)))
            rate = tl.load(rows + token * row_stride + 512 * H + 128 + head).to(tl.float32)
            state = state * decay[None, :]
            update = (v - tl.sum(state * k[None, :], axis=1)) / (1.0 + tl.exp(-rate))
            state += update[:, None] * k[None, :]
            o = rounded(tl.sum(state * q[None, :], axis=1))
            tl.store(out + (token * H + head) * 128 + value, o.to(out.dtype.element_ty))
            page = tl.load(slots + request * S + t)
            if page > 0:
                tl.store(states + page.to(tl.int64) * page_stride + at, state)


class Model(nn.Module):
    """One launch."""

    def __init__(self, H: int, S: int) -> None:
        super().__init__()
        self.heads, self.width = H, S

    def forward(
        self,
        mixed: Tensor,
        rows: Tensor,
        raw_g: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        pages: Tensor,
        slots: Tensor,
        accepted: Tensor,
    ) -> Tensor:
        H = self.heads
        out = torch.empty(mixed.shape[0], H, 128, dtype=mixed.dtype, device=mixed.device)
        units = slots.shape[0] * H
        width = 8 if units <= 64 else 16 if units <= 256 else 32
        verify_kernel[(units, 128 // width)](
            mixed, rows, raw_g, a_log, dt_bias, pages[:, -H * 16384 :], slots, accepted, out,
            rows.stride(0), pages.stride(0), H, self.width, width, num_warps=1 if width == 8 else 4,
        )  # fmt: skip
        return out
