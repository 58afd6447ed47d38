"""Cross-entropy with label smoothing over the vocabulary, without ever holding all its logits (section 5.4).

N target tokens, C tokens a chunk, D model width, V vocabulary
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function

from clearhead.model import affine

# How many logits are held at a time: few, so that they stay in a cache, but those of enough tokens, since every chunk
# reads the weights and adds to their gradient. CPU time of forward and backward on one thread, by tokens a chunk:
#   D 128, V  6,000, 2,048 tokens: 174 0.131 s, 350 0.122 s, 700 0.123 s
#   D 512, V 37,000,   512 tokens:  28 1.166 s,  64 0.858 s, 128 0.747 s, 256 0.716 s
CHUNK_NUMBERS = 2 * 1024 * 1024
MIN_CHUNK = 256  # tokens, as long as they have no more than
MAX_NUMBERS = 16 * 1024 * 1024  # logits
# Up to so many weights, whole chunks add to their gradient turned, as grad_DV, by oneDNN: with 349 tokens a chunk that
# takes 0.8 to 0.9 of MKL's time (D 128, 256 and 512, V 6,000). With 8,000,000 weights and more MKL is the faster one.
TURNED_NUMBERS = 4 * 1024 * 1024
UNLIKELY = 69.0  # a probability of e^-69, of which so little is left in float32 that its logarithm is computed anew


class Loss(NamedTuple):
    """Sums over the tokens of a batch: divide by `tokens` for means."""

    smoothed: Tensor  # what is minimised
    nll: Tensor  # plain negative log-likelihood: its mean's exponential is the perplexity
    tokens: int


class _ChunkedCrossEntropy(Function):
    """Loss and gradients in one go: the softmax of a chunk of tokens is made, used for both, and forgotten.

    The logits of a chunk become its softmax, and that its gradient, in one piece of memory.

    With smoothing e the target distribution is q = (1-e) onehot + e/V, and d loss / d logits = p - q. The uniform
    part e/V is never written into the logits: it is one mean row of W in d hidden, and one constant row in d W.

    `products` is the type of the factors of matrix products; sums, softmax and gradients are of the weights' own type.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, smoothing: float, products: torch.dtype
    ) -> tuple[Tensor, ...]:
        num_tokens, vocab = len(hidden_ND), len(weight_VD)
        needs_grad = hidden_ND.requires_grad or weight_VD.requires_grad
        grad_hidden_ND = torch.empty_like(hidden_ND) if needs_grad else None
        grad_weight_VD = torch.zeros_like(weight_VD) if needs_grad else None
        mean_row_D = weight_VD.mean(0)
        picked_N, nll_N = hidden_ND.new_empty(2, num_tokens)
        short_ND, short_VD = hidden_ND.to(products), weight_VD.to(products)
        size = chunk_size(num_tokens, vocab)
        has_kernel = size == whole_chunk(vocab) and affine.has_kernel(short_ND, short_VD)
        grad_DV: Tensor | None = None  # what whole chunks add to the weights' gradient
        turns = has_kernel and weight_VD.numel() <= TURNED_NUMBERS
        space_CV = hidden_ND.new_empty(num_tokens % size if has_kernel else size, vocab)
        for start in range(0, num_tokens, size):
            part = slice(start, start + size)
            h_CD, target_C1 = short_ND[part], target_N[part, None]
            is_again = has_kernel and len(h_CD) == size
            p_CV = _multiply(h_CD, short_VD.t(), None if is_again else space_CV[: len(h_CD)])
            picked_N[part] = p_CV.gather(1, target_C1)[:, 0]
            torch.softmax(p_CV, 1, out=p_CV)
            nll_N[part] = p_CV.gather(1, target_C1)[:, 0].log_().neg_()
            if grad_hidden_ND is not None and grad_weight_VD is not None:
                p_CV.scatter_add_(1, target_C1, p_CV.new_full(target_C1.shape, smoothing - 1.0))
                p_CV = p_CV.to(products)
                if is_again:
                    grad_hidden_ND[part] = _multiply(p_CV, short_VD, None)
                else:
                    _multiply(p_CV, short_VD, grad_hidden_ND[part])
                if not (is_again and turns):
                    _add_product(p_CV.t(), h_CD, grad_weight_VD)
                elif grad_DV is None:
                    grad_DV = affine.multiply(h_CD.t(), p_CV)
                else:
                    grad_DV = affine.multiply_onto(grad_DV, h_CD.t(), p_CV)
            del p_CV  # before the next one is made
        if grad_DV is not None and grad_weight_VD is not None:
            grad_weight_VD.add_(grad_DV.t())
        _correct_unlikely(nll_N, picked_N, short_ND, short_VD, size)
        uniform_N = picked_N + nll_N - hidden_ND @ mean_row_D
        if grad_hidden_ND is not None and grad_weight_VD is not None:
            grad_hidden_ND.sub_(mean_row_D, alpha=smoothing)
            grad_weight_VD.sub_(hidden_ND.sum(0), alpha=smoothing / vocab)
            ctx.gradients = grad_hidden_ND, grad_weight_VD
        nll = nll_N.sum()
        return (1.0 - smoothing) * nll + smoothing * uniform_N.sum(), nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """Scales what the way forward left, in place: a gradient of the whole vocabulary is not copied for that."""
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were handed out already; compute the loss again")
        (grad_hidden_ND, grad_weight_VD), ctx.gradients = ctx.gradients, None
        return grad_hidden_ND.mul_(grads[0]), grad_weight_VD.mul_(grads[0]), None, None, None


