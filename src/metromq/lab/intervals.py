"""How sure a number is: 95 % confidence intervals of a mean (Student's t) and of a share (Wilson)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

NORMAL = 1.959964  # of the normal distribution: 2.5 % are above
# The same of Student's distribution, by degrees of freedom from 1 on.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of a curve: its value, how many instances made it, and between what the true value lies (95 %)."""

    value: float
    instances: int
    low: float
    high: float


def of_mean(values: Sequence[float]) -> Sample:
    """Of one instance nothing is known: the interval is infinite."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Sample(mean, 1, -math.inf, math.inf)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    free = count - 1
    factor = STUDENT[free - 1] if free <= len(STUDENT) else NORMAL + 2.4 / free
    half = factor * deviation / math.sqrt(count)
    return Sample(mean, count, mean - half, mean + half)


def of_share(hits: int, count: int, scale: float = 100.0) -> Sample:
    """Hits among so many, in percent by default; none at all is still not surely none."""
    share, square = hits / count, NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    low, high = max(min(middle - half, share), 0.0), min(max(middle + half, share), 1.0)  # rounding aside
    return Sample(scale * share, count, scale * low, scale * high)
