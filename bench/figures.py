"""Figures: what was measured, how it stands to what it is compared with, and to its goal."""

import statistics


def quantile(samples, part):
    """The value below which that part of the samples lies, between neighbours by distance."""
    ordered = sorted(samples)
    at = (len(ordered) - 1) * part
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


class Series:
    """Samples of one side, in one unit."""

    def __init__(self, name, unit, samples):
        assert samples, f"{name}: nothing was measured"
        self.name, self.unit, self.samples = name, unit, list(samples)

    @property
    def median(self):
        return statistics.median(self.samples)

    def document(self):
        return {"name": self.name, "unit": self.unit, "count": len(self.samples),
                "median": self.median, "low": quantile(self.samples, 0.25),
                "high": quantile(self.samples, 0.75), "minimum": min(self.samples),
                "maximum": max(self.samples)}

    def __str__(self):
        low, high = quantile(self.samples, 0.25), quantile(self.samples, 0.75)
        if len(self.samples) == 1:
            return f"{rounded(self.median)} {self.unit}"
        return f"{rounded(self.median)} {self.unit} ({rounded(low)}..{rounded(high)})"


class Goal:
    """A bound of the ratio of the two sides, or of a value."""

    def __init__(self, bound, at_least=False, unit=""):
        self.bound, self.at_least, self.unit = bound, at_least, unit

    def met(self, value):
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self):
        return f"{'≥' if self.at_least else '≤'} {rounded(self.bound)} {self.unit or '×'}"


class Row:
    """One line of the table.

    ours is a Series; theirs another one, or None where there is nothing to compare with. The
    value is their ratio; without another side, or with difference, it is in the unit of ours.
    """

    def __init__(self, what, ours, theirs=None, goal=None, difference=False, note=None):
        self.what, self.ours, self.theirs = what, ours, theirs
        self.goal, self.difference, self.note = goal, difference, note

    @property
    def value(self):
        if self.theirs is None:
            return self.ours.median
        if self.difference:
            return self.ours.median - self.theirs.median
        return self.ours.median / self.theirs.median

    @property
    def paired(self):
        """Quartiles of the ratios of what was measured one after the other."""
        if self.theirs is None or len(self.ours.samples) != len(self.theirs.samples):
            return None
        pairs = zip(self.ours.samples, self.theirs.samples)
        ratios = [a - b if self.difference else a / b for a, b in pairs]
        return quantile(ratios, 0.25), quantile(ratios, 0.75)

    @property
    def met(self):
        return None if self.goal is None else self.goal.met(self.value)

    def document(self):
        return {"what": self.what, "ours": self.ours.document(),
                "theirs": self.theirs and self.theirs.document(), "value": self.value,
                "valueUnit": self.value_unit, "paired": self.paired,
                "goal": self.goal and str(self.goal), "met": self.met, "note": self.note}

    @property
    def value_unit(self):
        return self.ours.unit if self.theirs is None or self.difference else "×"

    def cells(self):
        value = f"{rounded(self.value)} {self.value_unit}"
        if self.paired and len(self.ours.samples) > 1:
            value += f" ({rounded(self.paired[0])}..{rounded(self.paired[1])})"
        met = {None: "", True: "met", False: "missed"}[self.met]
        theirs = f"{self.theirs.name}: {self.theirs}" if self.theirs else ""
        return [self.what, str(self.ours), theirs,
                value if self.theirs else "", str(self.goal) if self.goal else "", met]


HEADINGS = ["what", "Cloister", "against", "ratio", "goal", ""]


def rounded(value):
    """Three digits that count, and no more than the number has."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def notes(rows):
    """What is to be said of rows, a line each."""
    return [f"{row.what}: {row.note}" for row in rows if row.note]


def table(rows):
    """The rows as a Markdown table whose columns stand below one another."""
    lines = [HEADINGS] + [row.cells() for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths)) + " |"
            for line in lines]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)
