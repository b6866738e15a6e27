#!/usr/bin/env python3
"""Times another revision beside this tree, in paired rounds, kernel by kernel and network by network.

    tools/run bench compare REVISION [OPTIONS]

Builds REVISION (a commit, branch or tag; HEAD tells what changes not yet committed do) in a git
worktree, build/compare/..., Release, with this build's options and third_party/. Its build stays
there for the next comparison. In every round each side has a turn, in an order that changes; the
ratio of a round is new time / old time, and the median of the rounds counts.

Slower is what has a median ratio beyond --limit and three quarters of the rounds beyond it as well,
and has both again when it is timed a second time, with twice as many rounds: what looked slower by
chance does not do so twice. Kernels are those of quanta-bench (the int8 form's time), networks those
of `quanta bench` (frozen, random weights).

Ends with status 1 when something is slower, 2 when it could not be told.
"""

import argparse
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from paired import in_rounds  # noqa: E402
from revision_build import CompareError, build_revision, resolve  # noqa: E402
from timed_programs import Kernels, Network, network_names  # noqa: E402

# Benchmarks that share a run of the program, which takes a moment to start.
TOGETHER = 6
DTYPES = ("int8", "dynamic-int8")


class Progress:
    """A line that is written over, or lines where that cannot be."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.is_terminal, self.begun = stream, stream.isatty(), time.monotonic()

    def say(self, text):
        if self.is_terminal:
            self.stream.write("\r\033[K")
        self.stream.write(f"compare: {text}\n")
        self.stream.flush()

    def step(self, done, of, text, round_text=""):
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        line = f"compare: {done}/{of} {text}{round_text}, {minutes}:{seconds:02}"
        if self.is_terminal:
            self.stream.write(f"\r\033[K{line[:120]}")
            self.stream.flush()
        elif not round_text:
            self.stream.write(line + "\n")
            self.stream.flush()

    def end(self):
        if self.is_terminal:
            self.stream.write("\r\033[K")


def chosen(names, pattern):
    return [name for name in names if re.search(pattern, name)]


class Comparison:
    """The rows of what both sides have, and the names of what only one has."""

    def __init__(self, builds, options, progress):
        self.builds, self.options, self.progress = builds, options, progress
        self.rows, self.only, self.failed = {}, {"old": [], "new": []}, []
        self.again = {}  # by name: how to time it once more

    def _split(self, names):
        """Names that both sides have; the others are noted."""
        both = [name for name in names["new"] if name in set(names["old"])]
        for side, other in (("old", "new"), ("new", "old")):
            self.only[side] += [name for name in names[side] if name not in set(names[other])]
        return both

    def kernels(self):
        sides = {side: Kernels(build) for side, build in self.builds.items()}
        pattern = self.options.filter or self.options.kernels
        names = self._split({side: chosen(one.names(), pattern) for side, one in sides.items()})
        for threads in self.options.threads:
            for begin in range(0, len(names), TOGETHER):
                part = names[begin : begin + TOGETHER]
                self.progress.step(begin, len(names), f"kernels ({threads} thread(s)): {part[0]}")
                self._time_kernels(sides, part, threads, self.options.rounds)

    def _time_kernels(self, sides, names, threads, rounds):
        label = {name: f"{name.split('/iterations:')[0]}, {threads} thread(s)" for name in names}
        turns = {side: lambda one=one: one.times(names, threads) for side, one in sides.items()}
        try:
            rows = in_rounds(rounds, turns, self._round(names[0], rounds))
        except CompareError as error:
            self.failed.append(str(error))
            return
        self.failed += [f"{label[name]}: did not give a time in every round" for name in names if name not in rows]
        for name, row in rows.items():
            row.name = label[name]
            self.rows[row.name] = row
            self.again[row.name] = lambda count, name=name: self._time_kernels(sides, [name], threads, count)

    def networks(self):
        pattern = self.options.filter or "."
        names = self._split({side: chosen(network_names(build), pattern) for side, build in self.builds.items()})
        cases = [(name, batch, threads) for name in names for batch in self.options.batch for threads in self.options.threads]
        for i, case in enumerate(cases):
            self.progress.step(i, len(cases), f"networks: {case[0]}, batch {case[1]}, {case[2]} thread(s)")
            self._time_network(*case, self.options.rounds)

    def _open(self, side, name, batch, threads):
        """The network in the form that it has, static before dynamic."""
        try:
            return Network(self.builds[side], name, DTYPES[0], batch, threads)
        except CompareError as error:
            if "--dtype" not in str(error):
                raise
        return Network(self.builds[side], name, DTYPES[1], batch, threads)

    def _time_network(self, name, batch, threads, rounds):
        label = f"{name}, batch {batch}, {threads} thread(s)"
        live = {}

        def turn(side):
            # Threads of the other side that still wait actively go to sleep.
            time.sleep(0.01)
            return {label: live[side].milliseconds(self.options.seconds)}

        try:
            for side in self.builds:
                live[side] = self._open(side, name, batch, threads)
            turns = {side: lambda side=side: turn(side) for side in live}
            self.rows.update(in_rounds(rounds, turns, self._round(label, rounds)))
            self.again[label] = lambda count: self._time_network(name, batch, threads, count)
        except CompareError as error:
            self.failed.append(f"{label}: {error}")
        finally:
            for one in live.values():
                one.close()

    def _round(self, text, rounds):
        return lambda number: self.progress.step(number + 1, rounds, f"rounds of {text}", " ")

    def confirm(self):
        """Times again what looks slower, from the start; the second result counts."""
        suspects = [name for name, row in self.rows.items() if row.is_slower(self.options.limit)]
        for i, name in enumerate(suspects):
            self.progress.step(i, len(suspects), f"again: {name}")
            self.again[name](2 * self.options.rounds)

    def slower(self):
        rows = [row for row in self.rows.values() if row.is_slower(self.options.limit)]
        return sorted(rows, key=lambda row: -row.ratio())


def line_of(row, limit):
    first, third = row.quartiles()
    word = "slower" if row.is_slower(limit) else "faster" if row.is_faster(limit) else ""
    return (f"{row.name:<60} {min(row.old):>10.4g} {min(row.new):>10.4g} {row.ratio():>8.3f} "
            f"{first:>7.3f} {third:>7.3f} {len(row.old):>6}  {word}").rstrip()  # fmt: skip


def report(comparison, old_name, out=sys.stdout):
    limit = comparison.options.limit
    head = f"{'':<60} {'old ms':>10} {'new ms':>10} {'new/old':>8} {'q1':>7} {'q3':>7} {'rounds':>6}"
    rows = sorted(comparison.rows.values(), key=lambda row: -row.ratio())
    print(f"new: this tree; old: {old_name}. Times are the least of the rounds, ratios their median.", file=out)
    print("\n".join([head] + [line_of(row, limit) for row in rows]), file=out)
    for side, where in (("old", f"in {old_name}"), ("new", "in this tree")):
        if comparison.only[side]:
            print(f"\nonly {where}: {', '.join(comparison.only[side])}", file=out)
    for text in comparison.failed:
        print(f"\nnot timed: {text}", file=out)
    slower = comparison.slower()
    percent = 100 * (limit - 1)
    if slower:
        print(f"\nslower by more than {percent:.3g} %, {len(slower)} of {len(rows)}:", file=out)
        print("\n".join([head] + [line_of(row, limit) for row in slower]), file=out)
    else:
        print(f"\nnothing is slower by more than {percent:.3g} %, of {len(rows)}", file=out)


def figures(comparison, commit):
    """The same for a file."""
    rows = [{"name": row.name, "old_ms": row.old, "new_ms": row.new, "ratio": row.ratio(), "quartiles": row.quartiles(),
             "slower": row.is_slower(comparison.options.limit)} for row in comparison.rows.values()]  # fmt: skip
    return {"revision": commit, "limit": comparison.options.limit, "rows": rows, "only_old": comparison.only["old"],
            "only_new": comparison.only["new"], "failed": comparison.failed}  # fmt: skip


def compare(builds, options, progress):
    """builds: {"old": build folder, "new": build folder}."""
    comparison = Comparison(builds, options, progress)
    if options.only != "networks":
        comparison.kernels()
    if options.only != "kernels":
        comparison.networks()
    comparison.confirm()
    progress.end()
    return comparison


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text}")
    return value


def pattern(text):
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"expected a regular expression, got '{text}': {error}") from None
    return text


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/run bench compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("revision", metavar="REVISION")
    parser.add_argument("--rounds", type=positive, default=9, help="in which each side has one turn (default: 9)")
    parser.add_argument("--threads", type=positive, nargs="+", default=[1], help="that ops may use (default: 1)")
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 8], help="inputs at a time of networks (default: 1 8)")
    parser.add_argument("--filter", type=pattern, help="a regular expression: kernels and networks whose name it is found in (default: all "
                        "networks and the kernels of docs/performance.md)")  # fmt: skip
    parser.add_argument("--only", choices=("kernels", "networks"), help="leave the others out")
    parser.add_argument("--seconds", type=float, default=0.3, help="that a turn of a network takes (default: 0.3)")
    parser.add_argument("--limit", type=float, default=1.02, help="the ratio beyond which something is slower (default: 1.02)")
    parser.add_argument("--json", help="where to write the times of all rounds")
    parser.add_argument("--build", default="build/release", help="the build folder of this tree (default: build/release)")
    parser.add_argument("--kernels", type=pattern, default=".", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= 3600:
        parser.error(f"--seconds: expected more than 0 and at most 3600, got {options.seconds}")
    if not options.limit >= 1:
        parser.error(f"--limit: expected at least 1, got {options.limit}")
    return options


def main(arguments=None):
    options = parse(arguments)
    progress = Progress()
    try:
        repository = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
        commit = resolve(repository, options.revision)
        builds = {"old": build_revision(repository, options.build, commit, progress.say), "new": options.build}
        comparison = compare(builds, options, progress)
    except CompareError as error:
        progress.end()
        print(f"compare: {error}", file=sys.stderr)
        return 2
    report(comparison, f"{options.revision} ({commit[:12]})")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures(comparison, commit), file, indent=1)
    if comparison.slower():
        return 1
    return 0 if comparison.rows else 2


if __name__ == "__main__":
    sys.exit(main())
