#!/usr/bin/env python3
"""A rank that throws, meets a NaN, is killed or hangs ends all ranks soon, with its own message first.

    faults_test.py MPIEXEC PROGRAM [--sanitizers]   their memory is not to be limited
"""

import re
import resource
import subprocess
import sys
import time

from ranks_said import ranks_said

LONGEST = 30.0  # seconds
NOT_FIRST = "which has failed"  # what ranks would say that find another one gone


def run(command, prepare=None):
    begin = time.monotonic()
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=120, preexec_fn=prepare)
    return result.returncode, result.stderr, time.monotonic() - begin


def little_memory():
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def check(command, expected, forbidden=None, prepare=None, longest=LONGEST):
    status, text, seconds = run(command, prepare)
    said = ranks_said(text)
    name = " ".join(command[-4:])
    problems = []
    if status == 0:
        problems.append("expected another exit status than 0")
    if seconds > longest:
        problems.append(f"expected an end within {longest} s, got {seconds:.1f}")
    if expected and not (said and re.search(expected, said[0])):
        problems.append(f"expected /{expected}/ first, got {said or text!r}")
    if forbidden and any(re.search(forbidden, line) for line in said):
        problems.append(f"expected nothing like /{forbidden}/, got {said}")
    print(f"{name}: {seconds:.1f} s, {said[0] if said else 'nothing said'}"
          + "".join(f"\n  {problem}" for problem in problems))
    return not problems


def main():
    mpiexec, program = sys.argv[1:3]
    right = True
    for processes, ranks in ((1, 3), (3, 3), (2, 4)):
        start = [mpiexec, "-np", str(processes), program]
        rank = ranks - 1
        end = [str(rank), str(ranks)]
        right &= check([*start, "throw", *end],
                       rf"^rank {rank}: step 20: expected luck, got none$", NOT_FIRST)
        # The first rank's and the last one's; the loss of the gradient that is none is 0.
        for nan in (0, rank):
            right &= check([*start, "nan-gradient", str(nan), str(ranks)],
                           rf"^rank {nan}: DataParallel: gradient of weight: expected finite numbers, "
                           rf"got NaN or infinity on rank {nan} at step 21$", NOT_FIRST)
            # Known to all ranks at once: any of them may be the one that says it.
            right &= check([*start, "nan-loss", str(nan), str(ranks)],
                           rf"^rank \d+: DataParallel: loss: expected a finite number, got NaN or "
                           rf"infinity on rank {nan} at step 21$", NOT_FIRST)
        right &= check([*start, "kill", *end], None)
        # The process of the one that did not come may have others that wait for it, and these may
        # be what a third one names.
        in_vain = r"^rank \d+: distributed: step 20: expected all ranks to come .* in vain for "
        names = rf"(\d+, )*{rank}$" if ranks == processes or processes == 1 else r"\d"
        right &= check([*start, "hang", *end], in_vain + names)
        if ranks == processes:
            # Each process sees what the others do, long before the limit.
            at_once = [*end, "25"]
            call = r"distributed: step 20: expected all ranks in this sum .* got "
            own = rf"^rank {rank}: distributed: {{}}: expected all ranks in this .* another call of rank "
            others = rf"^rank [0-{rank - 1}]: " + call
            before = rf"[0-{rank - 1}]$"
            right &= check([*start, "leave", *at_once], others + rf"the end of rank {rank}$",
                           longest=10)
            right &= check([*start, "other", *at_once],
                           others + rf"another call of rank {rank}$|"
                           + own.format("another place") + before, longest=10)
            right &= check([*start, "more", *at_once],
                           others + rf"another call of rank {rank}$|"
                           + own.format("step 20") + before, longest=10)
            right &= check([*start, "stop", *end],
                           rf"^rank \d: distributed: large: expected all ranks to come .* {rank}$")
        else:
            # Threads of one process see each other at once.
            right &= check([*start, "leave", *end], in_vain + names)
            if processes > 1:
                right &= check([*start, "other", *end],
                               r"^rank [23]: distributed: expected \w+ '[a-z0-9 ]+' as another rank")
                right &= check([*start, "more", *end],
                               r"^rank [23]: distributed: step 20: expected \d+ bytes as another rank")
    if "--sanitizers" not in sys.argv:
        # The stacks of so many threads do not fit.
        right &= check([program, "throw", "0", "100000"],
                       r"^rank \d+: distributed: run: ranks: expected room for 100000 threads, "
                       r"got \d+", prepare=little_memory)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
