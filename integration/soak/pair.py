"""Whether a daemon that has worked for long takes longer than one that has just been started.

Both do the same, one after the other, while nothing else is done. What grows over a run in a
machine that is shared may be the machine's; what is longer here is the daemon's own.
"""

import random

from chaos.load import shell
from figures import quantile
from soak.measures import GROWTH, KINDS, quantile_name
from soak.probe import Caller

ROUNDS, FEWEST, OF_SECONDS = 200, 20, 1800  # so many after a run of that length
WARM_UP = 10  # rounds that are not judged: of the new daemon they are the first
RESAMPLES = 500


class Side(Caller):
    """One of the two, and what each kind of its work took."""

    def __init__(self, name, *address):
        super().__init__(*address)
        self.name, self.rounds, self.times = name, 0, {}

    def tell(self, kind, ms):
        self.times.setdefault(kind, []).append(ms)

    def round(self):
        self.rounds += 1
        if self.rounds == WARM_UP + 1:
            self.times = {}
        self.begin()
        self.reads()
        for kind, calls in (("turn", []), ("command", [[shell("true")]])):
            self.turn(kind, {"mark": f"{self.name} {self.rounds}", "calls": calls})
        self.delete()


def work(old, new, rounds):
    """Both in turn, so that neither always comes second."""
    for i in range(rounds + WARM_UP):
        for side in (old, new) if i % 2 else (new, old):
            side.round()
    return old.times, new.times


class Pair:
    """One quantile of one kind: how many times as long the old one takes, with an interval."""

    def __init__(self, kind, part, ours, theirs):
        self.kind, self.part, self.bound = kind, part, 1 + GROWTH[part]
        self.ours, self.theirs = quantile(ours, part), quantile(theirs, part)
        self.ratio = self.ours / self.theirs
        chance, found = random.Random(1), []
        for _ in range(RESAMPLES):
            found.append(quantile(chance.choices(ours, k=len(ours)), part) /
                         quantile(chance.choices(theirs, k=len(theirs)), part))
        self.low, self.high = quantile(found, 0.025), quantile(found, 0.975)
        self.word = self.judge()

    def judge(self):
        """The words of soak/flat.py: a growth of twice the bound is seen, or it is unclear."""
        if self.ratio > self.bound and self.low > 1:
            return "grows"
        return "unclear" if self.high > 1 + 2 * GROWTH[self.part] else "flat"

    @property
    def title(self):
        return f"{KINDS[self.kind]}, {quantile_name(self.part)}"

    def document(self):
        return {"what": self.title, "old": self.ours, "new": self.theirs, "ratio": self.ratio,
                "low": self.low, "high": self.high, "bound": self.bound, "verdict": self.word}


def judge(old, new):
    """[Pair] of {kind: [ms]} of each side."""
    return [Pair(kind, part, old[kind], new[kind])
            for kind in KINDS if old.get(kind) and new.get(kind) for part in GROWTH]


def settle(rows, pairs):
    """Latencies that are not flat over the run, and yet are those of a new daemon, are flat."""
    flat = {p.title for p in pairs if p.word == "flat"}
    for row in rows:
        if row.verdict.word != "flat" and row.title in flat:
            row.verdict.word = "flat, as of a new daemon"


def table(pairs):
    lines = ["| when nothing else is done | this daemon | a new one | ratio | 95 % of it | bound | |",
             "|---|---|---|---|---|---|---|"]
    for p in pairs:
        lines.append(f"| {p.title} | {p.ours:.3g} ms | {p.theirs:.3g} ms | {p.ratio:.2f} × | "
                     f"{p.low:.2f}..{p.high:.2f} | {p.bound:.2f} | {p.word} |")
    return "\n".join(lines)


def address(daemon, tenant, model):
    return daemon.port, daemon.tenants[tenant].token, model


def compare(daemon, world, seconds, tenant, model, models, **options):
    """[Pair] of a tenant's work in this daemon, which worked so long, and in a new one."""
    rounds = min(ROUNDS, max(FEWEST, round(ROUNDS * seconds / OF_SECONDS)))
    with world.cloister(tenants=(tenant,), models=models, **options) as new:
        sides = Side("old", *address(daemon, tenant, model)), Side("new", *address(new, tenant, model))
        try:
            return judge(*work(*sides, rounds))
        finally:
            for side in sides:
                side.close()
