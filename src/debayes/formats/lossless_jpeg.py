"""Lossless JPEG (ITU-T T.81, process 14) of 16-bit pictures: the compression that every reader of DNG knows.

Each sample is predicted from its left neighbour, and the difference is written: its size in bits as a Huffman code,
then those bits. Libraries work sample by sample and twice, first to count the sizes. Here many rows are encoded at
once, with codes made for the whole picture from a few of its rows, which takes a quarter of the time.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import UInt16
from numpy.typing import NDArray

# A difference has a size of 0 to 16 bits.
SIZES = 17

# The smallest share that a size is assumed to have, so that every size has a code and no code more than 16 bits.
SMALLEST_SHARE = 1 / 1024

# Samples of a tile that are encoded at once, in buffers that are reused. With fewer, threads wait for the
# interpreter lock.
BAND = 384 * 1024

# The low bits of an entry of the table hold the number of bits to write; these bits are above them.
_LENGTH = np.uint64(6)
_MASK = np.uint64(63)
_WORD = np.uint64(64)
_ONES = np.uint64(2**64 - 1)

# The curve that writes every sample unchanged.
_UNCHANGED = np.arange(65536, dtype=np.uint16)


@dataclass(frozen=True)
class Coder:
    """Encodes tiles of a picture with one set of Huffman codes."""

    lengths: tuple[int, ...]
    """The code length of each size, in bits."""
    table: NDArray[np.uint64]
    """For each difference, its code followed by its extra bits, and in the lowest bits the number of both together.
    """
    curve: UInt16[np.ndarray, "65536"]
    """The value that is written for each sample."""

    @classmethod
    def of(cls, rows: UInt16[np.ndarray, "h w c"], curve: UInt16[np.ndarray, "65536"] = _UNCHANGED) -> "Coder":
        """A coder for a picture, from a few of its rows: they show how often each size occurs."""
        height, width, colors = rows.shape
        written = curve.take(rows.reshape(height, width * colors))
        counts = np.bincount(_differences(written, colors).ravel(), minlength=65536)
        lengths = code_lengths(np.bincount(_SIZE, counts, SIZES).astype(np.int64))
        codes, code_bits = _canonical(lengths), np.array(lengths, np.uint64)
        entry = codes[_SIZE] << _EXTRA | _BITS
        return cls(lengths, entry << _LENGTH | code_bits[_SIZE] + _EXTRA, curve)

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
        """The codes and bits of all samples, encoded in bands of rows."""
        height, width, colors = tile.shape
        band = max(1, BAND // (width * colors))
        samples = np.empty((band + 1, width, colors), np.uint16)  # and the row above the band
        pairs = -(-band * width * colors // 2)
        first, second = np.empty((2, pairs), np.uint64)  # of each pair of samples
        bits = _Bits(pairs)
        above = 0
        for top in range(0, height, band):
            part = tile[top : top + band]
            self.curve.take(part, out=samples[1 : len(part) + 1], mode="wrap")  # "wrap" skips the bounds check
            rows = samples[1 - above : len(part) + 1].reshape(above + len(part), width * colors)
            differences = _differences(rows, colors)[above:].reshape(-1)
            count, whole = -(-differences.size // 2), differences.size // 2  # the last pair may lack its second
            self.table.take(differences[0::2], out=first[:count], mode="wrap")
            self.table.take(differences[1::2], out=second[:whole], mode="wrap")
            second[whole:count] = 0
            bits.add(first[:count], second[:count])
            samples[0], above = samples[len(part)], 1
        return bits.end()


class _Bits:
    """A stream of bits, packed into words of 64, with a 0 after every byte of 255 as JPEG asks for."""

    def __init__(self, pairs: int) -> None:
        """Buffers for that many pairs of entries at once."""
        self._bits, self._counts, self._ends = np.empty((3, pairs), np.uint64)
        self._open, self._length = np.uint64(0), 0  # the word that is not full yet, and how many bits it has
        self._chunks: list[bytes] = []

    def add(self, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
        """Append the bits of pairs of entries."""
        bits, counts, ends = (part[: len(first)] for part in (self._bits, self._counts, self._ends))
        # the bits of a pair, at most 62, and their number
        np.bitwise_and(second, _MASK, out=counts)
        np.right_shift(first, _LENGTH, out=bits)
        np.left_shift(bits, counts, out=bits)
        np.right_shift(second, _LENGTH, out=counts)
        np.bitwise_or(bits, counts, out=bits)
        np.add(first, second, out=counts)
        np.bitwise_and(counts, _MASK, out=counts)
        # the word in which each pair ends, and how far from that word's end
        counts[0] += self._length
        np.cumsum(counts, out=ends)
        self._length = int(ends[-1]) % 64
        np.negative(ends, out=ends)
        shift = np.bitwise_and(ends, _MASK, out=counts)
        word = ends.view(np.int64)
        np.right_shift(word, 6, out=word)  # counted down; -1 is the first word
        # A pair ends in every word, except that the first pair may end in the second word. The bits of a pair that
        # belong to the word before are shifted out of its own word. The bits of pairs do not overlap, so a word is
        # their sum, which is a difference of cumulative sums; these may overflow.
        last = np.flatnonzero(word[1:] != word[:-1])  # the last pair of each word but the last
        ends_in_first = int(word[0]) + 2  # 1, or 0 if the first pair ends in the second word
        before = bits.take(last + 1) >> (_WORD - shift.take(last + 1))
        words = np.zeros(len(last) + 2 - ends_in_first, np.uint64)
        words[0] = self._open
        if not ends_in_first:
            words[0] |= bits[0] >> (_WORD - shift[0])
        np.left_shift(bits, shift, out=bits)
        np.cumsum(bits, out=bits)
        words[1 - ends_in_first :] |= np.diff(np.append(bits.take(last), bits[-1]), prepend=np.uint64(0))
        words[1 - ends_in_first : -1] |= before
        self._open = words[-1] if self._length else np.uint64(0)
        self._append(words[:-1] if self._length else words, 0)

    def end(self) -> list[bytes]:
        """All bytes; the last one is filled up with ones."""
        if self._length:
            ones = _ONES >> np.uint64(self._length)
            self._append(np.array([self._open | ones], np.uint64), (64 - self._length) // 8)
        return self._chunks

    def _append(self, words: NDArray[np.uint64], unused: int) -> None:
        """Append words without their last `unused` bytes."""
        data = words.astype(">u8").view(np.uint8)
        self._chunks.append(data[: len(data) - unused].tobytes().replace(b"\xff", b"\xff\x00"))


def code_lengths(counts: NDArray[np.int64]) -> tuple[int, ...]:
    """The lengths of Huffman codes for sizes with these counts; one more code, all ones, is left unused."""
    least = max(SMALLEST_SHARE * float(counts.sum()), 1e-9)
    trees: list[tuple[float, int, tuple[int, ...]]] = [(0.0, SIZES, (SIZES,))]
    trees += [(max(float(count), least), size, (size,)) for size, count in enumerate(counts)]
    heapify(trees)
    lengths = [0] * (SIZES + 1)
    for step in range(SIZES):
        (count, _, sizes), (other_count, _, other_sizes) = heappop(trees), heappop(trees)
        for size in sizes + other_sizes:
            lengths[size] += 1
        heappush(trees, (count + other_count, SIZES + 1 + step, sizes + other_sizes))
    return tuple(lengths[:SIZES])


def _in_order(lengths: tuple[int, ...]) -> list[int]:
    """The sizes in the order of their codes: shorter ones first."""
    return sorted(range(SIZES), key=lambda size: (lengths[size], size))


def _canonical(lengths: tuple[int, ...]) -> NDArray[np.uint64]:
    """The code of each size, assigned as in annex C of T.81."""
    codes = np.zeros(SIZES, np.uint64)
    code = length = 0
    for size in _in_order(lengths):
        code <<= lengths[size] - length
        length = lengths[size]
        codes[size] = code
        code += 1
    return codes


def _segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(data) + 2).to_bytes(2, "big") + data


def _differences(rows: UInt16[np.ndarray, "h n"], colors: int) -> UInt16[np.ndarray, "h n"]:
    """Samples minus their predictions, modulo 65536.

    The prediction is the sample to the left, in the first column the one above, and 32768 for the first of all.
    """
    differences = np.empty_like(rows)
    np.subtract(rows[:, colors:], rows[:, :-colors], out=differences[:, colors:])
    np.subtract(rows[1:, :colors], rows[:-1, :colors], out=differences[1:, :colors])
    differences[0, :colors] = rows[0, :colors] - np.uint16(32768)
    return differences


def _of_differences() -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]]:
    """For each difference modulo 65536: its size, how many bits distinguish it within that size, and those bits.

    A negative difference is written as the low bits of the number below it. Only -32768 has size 16, and it has no
    further bits.
    """
    signed = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)
    size = np.ceil(np.log2(np.abs(signed) + 1)).astype(np.uint8)
    extra = np.where(size == 16, 0, size).astype(np.uint64)
    bits = np.where(signed < 0, signed - 1, signed).astype(np.uint64) & (np.uint64(1) << extra) - np.uint64(1)
    return size, extra, bits


_SIZE, _EXTRA, _BITS = _of_differences()
