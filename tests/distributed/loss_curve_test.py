#!/usr/bin/env python3
"""The losses of 100 steps: all bits the same in any number of processes with as many ranks, and what
holds on other numbers of ranks.

    loss_curve_test.py MPIEXEC PROGRAM
"""

import subprocess
import sys

STEPS = 100
RANKS = 4
FLOAT_DIFFERENCE = 1e-6  # relative: sums of parts round differently
# Relative: where a rounding to a code falls the other way, the curves go apart.
QAT_DIFFERENCE = 0.05
QAT_END_DIFFERENCE = 0.02  # of the mean of the last 20


class Failure(Exception):
    pass


def losses(mpiexec, program, processes, ranks, way):
    result = subprocess.run([mpiexec, "-np", str(processes), program, str(ranks), way],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise Failure(f"{way}, {ranks} ranks in {processes}: {result.stderr[-2000:]}")
    curve = result.stdout.split()
    if len(curve) != STEPS:
        raise Failure(f"{way}, {ranks} ranks in {processes}: expected {STEPS} losses, got {curve}")
    return curve


def numbers(curve):
    return [float.fromhex(loss) for loss in curve]


def differences(curve, other):
    return [abs(a - b) / abs(a) for a, b in zip(curve, other)]


def end_of(curve):
    return sum(curve[-20:]) / 20


def main():
    start = sys.argv[1:3]
    for way in ("qat", "float"):
        curve = losses(*start, 1, RANKS, way)
        if end_of(numbers(curve)) > 0.7 * numbers(curve)[0]:
            raise Failure(f"{way}: expected a training, got losses {numbers(curve)}")
        for processes in (2, 3, 4):
            other = losses(*start, processes, RANKS, way)
            for step, (expected, got) in enumerate(zip(curve, other)):
                if got != expected:
                    raise Failure(f"{way}, step {step}: expected {expected} in {processes} "
                                  f"processes as in 1, got {got}")
        for ranks in (1, 2):
            other = numbers(losses(*start, 1, ranks, way))
            apart = differences(numbers(curve), other)
            end = differences([end_of(numbers(curve))], [end_of(other)])[0]
            most = FLOAT_DIFFERENCE if way == "float" else QAT_DIFFERENCE
            if max(apart) > most or end > QAT_END_DIFFERENCE:
                raise Failure(f"{way}: expected {ranks} ranks within {most} of {RANKS}, got {apart}, "
                              f"in the end {end}")
            close = next((i for i, each in enumerate(apart) if each > FLOAT_DIFFERENCE), STEPS)
            print(f"{way}: {ranks} ranks beside {RANKS}: the first {close} losses within "
                  f"{FLOAT_DIFFERENCE:.0e}, all within {max(apart):.1e}")
        print(f"{way}: {RANKS} ranks in 1, 2, 3 and 4 processes: {STEPS} losses with the same bits")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"loss_curve_test: {failure}")
