"""Whether a series stays where it is.

A series of samples is reduced to one value for each of some windows of equal length, and a
line is laid through those: its slope is the median of the slopes of all pairs (Theil and Sen),
which a few outliers do not move, and which comes with an interval (Sen, from Kendall's
statistic). Slope times length is the growth over the run, and a bound says how much of it is
harmless.

    grows     the growth is beyond the bound, and certainly not chance (its interval is above 0)
    unclear   neither this nor that: twice the bound lies within the interval
    flat      all else

So a leak of twice the bound does not pass: it is seen, or the series is called unclear.
"""

import math
import statistics

Z = 1.96  # of a normal distribution 95 % lie within so many deviations
FEWEST = 8  # windows, or nothing can be said


def windows(samples, begin, end, count, reduce):
    """[(middle, value)] of the windows that have any of the samples, which are (when, value)."""
    length = (end - begin) / count
    found = [[] for _ in range(count)]
    for when, value in samples:
        if begin <= when < end:
            found[int((when - begin) / length)].append(value)
    return [(begin + (i + 0.5) * length, reduce(values))
            for i, values in enumerate(found) if values]


def slopes(points):
    """Those of all pairs, in order."""
    return sorted((b - a) / (t - s) for i, (s, a) in enumerate(points)
                  for t, b in points[i + 1:] if t > s)


def line(points):
    """(slope, the least and the greatest that it may be)"""
    found, n = slopes(points), len(points)
    spread = Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, math.floor((len(found) - spread) / 2) - 1)
    high = min(len(found) - 1, math.ceil((len(found) + spread) / 2))
    return statistics.median(found), found[low], found[high]


class Bound:
    """What may be added over a run: so much, or such a part of what is there, if that is more."""

    def __init__(self, most, part=0.0):
        self.most, self.part = most, part

    def of(self, level):
        return max(self.most, abs(level) * self.part)


class Verdict:
    """What became of a series: its level, its growth with an interval, and the bound of it."""

    def __init__(self, points, begin, end, bound):
        self.points, self.low, self.high, self.growth = points, None, None, None
        self.level = statistics.median(v for _, v in points) if points else None
        self.bound = None
        self.word = "unclear"
        if len(points) >= FEWEST:
            self.growth, self.low, self.high = (s * (end - begin) for s in line(points))
            self.bound = bound.of(self.level)
            self.word = self.judge()

    def judge(self):
        if self.growth > self.bound and self.low > 0:
            return "grows"
        return "unclear" if self.high > 2 * self.bound else "flat"

    def document(self):
        return {"verdict": self.word, "level": self.level, "growth": self.growth,
                "low": self.low, "high": self.high, "bound": self.bound,
                "points": self.points}


def judge(samples, begin, end, count, reduce, bound):
    return Verdict(windows(samples, begin, end, count, reduce), begin, end, bound)
