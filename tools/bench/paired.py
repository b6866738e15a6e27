"""Two sides timed in turns: ratios within a round, so that whatever else runs slows both."""

import dataclasses
import statistics


@dataclasses.dataclass
class Row:
    """One thing that both sides can do, with a time (milliseconds) of each side from each round."""

    name: str
    old: list = dataclasses.field(default_factory=list)
    new: list = dataclasses.field(default_factory=list)

    def add(self, old, new):
        self.old.append(old)
        self.new.append(new)

    def ratios(self):
        """New over old, sorted: above 1 the new side is slower."""
        return sorted(new / old for old, new in zip(self.old, self.new))

    def ratio(self):
        return statistics.median(self.ratios())

    def quartiles(self):
        """A quarter of the rounds lies at or below the first, a quarter at or above the second."""
        ratios = self.ratios()
        quarter = (len(ratios) - 1) // 4
        return ratios[quarter], ratios[-1 - quarter]

    def is_slower(self, limit):
        """The median is beyond the limit, and three quarters of the rounds are beyond it too: with
        noise alone, half of them would be on either side of 1."""
        return self.ratio() > limit and self.quartiles()[0] > limit

    def is_faster(self, limit):
        return self.ratio() < 1 / limit and self.quartiles()[1] < 1 / limit


def sides_of_round(number):
    """Who goes first: the sides change places from round to round."""
    return ("old", "new") if number % 2 == 0 else ("new", "old")


def in_rounds(rounds, turns, on_round=lambda number: None):
    """turns: {"old": call, "new": call}, each giving {name: milliseconds}. Rows by name, of what both
    gave in every round."""
    rows = {}
    for number in range(rounds):
        on_round(number)
        times = {side: turns[side]() for side in sides_of_round(number)}
        for name in times["old"]:
            if name in times["new"]:
                rows.setdefault(name, Row(name)).add(times["old"][name], times["new"][name])
    return {name: row for name, row in rows.items() if len(row.old) == rounds}
