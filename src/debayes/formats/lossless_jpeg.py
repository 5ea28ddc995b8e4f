"""Lossless JPEG (ITU-T T.81, process 14), the compression that every reader of DNG knows, of pictures of 16 bits.

Each sample is foretold by the one left of it, and what it differs by is written: how many bits it has as a Huffman
code, then those bits. Libraries do this sample by sample, and twice, once to count. Here it is done for many rows
at once, with codes made for the whole picture from some of them: a quarter of the time.
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

# Samples of a tile that are worked on at once, in memory that is used again. With fewer, threads wait for each
# other in Python.
BAND = 384 * 1024

# Low bits of an entry of the table, for how many bits it has; the bits are above.
_LENGTH = np.uint64(6)
_MASK = np.uint64(63)
_WORD = np.uint64(64)
_ONES = np.uint64(2**64 - 1)

# Every sample as it is.
_PLAIN = np.arange(65536, dtype=np.uint16)


@dataclass(frozen=True)
class Coder:
    """Writes tiles of a picture with one set of Huffman codes."""

    lengths: tuple[int, ...]
    """The bits of the code for each size of a difference."""
    table: NDArray[np.uint64]
    """For each difference its code and bits, and below them how many these are."""
    curve: UInt16[np.ndarray, "65536"]
    """What is written for each sample."""

    @classmethod
    def of(cls, rows: UInt16[np.ndarray, "h w c"], curve: UInt16[np.ndarray, "65536"] = _PLAIN) -> "Coder":
        """One for a picture of such rows; a few of its own are enough to know how often each size comes up."""
        height, width, colors = rows.shape
        written = curve.take(rows.reshape(height, width * colors))
        often = np.bincount(_differences(written, colors).ravel(), minlength=65536)
        lengths = code_lengths(np.bincount(_SIZE, often, SIZES).astype(np.int64))
        codes, wide = _canonical(lengths), np.array(lengths, np.uint64)
        entry = codes[_SIZE] << _EXTRA | _BITS
        return cls(lengths, entry << _LENGTH | wide[_SIZE] + _EXTRA, curve)

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
        return b"".join([b"\xff\xd8", head, *self._scan(tile), b"\xff\xd9"])

    def _scan(self, tile: UInt16[np.ndarray, "h w c"]) -> list[bytes]:
        """The codes and bits of all samples, band by band."""
        height, width, colors = tile.shape
        band = max(1, BAND // (width * colors))
        samples = np.empty((band + 1, width, colors), np.uint16)  # and the row above
        pairs = -(-band * width * colors // 2)
        first, second = np.empty((2, pairs), np.uint64)  # of each pair of samples
        bits = _Bits(pairs)
        above = 0
        for top in range(0, height, band):
            some = tile[top : top + band]
            self.curve.take(some, out=samples[1 : len(some) + 1], mode="wrap")  # without a check, in place
            rows = samples[1 - above : len(some) + 1].reshape(above + len(some), width * colors)
            found = _differences(rows, colors)[above:]
            flat = found.reshape(-1)
            many, both = -(-flat.size // 2), flat.size // 2
            self.table.take(flat[0::2], out=first[:many], mode="wrap")
            self.table.take(flat[1::2], out=second[:both], mode="wrap")
            second[both:many] = 0
            bits.add(first[:many], second[:many])
            samples[0], above = samples[len(some)], 1
        return bits.end()


class _Bits:
    """Bits one after the other, with a 0 behind every byte of 255."""

    def __init__(self, pairs: int) -> None:
        """For so many pairs of entries at once."""
        self._bits, self._many, self._end = np.empty((3, pairs), np.uint64)
        self._open, self._length = np.uint64(0), 0  # the bits of a word that is not full, and how many they are
        self._done: list[bytes] = []

    def add(self, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
        """Put the bits of pairs of entries behind those that are there."""
        bits, many, end = (part[: len(first)] for part in (self._bits, self._many, self._end))
        # two and two have at most 62 bits
        np.bitwise_and(second, _MASK, out=many)
        np.right_shift(first, _LENGTH, out=bits)
        np.left_shift(bits, many, out=bits)
        np.right_shift(second, _LENGTH, out=many)
        np.bitwise_or(bits, many, out=bits)
        np.add(first, second, out=many)
        np.bitwise_and(many, _MASK, out=many)
        many[0] += self._length
        np.cumsum(many, out=end)
        self._length = int(end[-1]) % 64
        np.negative(end, out=end)
        shift = np.bitwise_and(end, _MASK, out=many)  # how many bits of the word are behind the pair
        word = end.view(np.int64)
        np.right_shift(word, 6, out=word)  # -1 is the first word
        # In every word a pair ends, but the first pair may end in the second. What reaches into the word before is
        # shifted out of its own. Bits of pairs do not overlap, so those of a word are a sum, and that is a
        # difference of sums from the first pair on, which may overflow.
        last = np.flatnonzero(word[1:] != word[:-1])
        early = int(word[0]) + 2  # 1, or 0 if it does
        reach = bits.take(last + 1) >> (_WORD - shift.take(last + 1))
        words = np.zeros(len(last) + 2 - early, np.uint64)
        words[0] = self._open
        if not early:
            words[0] |= bits[0] >> (_WORD - shift[0])
        np.left_shift(bits, shift, out=bits)
        np.cumsum(bits, out=bits)
        words[1 - early :] |= np.diff(np.append(bits.take(last), bits[-1]), prepend=np.uint64(0))
        words[1 - early : -1] |= reach
        self._open = words[-1] if self._length else np.uint64(0)
        self._append(words[:-1] if self._length else words, 0)

    def end(self) -> list[bytes]:
        """All of them, filled up with ones."""
        if self._length:
            ones = _ONES >> np.uint64(self._length)
            self._append(np.array([self._open | ones], np.uint64), (64 - self._length) // 8)
        return self._done

    def _append(self, words: NDArray[np.uint64], spare: int) -> None:
        data = words.astype(">u8").view(np.uint8)
        self._done.append(data[: len(data) - spare].tobytes().replace(b"\xff", b"\xff\x00"))


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


def _differences(rows: UInt16[np.ndarray, "h n"], colors: int) -> UInt16[np.ndarray, "h n"]:
    """Samples less those left of them, modulo 65536; in the first column less those above, at first less half."""
    found = np.empty_like(rows)
    np.subtract(rows[:, colors:], rows[:, :-colors], out=found[:, colors:])
    np.subtract(rows[1:, :colors], rows[:-1, :colors], out=found[1:, :colors])
    found[0, :colors] = rows[0, :colors] - np.uint16(32768)
    return found


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
