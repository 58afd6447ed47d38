"""Cross-entropy with label smoothing (section 5.4), computed in chunks, so that only some logits are in memory.

N target tokens, C tokens of a chunk, D model width, V vocabulary
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as F

from clearhead.kernels.onednn import has_onednn, multiply, multiply_add
from clearhead.kernels.switch import is_enabled

# Logits per chunk: few enough for the cache, but with many tokens, because every chunk reads all weights and adds to
# their gradient. CPU time of forward and backward on one thread, by tokens per chunk:
#   D 128, V  6,000, 2,048 tokens: 174 0.131 s, 350 0.122 s, 700 0.123 s
#   D 512, V 37,000,   512 tokens:  28 1.166 s,  64 0.858 s, 128 0.747 s, 256 0.716 s
CHUNK_LOGITS = 2 * 1024 * 1024
MIN_CHUNK = 256  # minimum number of tokens per chunk, unless they have more than MAX_LOGITS logits
MAX_LOGITS = 16 * 1024 * 1024
# Up to this number of weights, full chunks compute the transposed weight gradient with oneDNN, in 0.8 to 0.9 of MKL's
# time (D 128, 256 and 512, V 6,000, 349 tokens per chunk). From 8,000,000 weights on MKL is faster.
MAX_TRANSPOSED = 4 * 1024 * 1024
# The probability of a target whose loss is above this vanishes in float32; its logarithm is computed without a softmax.
MAX_EXACT_LOSS = 69.0


def cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the smoothed loss and the negative log-likelihood of the targets, summed over the tokens.

    Logits are hidden W^T + b. The first equals `torch.nn.functional.cross_entropy` with label_smoothing and
    reduction="sum"; the second has no gradient.
    """
    if not is_enabled():
        logits_NV = F.linear(hidden_ND, weight_VD, bias_V)
        smoothed = F.cross_entropy(logits_NV, target_N, reduction="sum", label_smoothing=smoothing)
        return smoothed, F.cross_entropy(logits_NV.detach(), target_N, reduction="sum")
    if bias_V is not None:  # appended as a column of the weights, with a 1 appended to every state
        hidden_ND = torch.cat((hidden_ND, torch.ones_like(hidden_ND[:, :1])), -1)
        weight_VD = torch.cat((weight_VD, bias_V[:, None]), -1)
    kind = hidden_ND.device.type
    products = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight_VD.dtype
    with torch.autocast(kind, enabled=False):
        smoothed, nll = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_ND.to(weight_VD.dtype), weight_VD, target_N, smoothing, products, torch.is_grad_enabled()
        )
    return smoothed, nll.detach()


