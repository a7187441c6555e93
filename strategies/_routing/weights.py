"""Scores of logits, and the weights of those chosen. `scoring` is 0 for softmax, 1 for sigmoid, 2 for sqrtsoftplus."""

import triton
import triton.language as tl

from autotopk.strategies._short_rows.order import LOWEST, float_key


@triton.jit
def softplus(x):
    """log(1 + exp(x)) of float32, of any shape, to some roundings whichever the size of the result."""
    small = tl.exp(-tl.abs(x))
    half = small / (2.0 + small)  # log(1 + small) is twice its area hyperbolic tangent, at most 1/3
    square = half * half
    series = square * (1.0 / 15.0) + 1.0 / 13.0
    series = series * square + 1.0 / 11.0
    series = series * square + 1.0 / 9.0
    series = series * square + 1.0 / 7.0
    series = series * square + 1.0 / 5.0
    series = series * square + 1.0 / 3.0
    return tl.maximum(x, 0.0) + (2.0 * half) * (series * square + 1.0)


@triton.jit
def scores_of(x, base, scoring):
    """Scores of logits (R, n), float32; of softmax exp(x - base), not divided by their sum. `base` is (R, 1)."""
    if scoring == 0:
        scores = tl.exp(x - base)
    elif scoring == 1:
        scores = 1.0 / (1.0 + tl.exp(-x))
    else:
        scores = tl.sqrt(softplus(x))
    return scores


@triton.jit
def greatest_number(x, present):
    """The greatest float32 of every row where `present`, (R, n) to (R, 1); without regard to NaN."""
    key = tl.where(present, float_key(x.to(tl.int32, bitcast=True)), LOWEST)
    return float_key(tl.max(key, axis=1)[:, None]).to(tl.float32, bitcast=True)


@triton.jit
def weights_of(chosen, asked, rule, base, total):
    """Weights of the chosen logits of every row, tuples of tensors (R, n), as far as they are `asked` for.

    `rule` is scoring, whether weights are divided by their sum (0 counts as 1), and the scale. Where they are not,
    those of softmax are exp(x - base) / total, both (R, 1), and others are divided by `total` as well.
    """
    scoring, renormalize, scale = rule
    # no reductions in a branch: ptxas 12.8 makes predicated ones of those in short branches, by the wrong predicate
    best = greatest_number(chosen[0], asked[0])
    for t in tl.static_range(1, len(chosen)):
        best = tl.maximum(best, greatest_number(chosen[t], asked[t]))
    base = tl.where(renormalize != 0, best, base)
    scores = ()
    for t in tl.static_range(0, len(chosen)):
        scores = scores + (tl.where(asked[t], scores_of(chosen[t], base, scoring), 0.0),)
    together = tl.sum(scores[0], axis=1)[:, None]
    for t in tl.static_range(1, len(chosen)):
        together += tl.sum(scores[t], axis=1)[:, None]
    total = tl.where(renormalize != 0, tl.where(together == 0.0, 1.0, together), total)
    weights = ()
    for t in tl.static_range(0, len(chosen)):
        weights = weights + (scores[t] / total * scale,)
    return weights


@triton.jit
def write_weights(outputs, ranks, columns, weights, k):
    """Writes columns and float32 weights, each at its rank if that is below k; tuples of tensors of one shape.

    `outputs` are the pointers to weights and indices, whether those are int32, the offsets where rows' results begin
    and whether they are wanted.
    """
    to_weights, to_indices, narrow, out, wanted = outputs
    for t in tl.static_range(0, len(ranks)):
        tl.store(to_weights + out + ranks[t], weights[t].to(tl.int32, bitcast=True), mask=wanted & (ranks[t] < k))
    if narrow:
        narrow_indices = to_indices.to(tl.pointer_type(tl.int32), bitcast=True)
        for t in tl.static_range(0, len(ranks)):
            tl.store(narrow_indices + out + ranks[t], columns[t], mask=wanted & (ranks[t] < k))
    else:
        for t in tl.static_range(0, len(ranks)):
            tl.store(to_indices + out + ranks[t], columns[t].to(tl.int64), mask=wanted & (ranks[t] < k))
