"""What a size costs to train, on one machine and on many: from measured figures, and assumptions that are listed.

P parameters, M machines
"""

from dataclasses import dataclass
from statistics import fmean

from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyTable

BYTES = 16  # a parameter in training: weight, gradient and Adam's two averages, float32 each; a cell checks it
TOKENS_A_PARAMETER = 20
BATCH_TOKENS = 3_200_000
EXCHANGED = 2 * 4  # bytes a parameter: a float32 gradient goes round once to be summed and once to be handed out
LINK = 1.25e9  # bytes a second
MACHINES = (1, 100, 10_000)
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


@dataclass(frozen=True)
class Size:
    """One size, and the speed at which machines would train it."""

    name: str
    parameters: float
    flops_token: float
    speed: float

    def seconds(self, machines: int) -> float:
        """To train it on as many tokens as its size asks for."""
        tokens = TOKENS_A_PARAMETER * self.parameters
        updates = max(1.0, tokens / BATCH_TOKENS)
        exchange = EXCHANGED * self.parameters * (machines - 1) / machines / LINK
        return self.flops_token * tokens / (self.speed * machines) + updates * exchange


def largest_measured(found: Findings) -> str:
    """The condition with the most parameters among those whose time was measured; nothing while there is none."""
    timed = [kind for kind in found.conditions if found.values(kind, "speed")]
    return max(timed, key=lambda kind: found.values(kind, "parameters")[0], default="")


def sizes(found: Findings) -> list[Size]:
    """All sizes, the smallest first: by their own speed where that was measured, else by that of the largest."""
    known = largest_measured(found)
    if not known:
        return []
    made = [
        Size(kind, found.values(kind, "parameters")[0], found.values(kind, "flops_token")[0],
             fmean(found.values(kind, "speed") or found.values(known, "speed")))
        for kind in found.conditions
    ]  # fmt: skip
    return sorted(made, key=lambda one: one.parameters)


def tables(found: Findings) -> list[StudyTable]:
    """What a size would cost, and what was assumed for it."""
    known = largest_measured(found)
    return [_costs(sizes(found)), _assumptions(known, fmean(found.values(known, "speed")))] if known else []


def _costs(every: list[Size]) -> StudyTable:
    heading = ["", "parameters", "operations", "GB", *(f"on {number:,}" for number in MACHINES),
               f"GB each of {MACHINES[-1]:,}"]  # fmt: skip
    rows = [
        [one.name, f"{one.parameters:.3g}", f"{one.flops_token * TOKENS_A_PARAMETER * one.parameters:.2g}",
         f"{BYTES * one.parameters / 1e9:.3g}", *(duration(one.seconds(number)) for number in MACHINES),
         f"{BYTES * one.parameters / 1e9 / MACHINES[-1]:.2g}"]
        for one in every
    ]  # fmt: skip
    return StudyTable("To train it once, on machines like this one", [heading, *rows])


def _assumptions(known: str, speed: float) -> StudyTable:
    rows = [
        ["operations a token", "counted, forward and backward", "measured: torch's own counter"],
        ["speed of a machine", f"{speed:.2g} operations a second", f"measured at {known}; beyond it the same"],
        ["memory a parameter", f"{BYTES} bytes", "measured: weight, gradient, two averages, float32"],
        ["activations", "not counted", "assumed: computed again where they do not fit"],
        ["tokens to train on", f"{TOKENS_A_PARAMETER} a parameter", "assumed: Hoffmann et al. 2022"],
        ["tokens an update", f"{BATCH_TOKENS:,}", "assumed: Brown et al. 2020, 175 billion parameters"],
        ["work on many machines", "divides evenly", "assumed: no machine waits, none fails"],
        ["memory on many machines", "divides evenly", "assumed: weights, gradients and averages are sharded"],
        [
            "exchange an update",
            f"{EXCHANGED} bytes a parameter",
            "assumed: float32 gradients, there and back in a ring",
        ],
        ["link of a machine", f"{LINK / 1e9:g} GB a second", "assumed: 10 Gbit Ethernet"],
        ["exchange and computing", "one after the other", "assumed: the worst case"],
    ]
    return StudyTable("What that rests on", [["what", "value", "where from"], *rows])


def duration(seconds: float) -> str:
    """In the largest unit of which there is at least one."""
    for unit, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:,.3g} {unit}" if seconds < 1000 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} seconds"


def time_chart(found: Findings) -> Chart:
    """Days to train, by size and number of machines."""
    every = sizes(found)
    series = [
        Series(f"{number:,} machine{'s' * (number > 1)}",
               [(one.parameters, [one.seconds(number) / 86400]) for one in every])
        for number in MACHINES
    ]  # fmt: skip
    return Chart("scale-time", f"Time to train on {TOKENS_A_PARAMETER} tokens a parameter, machines like this one",
                 "parameters", "days", series, log_x=True, log_y=True)  # fmt: skip
