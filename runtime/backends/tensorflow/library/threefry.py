"""Counter-based random bits, the same on every machine, and the numbers made of them; on the host, in float64."""

from __future__ import annotations

import hashlib
from typing import Any

import tensorflow as tf

WORD = 0xFFFFFFFF
"""The mask of a 32-bit word."""
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def derive_key(*parts: object) -> tuple[int, int]:
    """Return two 32-bit words that stand for what the parts say."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two 32-bit words by Threefry-2x32-20 (Salmon et al. 2011); words are int64 tensors."""
    keys = (*key, tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(key[0], key[1]), whole(0x1BD11BDA)))
    x, y = (word(part + key) for part, key in zip(counter, keys[:2], strict=True))
    for block in range(5):
        for rotation in ROTATIONS[4 * (block % 2) :][:4]:
            x = word(x + y)
            y = tf.bitwise.bitwise_xor(x, rotated(y, rotation))
        x = word(x + keys[(block + 1) % 3])
        y = word(y + keys[(block + 2) % 3] + block + 1)
    return x, y


def whole(number: int) -> tf.Tensor:
    """Return a number as an int64 tensor."""
    return tf.constant(number, tf.int64)


def word(x: tf.Tensor) -> tf.Tensor:
    """Return the lower 32 bits."""
    return tf.bitwise.bitwise_and(x, whole(WORD))


def rotated(x: tf.Tensor, by: int) -> tf.Tensor:
    """Return 32-bit words turned left."""
    left, right = tf.bitwise.left_shift(x, whole(by)), tf.bitwise.right_shift(x, whole(32 - by))
    return tf.bitwise.bitwise_or(word(left), right)


def random_bits(key: tuple[Any, Any], start: Any, count: Any) -> tf.Tensor:
    """Return ``count`` random integers below 2**53, number ``start`` of the key's sequence first."""
    indices = tf.range(start, start + count, dtype=tf.int64)
    high, low = threefry(key, (word(indices), tf.bitwise.right_shift(indices, whole(32))))
    high, low = tf.bitwise.right_shift(high, whole(5)), tf.bitwise.right_shift(low, whole(6))
    return tf.bitwise.bitwise_or(tf.bitwise.left_shift(high, whole(26)), low)


def portable_numbers(key: Any, count: Any, kind: str) -> tf.Tensor:
    """Return ``count`` numbers of a key: ``bits`` below 2**53, ``uniform`` in [0, 1), or ``normal``."""
    makers = {"bits": keyed_bits, "uniform": keyed_uniform, "normal": keyed_normal}
    return makers[kind](tf.convert_to_tensor(key, tf.int64), tf.cast(count, tf.int64))


ONCE: dict[str, Any] = {
    "input_signature": [tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.int64)],
    "autograph": False,
    "experimental_attributes": {"_noinline": True},
}
"""How the functions below are traced: each once, whoever calls it, and not copied into the graph of every draw, which
TensorFlow would then rewrite before the first step."""


@tf.function(**ONCE)
def keyed_bits(key: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return integers below 2**53."""
    with tf.device("CPU:0"):
        return random_bits((key[0], key[1]), whole(0), count)


@tf.function(**ONCE)
def keyed_uniform(key: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return numbers in [0, 1)."""
    with tf.device("CPU:0"):
        return tf.cast(random_bits((key[0], key[1]), whole(0), count), tf.float64) * 2.0**-53


@tf.function(**ONCE)
def keyed_normal(key: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return normally distributed numbers."""
    with tf.device("CPU:0"):
        bits = tf.bitwise.right_shift(random_bits((key[0], key[1]), whole(0), count), whole(1))
        return inverse_normal((tf.cast(bits, tf.float64) + 0.5) * 2.0**-52)


@tf.function(input_signature=[tf.TensorSpec([2], tf.int64)] * 2, autograph=False)
def derived_key(key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """Return the key of a draw: the words of a key at a counter."""
    with tf.device("CPU:0"):
        return tf.stack(threefry((key[0], key[1]), (counter[0], counter[1])))


def split_float(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mantissas in [0.5, 1) and exponents of positive float64 numbers, as the C function ``frexp``."""
    bits = tf.bitcast(x, tf.int64)
    mantissa = tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, whole(2**52 - 1)), whole(1022 << 52))
    return tf.bitcast(mantissa, tf.float64), tf.cast(tf.bitwise.right_shift(bits, whole(52)) - 1022, tf.float64)


def natural_log(x: tf.Tensor) -> tf.Tensor:
    """Return log x to float64 precision by IEEE arithmetic alone, so that no two machines differ in a bit."""
    mantissa, exponent = split_float(x)
    is_low = mantissa < 0.7071067811865476
    mantissa = tf.where(is_low, mantissa * 2.0, mantissa)
    exponent = exponent - tf.cast(is_low, tf.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)  # log m = 2 artanh((m - 1) / (m + 1))
    square = ratio * ratio
    series = horner(tuple(1.0 / odd for odd in range(1, 24, 2)), square)
    return exponent * 0.6931471805599453 + 2.0 * ratio * series


def horner(coefficients: tuple[float, ...], x: tf.Tensor) -> tf.Tensor:
    """Return a polynomial, the constant coefficient first."""
    total = tf.fill(tf.shape(x), tf.constant(coefficients[-1], x.dtype))
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


def inverse_normal(p: tf.Tensor) -> tf.Tensor:
    """Return the quantile of the standard normal distribution at 0 < p < 1, to about 16 digits (AS 241)."""
    centred = p - 0.5
    inner = 0.180625 - centred * centred
    tail = tf.sqrt(-natural_log(tf.minimum(p, 1.0 - p)))
    near, far = tail - 1.6, tail - 5.0
    outer = tf.where(tail <= 5.0, ratio_of(TAIL, near), ratio_of(FAR_TAIL, far))
    outer = tf.where(centred < 0.0, -outer, outer)
    return tf.where(tf.abs(centred) <= 0.425, centred * ratio_of(CENTRE, inner), outer)


def ratio_of(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: tf.Tensor) -> tf.Tensor:
    """Return the quotient of two polynomials."""
    return horner(coefficients[0], x) / horner(coefficients[1], x)