def chunk_size(num_tokens: int, vocab: int) -> int:
    """How many tokens have their logits at a time: whatever the batch is, no more than a fixed number of logits."""
    return max(1, min(num_tokens, whole_chunk(vocab)))


def whole_chunk(vocab: int) -> int:
    """The same where tokens suffice."""
    return max(1, CHUNK_NUMBERS // vocab, min(MIN_CHUNK, MAX_NUMBERS // vocab))


def _correct_unlikely(nll_N: Tensor, picked_N: Tensor, hidden_ND: Tensor, weight_VD: Tensor, size: int) -> None:
    """Computes anew, without the softmax in which they vanish, what belongs to targets of hardly any probability."""
    for rows_C in torch.split((nll_N > UNLIKELY).nonzero()[:, 0], size):
        log_z_C = (hidden_ND[rows_C] @ weight_VD.t()).to(nll_N.dtype).logsumexp(1)
        nll_N[rows_C] = log_z_C - picked_N[rows_C]


def _multiply(left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:
    """left @ right into `out`; without it by oneDNN, into a tensor of its own.

    That takes 0.8 to 0.95 of MKL's time, but has to make a kernel first for each number of rows: good for whole chunks,
    which all batches have, and not for what is left of one, with another number each time.
    """
    if out is None:
        return affine.multiply(left, right)
    return torch.mm(left, right, out=out) if left.dtype == out.dtype else out.copy_(left @ right)


def _add_product(left: Tensor, right: Tensor, out: Tensor) -> None:
    if left.dtype == out.dtype:
        out.addmm_(left, right)
    else:
        out.add_(left @ right)


def cross_entropy(
    hidden_NTD: Tensor,
    weight_VD: Tensor,
    target_NT: Tensor,
    pad_id: int,
    smoothing: float,
    bias_V: Tensor | None = None,
) -> Loss:
    """The loss of hidden states against the tokens that should follow; padding does not count.

    Equal to `torch.nn.functional.cross_entropy(hidden @ weight.T, target, label_smoothing=..., reduction="sum")`, with
    the bias added to the logits where there is one.
    """
    if bias_V is not None:  # one more column, met by a 1 in every state
        hidden_NTD = torch.cat((hidden_NTD, torch.ones_like(hidden_NTD[..., :1])), -1)
        weight_VD = torch.cat((weight_VD, bias_V[:, None]), -1)
    real_NT = target_NT != pad_id
    target_N = target_NT[real_NT]
    kind = hidden_NTD.device.type
    products = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight_VD.dtype
    with torch.autocast(kind, enabled=False):
        hidden_ND = hidden_NTD[real_NT].to(weight_VD.dtype)
        smoothed, nll = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, target_N, smoothing, products)  # type: ignore[no-untyped-call]
    return Loss(smoothed, nll.detach(), len(target_N))
