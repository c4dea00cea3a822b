"""The confidence interval of a success rate (Wilson score interval)."""

from __future__ import annotations

from math import sqrt

Z_95 = 1.959963984540054
"""Standard normal quantile for 95 %."""


def compute_wilson_interval(passed: int, total: int, z: float = Z_95) -> tuple[float, float]:
    """Compute the interval in which the true rate lies with 95 % confidence.

        >>> compute_wilson_interval(0, 0)
        (0.0, 1.0)
        >>> [round(bound, 3) for bound in compute_wilson_interval(8, 10)]
        [0.49, 0.943]

    Source: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference",
    Journal of the American Statistical Association 22 (1927). Unlike the plain normal interval it stays
    within 0 and 1 and is sound for a handful of trials.
    """
    if total == 0:
        return 0.0, 1.0
    rate = passed / total
    middle = rate + z * z / (2 * total)
    spread = z * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
