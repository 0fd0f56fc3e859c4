"""Whether two series of measured times differ, whatever else the machine does meanwhile.

Of two series drawn in turns, in an order that chance decides, ranks tell how probable it is that
the one is the other shifted (Mann-Whitney, two-sided): no single time that something else took
counts for more than its place. That a difference is there is not enough, for enough samples find
any: it must also be worth a share of the time itself."""

import math

FAR = 4.9  # standard deviations: one in a million series that do not differ is as far
SHARE = 0.01


def distance(a, b):
    """How far from what chance makes of equal series, in standard deviations; above 0 when a is
    the longer one."""
    both = sorted([(x, 0) for x in a] + [(x, 1) for x in b])
    n, ranks, ties, at = len(both), 0.0, 0, 0
    while at < n:
        end = at
        while end < n and both[end][0] == both[at][0]:
            end += 1
        same = end - at
        ranks += sum(1 - which for _, which in both[at:end]) * (at + end + 1) / 2
        ties += same ** 3 - same
        at = end
    u = ranks - len(a) * (len(a) + 1) / 2
    spread = len(a) * len(b) / 12 * (n + 1 - ties / (n * (n - 1)))
    return (u - len(a) * len(b) / 2) / math.sqrt(spread) if spread > 0 else 0.0


def middle(series):
    """The mean of the half in the middle."""
    half = sorted(series)[len(series) // 4:-(len(series) // 4) or None]
    return sum(half) / len(half)


def differ(a, b, share=SHARE):
    """That a and b are apart by more than chance, and by more than that share of their time."""
    apart = abs(middle(a) - middle(b))
    return abs(distance(a, b)) > FAR and apart > share * min(middle(a), middle(b))