class _ChunkedCrossEntropy(Function):
    """Computes loss and gradients in the forward pass: the softmax of a chunk is used for both and then overwritten.

    `products` is the type of the factors of matrix products; sums, softmax and gradients have the type of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, smoothing: float, products: torch.dtype,
        has_grad: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        chunks = _Chunks(hidden_ND, weight_VD, target_N, smoothing, products, has_grad)
        chunks.compute()
        if chunks.needs_grad:
            ctx.gradients = chunks.gradients()
        return chunks.losses()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """Scale the gradients in place, which avoids a copy of the large gradient of the weights."""
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss have been used already; compute the loss again")
        (grad_hidden_ND, grad_weight_VD), ctx.gradients = ctx.gradients, None
        return grad_hidden_ND.mul_(grads[0]), grad_weight_VD.mul_(grads[0]), None, None, None, None


class _Chunks:
    """Sums over the chunks of one batch.

    With smoothing e the target distribution is q = (1 - e) onehot + e / V, and the gradient of the logits is p - q. The
    uniform part e / V is not written into the logits: it is the mean row of W in the gradient of the states, and one
    constant row in that of W.
    """

    def __init__(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        target_N: Tensor,
        smoothing: float,
        products: torch.dtype,
        has_grad: bool,
    ) -> None:
        self.hidden_ND, self.weight_VD, self.target_N, self.smoothing = hidden_ND, weight_VD, target_N, smoothing
        self.short_ND, self.short_VD = hidden_ND.to(products), weight_VD.to(products)
        num_tokens, vocab = len(hidden_ND), len(weight_VD)
        # `has_grad`: whether gradients are enabled for the caller; inside a Function they are always disabled.
        self.needs_grad = has_grad and (hidden_ND.requires_grad or weight_VD.requires_grad)
        self.mean_row_D = weight_VD.mean(0)
        self.target_logit_N, self.nll_N = hidden_ND.new_empty(2, num_tokens)
        self.size = chunk_size(num_tokens, vocab)
        self.has_onednn = self.size == full_chunk(vocab) and has_onednn(self.short_ND, self.short_VD)
        self.logits_CV = hidden_ND.new_empty(num_tokens % self.size if self.has_onednn else self.size, vocab)
        self.grad_DV: Tensor | None = None  # of the weights, transposed: the sum over full chunks
        if self.needs_grad:
            self.grad_hidden_ND, self.grad_weight_VD = torch.empty_like(hidden_ND), torch.zeros_like(weight_VD)

    def compute(self) -> None:
        """Compute losses and gradients of all chunks."""
        for start in range(0, len(self.hidden_ND), self.size):
            part = slice(start, start + self.size)
            h_CD, target_C1 = self.short_ND[part], self.target_N[part, None]
            is_compiled = self.has_onednn and len(h_CD) == self.size
            p_CV = _multiply(h_CD, self.short_VD.t(), None if is_compiled else self.logits_CV[: len(h_CD)])
            self.target_logit_N[part] = p_CV.gather(1, target_C1)[:, 0]
            torch.softmax(p_CV, 1, out=p_CV)
            self.nll_N[part] = p_CV.gather(1, target_C1)[:, 0].log_().neg_()
            if self.needs_grad:
                p_CV.scatter_add_(1, target_C1, p_CV.new_full(target_C1.shape, self.smoothing - 1.0))
                self._add_gradients(part, h_CD, p_CV.to(h_CD.dtype), is_compiled)
            del p_CV  # released before the next chunk is computed
        self._correct_unlikely()

    def _add_gradients(self, part: slice, h_CD: Tensor, grad_CV: Tensor, is_compiled: bool) -> None:
        if is_compiled:
            self.grad_hidden_ND[part] = multiply(grad_CV, self.short_VD)
        else:
            _multiply(grad_CV, self.short_VD, self.grad_hidden_ND[part])
        if not is_compiled or self.weight_VD.numel() > MAX_TRANSPOSED:
            _add_product(grad_CV.t(), h_CD, self.grad_weight_VD)
        elif self.grad_DV is None:
            self.grad_DV = multiply(h_CD.t(), grad_CV)
        else:
            self.grad_DV = multiply_add(self.grad_DV, h_CD.t(), grad_CV)

    def _correct_unlikely(self) -> None:
        """Compute the loss of targets whose probability vanishes in the softmax from logits."""
        for rows_C in torch.split((self.nll_N > MAX_EXACT_LOSS).nonzero()[:, 0], self.size):
            log_z_C = (self.short_ND[rows_C] @ self.short_VD.t()).to(self.nll_N.dtype).logsumexp(1)
            self.nll_N[rows_C] = log_z_C - self.target_logit_N[rows_C]

    def losses(self) -> tuple[Tensor, Tensor]:
        """Return the smoothed loss and the negative log-likelihood."""
        uniform_N = self.target_logit_N + self.nll_N - self.hidden_ND @ self.mean_row_D
        nll = self.nll_N.sum()
        return (1.0 - self.smoothing) * nll + self.smoothing * uniform_N.sum(), nll

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the states and of the weights."""
        if self.grad_DV is not None:
            self.grad_weight_VD.add_(self.grad_DV.t())
        self.grad_hidden_ND.sub_(self.mean_row_D, alpha=self.smoothing)
        self.grad_weight_VD.sub_(self.hidden_ND.sum(0), alpha=self.smoothing / len(self.weight_VD))
        return self.grad_hidden_ND, self.grad_weight_VD


def chunk_size(num_tokens: int, vocab: int) -> int:
    """Return the number of tokens per chunk."""
    return max(1, min(num_tokens, full_chunk(vocab)))


def full_chunk(vocab: int) -> int:
    """Return the number of tokens of a full chunk, as in a large batch."""
    return max(1, CHUNK_LOGITS // vocab, min(MIN_CHUNK, MAX_LOGITS // vocab))


def _multiply(left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
    """Return left @ right, written to `out`; if it is None, computed by oneDNN, for frequent numbers of rows."""
    if out is None:
        return multiply(left, right)
    return torch.mm(left, right, out=out) if left.dtype == out.dtype else out.copy_(left @ right)


def _add_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    if left.dtype == out.dtype:
        out.addmm_(left, right)
    else:
        out.add_(left @ right)
