"""Named inputs for tests and tuning: ordinary ones, and those that made other top-k kernels wrong or slow."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of an element to the integer dtype that its bits are made in."""

SAMPLES = 4096
"""Positions that a sampling kernel looks at in one row, on an even stride."""

LOAD_BYTES, PIECES, PIECE_LOADS, MOST_TIMES, SPARED = 16, 128, 8, 4, 1 << 19
"""Another kernel looks at aligned loads of 16 bytes, of as many pieces of so many loads, fewer where k is large; at up
to so many times as many in rows of `SPARED` elements for each time. One load, or four adjacent ones, of each of as many
equal stretches."""

HASH = (0x9E3779B1, 0x2C1B3C6D)
"""Its factors: where in a stretch it looks follows from the stretch's number, and from the row's address, here 0."""


@dataclass(frozen=True)
class _Request:
    rows: int
    cols: int
    k: int
    dtype: torch.dtype
    device: str
    generator: torch.Generator

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize

    @property
    def lowest(self) -> float | int:
        return float("-inf") if self.dtype.is_floating_point else torch.iinfo(self.dtype).min

    @property
    def highest(self) -> float | int:
        info = torch.finfo(self.dtype) if self.dtype.is_floating_point else torch.iinfo(self.dtype)
        return info.max

    @cached_property
    def columns(self) -> Tensor:
        """(cols,) int64."""
        return torch.arange(self.cols, device=self.device)

    @cached_property
    def row_numbers(self) -> Tensor:
        """(rows, 1) int64."""
        return torch.arange(self.rows, device=self.device).unsqueeze(1)

    @property
    def sampled(self) -> Tensor:
        """(cols,) bool: the columns on a sampler's stride."""
        return self.columns % max(2, self.cols // SAMPLES) == 0

    @property
    def sampled_loads(self) -> Tensor:
        """(rows, cols) bool: the columns where loads at hashed places are looked at, one by one or four together.

        Rows are back to back in memory that begins at a load.
        """
        load = LOAD_BYTES // self.dtype.itemsize  # elements
        first = -self.row_numbers * self.cols % load  # the column of the first whole load, (rows, 1)
        loads = (self.cols - first).clamp(min=0) // load
        each = _power(min(PIECE_LOADS, max(1, self.cols // (load * self.k))))
        times = _power(min(MOST_TIMES, max(1, self.cols // SPARED)))
        found = torch.zeros(self.rows, self.cols + 1, dtype=torch.bool, device=self.device)
        pieces = torch.ones_like(loads)
        while (more := (2 * pieces <= loads // PIECE_LOADS) & (pieces < PIECES)).any():
            pieces = torch.where(more, 2 * pieces, pieces)
        for together in {1, min(each, 4)}:
            stretches = pieces * (each * times // together)
            stretch = torch.arange(PIECES * each * times // together, device=self.device)
            places = loads // together
            place = stretch * places // stretches + (_hashed(stretch) * (places // stretches) >> 32)
            column = first + place * (together * load)
            column = torch.where((stretch < stretches) & (loads >= PIECE_LOADS), column, self.cols)
            columns = column.unsqueeze(2) + torch.arange(together * load, device=self.device)
            found.scatter_(1, columns.clamp(max=self.cols).flatten(1), True)
        return found[:, : self.cols]

    def full(self, value: float) -> Tensor:
        return torch.full((self.rows, self.cols), value, dtype=self.dtype, device=self.device)

    def random(self) -> Tensor:
        """Normal floats; integers over the whole range of their dtype."""
        if self.dtype.is_floating_point:
            return torch.randn(self.rows, self.cols, dtype=self.dtype, device=self.device, generator=self.generator)
        return self.full(0).random_(torch.iinfo(self.dtype).min, None, generator=self.generator)

    def integers(self, low: int, high: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Uniform over [low, high)."""
        shape = (self.rows, self.cols)
        return torch.randint(low, high, shape, dtype=dtype, device=self.device, generator=self.generator)

    def chance(self, probability: float) -> Tensor:
        """Boolean, true with that probability."""
        return torch.rand(self.rows, self.cols, device=self.device, generator=self.generator) < probability

    def from_bits(self, bits: Tensor) -> Tensor:
        """Elements with the low bits of an int64 tensor."""
        low = bits & ((1 << self.bits) - 1) if self.bits < 64 else bits
        return low.to(_BITS[self.dtype.itemsize]).view(self.dtype)

    def bits_of(self, value: float) -> int:
        """The bits of a number."""
        return int(torch.full((), value, dtype=self.dtype).view(_BITS[self.dtype.itemsize]).item())

    def one_bits(self) -> int:
        """The bits of 1."""
        return self.bits_of(1)


def _power(number: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << (number.bit_length() - 1)


def _hashed(numbers: Tensor) -> Tensor:
    """32 bits that tell nothing of the number."""
    bits = (numbers + 1) * HASH[0] & 0xFFFFFFFF
    bits = (bits ^ bits >> 15) * HASH[1] & 0xFFFFFFFF
    return bits ^ bits >> 13


def _all_but_k_minus_1_equal(r: _Request) -> Tensor:
    """Only k - 1 larger elements, and a tie of everything else for the last place."""
    places = (torch.arange(r.k - 1, device=r.device) * (r.cols // r.k) + r.row_numbers * 13) % r.cols
    return r.full(1).scatter_(1, places, 2)


def _narrow(r: _Request) -> Tensor:
    """Elements that differ in their last bits only: 1 plus up to 15 steps."""
    return r.from_bits(r.one_bits() + r.integers(0, 16))


def _scales(r: _Request) -> Tensor:
    """One element far above another, which is far above the rest: even intervals within even intervals are crowded."""
    bits = r.one_bits() + r.integers(0, 4)
    bits[:, r.cols // 3] = r.one_bits() + (1 << r.bits // 2)
    bits[:, r.cols // 2] = r.bits_of(r.highest)
    return r.from_bits(bits)


def _near_ties(r: _Request) -> Tensor:
    """Every element with a neighbour a few steps from it, some a column away, some half a row."""
    bases, half = r.random(), r.cols // 2
    twins = torch.where(r.row_numbers % 2 == 0, r.columns // 2 * 2, r.columns % max(1, half))
    bits = bases.view(_BITS[r.dtype.itemsize]).gather(1, twins.expand(r.rows, r.cols))
    return r.from_bits(bits.to(torch.int64) // 8 * 8 + r.integers(0, 8))


def _one_radix_bin(r: _Request) -> Tensor:
    """One value of the leading 11 bits (half the bits of short dtypes), anything below."""
    free = r.bits - min(11, r.bits // 2)
    return r.from_bits((r.one_bits() >> free << free) + r.integers(0, 1 << free))


def _ascending(r: _Request) -> Tensor:
    if r.dtype.is_floating_point:
        row = torch.linspace(-1, 1, r.cols, dtype=torch.float64, device=r.device)
    else:
        levels = min(r.cols, 1 << r.bits)
        row = r.columns * levels // r.cols + max(torch.iinfo(r.dtype).min, -(levels // 2))
    return row.to(r.dtype).repeat(r.rows, 1)


def _ties(r: _Request) -> Tensor:
    """Every value about 2 k times, so that the cut falls inside a tie."""
    return r.integers(0, min(100, r.cols // (2 * r.k) + 2)).to(r.dtype)


def _minus_inf_padding(r: _Request) -> Tensor:
    """Rows of every length, from none at all, padded with the lowest value as masked logits are."""
    lengths = r.row_numbers * 7919 % (r.cols + 1)
    return r.random().masked_fill_(r.columns >= lengths, r.lowest)


def _half_masked(r: _Request) -> Tensor:
    """The lowest value in the last half of every other row, and in the first half of the others."""
    return r.random().masked_fill_((r.columns < r.cols // 2) == (r.row_numbers % 2 == 1), r.lowest)


def _infinities(r: _Request) -> Tensor:
    return r.random().masked_fill_(r.chance(0.1), float("inf")).masked_fill_(r.chance(0.3), float("-inf"))


def _nan_bits(r: _Request) -> Tensor:
    """NaNs of both signs and many payloads."""
    return r.from_bits(r.bits_of(float("nan")) + r.integers(0, 32) + (r.integers(0, 2) << (r.bits - 1)))


def _nan(r: _Request) -> Tensor:
    """From a few to about half NaN, by row, among ordinary elements and infinities."""
    share = (r.row_numbers % 4 + 1) * 0.12
    random = torch.rand(r.rows, r.cols, device=r.device, generator=r.generator)
    return torch.where(random < share, _nan_bits(r), _infinities(r))


def _few_nan(r: _Request) -> Tensor:
    """Fewer NaNs than k in most rows: each one must be found, whichever its sign."""
    return torch.where(r.chance(r.k / r.cols / 2), _nan_bits(r), r.random())


def _signed_zeros(r: _Request) -> Tensor:
    """Zeros of both signs, and now and then a 1 or -1."""
    zeros = torch.where(r.chance(0.5), r.full(0.0), r.full(-0.0))
    return zeros.masked_fill_(r.chance(0.02), 1).masked_fill_(r.chance(0.02), -1)


def _denormals(r: _Request) -> Tensor:
    """Subnormal elements of both signs."""
    return r.from_bits(r.integers(1, r.bits_of(torch.finfo(r.dtype).tiny)) + (r.integers(0, 2) << (r.bits - 1)))


def _huge_range(r: _Request) -> Tensor:
    """Any bits at all but NaN: every exponent equally often."""
    bits = r.full(0).view(_BITS[r.dtype.itemsize])
    floats = bits.random_(torch.iinfo(bits.dtype).min, None, generator=r.generator).view(r.dtype)
    return floats.masked_fill_(floats.isnan(), 0)


def _extremes(r: _Request) -> Tensor:
    """The ends of the dtype and their neighbours; for int64 also values that become one as doubles."""
    if r.dtype.is_floating_point:
        info = torch.finfo(r.dtype)
        largest, tiny = info.max, info.smallest_normal
        choices = [largest, -largest, tiny, -tiny, 0.0, -0.0, 1.0, 1.0 + info.eps, float("inf"), float("-inf")]
    else:
        ends = torch.iinfo(r.dtype)
        choices = [ends.max, ends.max - 1, ends.min, ends.min + 1, 0, 1]
        if r.bits == 64:
            choices += [1 << 53, (1 << 53) + 1, -(1 << 53), -(1 << 53) - 1]
    return torch.tensor(choices, dtype=r.dtype, device=r.device)[r.integers(0, len(choices))]


def _sampler_peaks(r: _Request) -> Tensor:
    """Large exactly where a strided sampler looks: its threshold is far too high."""
    return _where(r, r.sampled, 60)


def _sampler_holes(r: _Request) -> Tensor:
    """Small exactly where a strided sampler looks: its threshold lets everything through."""
    return _where(r, r.sampled, -60)


def _hashed_peaks(r: _Request) -> Tensor:
    """Large exactly where a sampler of hashed places looks: almost nothing else passes the cut that it tells."""
    return _where(r, r.sampled_loads, 60)


def _hashed_holes(r: _Request) -> Tensor:
    """The best are exactly where a sampler of hashed places does not look: all of these pass the cut that it tells."""
    return _where(r, r.sampled_loads, -60)


def _where(r: _Request, sampled: Tensor, step: int) -> Tensor:
    base = r.random() if r.dtype.is_floating_point else r.integers(60, 67).to(r.dtype)
    return torch.where(sampled, base + step, base)


_ANY: dict[str, Callable[[_Request], Tensor]] = {
    "random": _Request.random,
    "all_equal": lambda r: r.full(1),
    "all_but_k_minus_1_equal": _all_but_k_minus_1_equal,
    "narrow": _narrow,
    "scales": _scales,
    "near_ties": _near_ties,
    "one_radix_bin": _one_radix_bin,
    "ascending": _ascending,
    "descending": lambda r: _ascending(r).flip(1),
    "ten_values": lambda r: r.integers(0, 10).to(r.dtype),
    "ties": _ties,
    "minus_inf_padding": _minus_inf_padding,
    "half_masked": _half_masked,
    "extremes": _extremes,
    "sampler_peaks": _sampler_peaks,
    "sampler_holes": _sampler_holes,
    "hashed_peaks": _hashed_peaks,
    "hashed_holes": _hashed_holes,
}

_FLOATS_ONLY: dict[str, Callable[[_Request], Tensor]] = {
    "infinities": _infinities,
    "nan": _nan,
    "few_nan": _few_nan,
    "all_nan": _nan_bits,
    "signed_zeros": _signed_zeros,
    "denormals": _denormals,
    "huge_range": _huge_range,
}

NAMES: tuple[str, ...] = (*_ANY, *_FLOATS_ONLY)
"""Every named input."""


def names_for(dtype: torch.dtype) -> tuple[str, ...]:
    """The named inputs that exist for a dtype."""
    return NAMES if dtype.is_floating_point else tuple(_ANY)


def make_bias(cols: int, device: str, seed: int = 0) -> Tensor:
    """A router's bias (cols,) as training leaves it: float32 from a normal distribution of a tenth."""
    return torch.randn(cols, device=device, generator=torch.Generator(device).manual_seed(seed)) / 10


def make(name: str, rows: int, cols: int, k: int, dtype: torch.dtype, device: str, seed: int = 0) -> Tensor:
    """A contiguous (rows, cols) tensor of that kind, aimed at a top-k of `k`; the same for the same arguments.

    Raises ValueError for an unknown name, or one that the dtype does not have.
    """
    if name not in names_for(dtype):
        raise ValueError(f"input {name!r} is not one of {', '.join(names_for(dtype))} ({dtype})")
    generator = torch.Generator(device).manual_seed(seed)
    return {**_ANY, **_FLOATS_ONLY}[name](_Request(rows, cols, k, dtype, device, generator))
