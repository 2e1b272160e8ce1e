"""Counter-based random bits, the same on every machine, and the numbers made of them; on the host, in float64."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

WORD = 0xFFFFFFFF
"""The mask of a 32-bit word."""
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
CHUNK = 1 << 16
"""Numbers made at a time: few enough to stay in the processor's cache."""


def derive_key(*parts: object) -> tuple[int, int]:
    """Return two 32-bit words that stand for what the parts say."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def threefry(key: tuple[int, int], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return two 32-bit words by Threefry-2x32-20 (Salmon et al. 2011); words are integers or int64 tensors."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & WORD, (counter[1] + keys[1]) & WORD
    for block in range(5):
        for rotation in ROTATIONS[4 * (block % 2) :][:4]:
            x = (x + y) & WORD
            y = x ^ (((y << rotation) | (y >> (32 - rotation))) & WORD)
        x = (x + keys[(block + 1) % 3]) & WORD
        y = (y + keys[(block + 2) % 3] + block + 1) & WORD
    return x, y


def random_bits(key: tuple[int, int], start: int, count: int) -> torch.Tensor:
    """Return ``count`` random integers below 2**53, number ``start`` of the key's sequence first."""
    indices = torch.arange(start, start + count, dtype=torch.int64, device="cpu")
    high, low = threefry(key, (indices & WORD, indices >> 32))
    return ((high >> 5) << 26) | (low >> 6)


def portable_numbers(key: tuple[int, int], count: int, kind: str) -> torch.Tensor:
    """Return ``count`` numbers of a key: ``bits`` below 2**53, ``uniform`` in [0, 1), or ``normal``."""
    numbers = torch.empty(count, dtype=torch.int64 if kind == "bits" else torch.float64, device="cpu")
    for start in range(0, count, CHUNK):
        bits = random_bits(key, start, min(CHUNK, count - start))
        if kind == "uniform":
            bits = bits.to(torch.float64) * 2.0**-53
        elif kind == "normal":
            bits = inverse_normal(((bits >> 1).to(torch.float64) + 0.5) * 2.0**-52)
        numbers[start : start + CHUNK] = bits
    return numbers


def natural_log(x: torch.Tensor) -> torch.Tensor:
    """Return log x to float64 precision by IEEE arithmetic alone, so that no two machines differ in a bit."""
    mantissa, exponent = torch.frexp(x)
    is_low = mantissa < 0.7071067811865476
    mantissa = torch.where(is_low, mantissa * 2.0, mantissa)
    exponent = exponent.to(torch.float64) - is_low.to(torch.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)  # log m = 2 artanh((m - 1) / (m + 1))
    square = ratio * ratio
    series = torch.full_like(square, 1.0 / 23.0)
    for odd in range(21, 0, -2):
        series = series * square + 1.0 / odd
    return exponent * 0.6931471805599453 + 2.0 * ratio * series


def horner(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    """Return a polynomial, the constant coefficient first."""
    total = torch.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


# The rational approximations of Wichura (1988), algorithm AS 241, PPND16: numerator, denominator.
CENTRE = (
    (
        3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
        4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
    ),
    (
        1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
        2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
    ),
)  # fmt: skip
TAIL = (
    (
        1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
        1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
    ),
    (
        1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
        1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
    ),
)  # fmt: skip
FAR_TAIL = (
    (
        6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ),
    (
        1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
    ),
)  # fmt: skip


def inverse_normal(p: torch.Tensor) -> torch.Tensor:
    """Return the quantile of the standard normal distribution at 0 < p < 1, to about 16 digits (AS 241)."""
    centred = p - 0.5
    inner = 0.180625 - centred * centred
    tail = square_root(-natural_log(torch.minimum(p, 1.0 - p)))
    near, far = tail - 1.6, tail - 5.0
    outer = torch.where(tail <= 5.0, ratio_of(TAIL, near), ratio_of(FAR_TAIL, far))
    outer = torch.where(centred < 0.0, -outer, outer)
    return torch.where(torch.abs(centred) <= 0.425, centred * ratio_of(CENTRE, inner), outer)


def square_root(x: torch.Tensor) -> torch.Tensor:
    """Return the root of positive numbers rounded as IEEE 754 says: vector libraries miss the last bit of some."""
    y = torch.sqrt(x)
    high = y * 134217729.0  # Dekker 1971: 2^27 + 1 splits a number into halves whose products are exact
    high = high - (high - y)
    low = y - high
    product = y * y
    error = ((high * high - product) + 2.0 * high * low) + low * low
    return y + ((x - product) - error) / (2.0 * y)


def ratio_of(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: torch.Tensor) -> torch.Tensor:
    """Return the quotient of two polynomials."""
    return horner(coefficients[0], x) / horner(coefficients[1], x)
