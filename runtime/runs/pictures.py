"""Grids of images as PNG files, written without an imaging library."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime.checkpoints.disk import replace_file
from runtime.folder import cannot_write

Pixels = npt.NDArray[np.uint8]
_TILES = 64
_TILE_SIZE = 48
"""Pixels that the longer side of an image should have at least, so that an 8 x 8 digit can be seen."""
_GAP = 2
_GROUND = 128
"""Grey, on which white pages and black ones both stand out."""


def is_picture(array: npt.NDArray[np.generic]) -> bool:
    """Tell whether an array can be shown: [n, h, w] or [n, c, h, w] with 1 or 3 channels, and at least one image."""
    channels = array.shape[1] if array.ndim == 4 else 1
    return array.ndim in (3, 4) and channels in (1, 3) and array.size > 0 and array.dtype.kind in "biuf"


def grid(images: npt.NDArray[np.generic]) -> Pixels:
    """Return at most 64 images side by side as pixels [height, width, 3].

    Values lie in [-1, 1] if any is negative, else in [0, 1], or, for whole numbers, in [0, 255]; what lies outside is
    clipped, and what is not a number is drawn as the darkest value.
    """
    tiles = _enlarge(_to_bytes(_with_channels(images[:_TILES])))
    count, height, width, _ = tiles.shape
    columns = find_columns(count)
    rows = math.ceil(count / columns)
    shape = (rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3)
    page = np.full(shape, _GROUND, dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top = _GAP + index // columns * (height + _GAP)
        left = _GAP + index % columns * (width + _GAP)
        page[top : top + height, left : left + width] = tile
    return page


def find_columns(count: int) -> int:
    """Return how many images stand side by side: as in a square, or up to twice that where the rows come out even."""
    square = math.ceil(math.sqrt(count))
    even = (columns for columns in range(square, 2 * square - 1) if count % columns == 0)
    return next(even, square)


def _with_channels(images: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return [n, h, w, 3]."""
    last = images[..., np.newaxis] if images.ndim == 3 else np.moveaxis(images, 1, -1)
    return np.broadcast_to(last, (*last.shape[:3], 3))


def _to_bytes(images: npt.NDArray[np.generic]) -> Pixels:
    if images.dtype.kind in "iu":
        return np.clip(images, 0, 255).astype(np.uint8)
    values = images.astype(np.float64)
    values = (values + 1) / 2 if np.nanmin(values, initial=0.0) < 0 else values
    return np.rint(np.nan_to_num(np.clip(values, 0, 1), nan=0.0) * 255).astype(np.uint8)


def _enlarge(tiles: Pixels) -> Pixels:
    """Repeat pixels until an image is large enough to be seen."""
    factor = max(1, math.ceil(_TILE_SIZE / max(tiles.shape[1:3])))
    return tiles.repeat(factor, axis=1).repeat(factor, axis=2)


def write_png(path: Path, pixels: Pixels) -> None:
    """Write pixels [height, width, 3] as a PNG file (W3C PNG specification: signature, IHDR, IDAT, IEND)."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    content = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)
    try:
        replace_file(path, content)  # a full disk leaves the picture that was there
    except OSError as error:
        raise cannot_write(path, error) from error


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
