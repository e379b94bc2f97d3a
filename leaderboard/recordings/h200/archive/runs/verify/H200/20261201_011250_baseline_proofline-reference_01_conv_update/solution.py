"""Short convolution of a verify step over a rolling cache, in place (verify/01_conv_update).

Formula.   z = cache[a-1 .. a+1] then the S new tokens; out_t = silu(sum_j W[:, j] z[t+j]); the cache becomes old a, a+1, new.
Bytes.     T*C*2 in, T*C*2 out, 6*B*C history, 2*B*(S+2)*C cache, 16*C weights; C = 384*H channels, T = B*S tokens.
Floors.    H200 by bytes: 0.04 us (H 12, S 2, B 1) to 28.6 us (H 96, S 8, B 64); 11 operations a channel and token, never the
           limit. Up to about 16 requests a launch takes longer than the floor.
Method.    One program per request and 256 channels; a channel's history, sums and new cache stay in one thread, so reading and
           writing the same page needs no order between programs. Requests with page 0 do nothing.
Limits.    Rows, pages and slots contiguous; page bytes even; the answer's rows of null requests stay unwritten.

Notes: docs/kernels/conv_update.md.
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
def conv_kernel(
    rows, weight, pages, slots, accepted, out, C, row_stride, page_stride, S: tl.constexpr, BLOCK: tl.constexpr
):
    request = tl.program_id(0)
    page = tl.load(slots + request * S)
    if page > 0:
        channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = channel < C
        cache = pages + page.to(tl.int64) * page_stride + channel
        start = tl.load(accepted + request) - 1
        oldest = tl.load(cache + start * C, mask=inside, other=0.0)
        middle = tl.load(cache + (start + 1) * C, mask=inside, other=0.0)
        latest = tl.load(cache + (start + 2) * C, mask=inside, other=0.0)
        w0 = tl.load(weight + channel * 4, mask=inside, other=0.0)
        w1 = tl.load(weight + channel * 4 + 1, mask=inside, other=0.0)
        w2 = tl.load(weight + channel * 4 + 2, mask=inside, other=0.0)
        w3 = tl.load(weight + channel * 4 + 3, mask=inside, other=0.0)
        tl.store(cache, middle, mask=inside)
        tl.store(cache + C, latest, mask=inside)
        z0 = oldest.to(tl.float32)
        z1 = middle.to(tl.float32)
        z2 = latest.to(tl.float32)
        for t in tl.static_range(S):
            token = (request * S + t).to(tl.int64)
            new = tl.load(rows + token * row_stride + channel, mask=inside, other=0.0)
            tl.store(cache + (2 + t) * C, new, mask=inside)
            z3 = new.to(tl.float32)
            y = w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3
            y = rounded(y / (1.0 + tl.exp(-y)))
            tl.store(out + token * C + channel, y.to(out.dtype.element_ty), mask=inside)
            z0 = z1
            z1 = z2
            z2 = z3


class Model(nn.Module):
    """One launch."""

    def __init__(self, H: int, S: int) -> None:
        super().__init__()
        self.channels, self.width = 384 * H, S

    def forward(self, rows: Tensor, weight: Tensor, pages: Tensor, slots: Tensor, accepted: Tensor) -> Tensor:
        C, S = self.channels, self.width
        out = torch.empty(rows.shape[0], C, dtype=rows.dtype, device=rows.device)
        halves = pages.view(torch.bfloat16)
        conv_kernel[(slots.shape[0], triton.cdiv(C, 256))](
            rows, weight, halves, slots, accepted, out, C, rows.stride(0), halves.stride(0), S, 256, num_warps=2
        )
        return out
