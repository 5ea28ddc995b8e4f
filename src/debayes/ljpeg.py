"""Lossless JPEG (ITU-T T.81, process 14), the compression that every reader of DNG knows, of pictures of 16 bits.

Each sample is foretold by the one left of it, and what it differs by is written: how many bits it has as a Huffman
code, then those bits. Libraries do this sample by sample, and twice, once to count. Here it is done for all samples
of a tile at once, with codes made for the whole picture from some of its rows: a quarter of the time.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import UInt16
from numpy.typing import NDArray

# A difference has 0 to 16 bits.
SIZES = 17

# A size is taken to be no rarer than this, seen or not, so that each has a code and none has more than 16 bits.
RAREST = 1 / 1024

# Low bits of an entry of the table, for how many bits it has; the bits are above.
_LENGTH = np.uint64(6)
_MASK = np.uint64(63)


@dataclass(frozen=True)
class Coder:
    """Writes tiles of a picture with one set of Huffman codes."""

    lengths: tuple[int, ...]
    """The bits of the code for each size of a difference."""
    table: NDArray[np.uint64]
    """For each difference its code and bits, and below them how many these are."""

    @classmethod
    def of(cls, rows: UInt16[np.ndarray, "h w c"]) -> "Coder":
        """One for a picture of such rows; a few of its own are enough to know how often each size comes up."""
        sizes = np.bincount(_SIZE[_differences(rows)], minlength=SIZES)
        lengths = code_lengths(sizes)
        codes, wide = _canonical(lengths), np.array(lengths, np.uint64)
        entry = codes[_SIZE] << _EXTRA | _BITS
        return cls(lengths, entry << _LENGTH | wide[_SIZE] + _EXTRA)

    def encode(self, tile: UInt16[np.ndarray, "h w c"]) -> bytes:
        """A tile as a JPEG file."""
        height, width, colors = tile.shape
        ordered = _in_order(self.lengths)
        counts = [self.lengths.count(bits) for bits in range(1, 17)]
        frame = b"\x10" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([colors])
        frame += b"".join(bytes([color, 0x11, 0]) for color in range(colors))
        scan = bytes([colors]) + b"".join(bytes([color, 0]) for color in range(colors)) + b"\x01\x00\x00"
        codes = b"\x00" + bytes(counts) + bytes(ordered)
        head = _segment(0xC3, frame) + _segment(0xC4, codes) + _segment(0xDA, scan)
        return b"\xff\xd8" + head + _join(self.table.take(_differences(tile))) + b"\xff\xd9"


def code_lengths(counts: NDArray[np.int64]) -> tuple[int, ...]:
    """The bits of Huffman codes for sizes that come up so often; one code more, all ones, is left unused."""
    least = max(RAREST * float(counts.sum()), 1e-9)
    trees: list[tuple[float, int, tuple[int, ...]]] = [(0.0, SIZES, (SIZES,))]
    trees += [(max(float(count), least), size, (size,)) for size, count in enumerate(counts)]
    heapify(trees)
    lengths = [0] * (SIZES + 1)
    for made in range(SIZES):
        (few, _, some), (many, _, others) = heappop(trees), heappop(trees)
        for size in some + others:
            lengths[size] += 1
        heappush(trees, (few + many, SIZES + 1 + made, some + others))
    return tuple(lengths[:SIZES])


def _in_order(lengths: tuple[int, ...]) -> list[int]:
    """The sizes in the order of their codes: shorter ones first."""
    return sorted(range(SIZES), key=lambda size: (lengths[size], size))


def _canonical(lengths: tuple[int, ...]) -> NDArray[np.uint64]:
    """The code of each size: as T.81, annex C, counts them up."""
    codes = np.zeros(SIZES, np.uint64)
    code = before = 0
    for size in _in_order(lengths):
        code <<= lengths[size] - before
        before = lengths[size]
        codes[size] = code
        code += 1
    return codes


def _segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(data) + 2).to_bytes(2, "big") + data


def _differences(tile: UInt16[np.ndarray, "h w c"]) -> UInt16[np.ndarray, " n"]:
    """Samples less those left of them, modulo 65536; in the first column less those above, at first less half."""
    height, width, colors = tile.shape
    rows = tile.reshape(height, width * colors)
    found = np.empty_like(rows)
    np.subtract(rows[:, colors:], rows[:, :-colors], out=found[:, colors:])
    np.subtract(rows[1:, :colors], rows[:-1, :colors], out=found[1:, :colors])
    found[0, :colors] = rows[0, :colors] - np.uint16(32768)
    return found.ravel()


def _join(entries: NDArray[np.uint64]) -> bytes:
    """The bits of all entries one after the other, filled up with ones, with a 0 behind every byte of 255."""
    if len(entries) % 2:
        entries = np.append(entries, np.uint64(0))
    # two and two have at most 62 bits
    first, second = entries[0::2], entries[1::2]
    many = second & _MASK
    bits = first >> _LENGTH << many | second >> _LENGTH
    many += first & _MASK
    end = np.cumsum(many)
    start = end - many
    shift = start & _MASK
    bits <<= 64 - many
    # In every word of 64 bits at least one pair starts. Bits of pairs do not overlap, so those of a word are a sum,
    # and that is a difference of sums from the first pair on, which may overflow. The last one may reach beyond.
    word = start >> _LENGTH
    last = np.append(np.flatnonzero(word[1:] != word[:-1]), len(word) - 1)
    words = np.diff(np.cumsum(bits >> shift)[last], prepend=np.uint64(0))
    words = np.append(words, np.uint64(0))
    words[1:] |= bits[last] << (63 - shift[last]) << np.uint64(1)
    total = int(end[-1])
    whole = -(-total // 8)
    data = bytearray(words.astype(">u8").tobytes()[:whole])
    data[-1] |= (1 << 8 * whole - total) - 1
    return bytes(data).replace(b"\xff", b"\xff\x00")


def _of_differences() -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]]:
    """For each difference modulo 65536: its size, how many bits tell it from others of that size, and those bits.

    Those of a negative one are those of the number below it; the one of 16 bits, -32768, needs none.
    """
    signed = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)
    size = np.ceil(np.log2(np.abs(signed) + 1)).astype(np.uint8)
    extra = np.where(size == 16, 0, size).astype(np.uint64)
    bits = np.where(signed < 0, signed - 1, signed).astype(np.uint64) & (np.uint64(1) << extra) - np.uint64(1)
    return size, extra, bits


_SIZE, _EXTRA, _BITS = _of_differences()
