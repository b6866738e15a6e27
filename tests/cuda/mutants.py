#!/usr/bin/env python3
"""Makes the mistakes of tests/cuda/mutants.txt in the CUDA kernels, one at a time, and says which
of them the tests of the emulated device find.

Each mutant is applied to the checkout (--source), quanta_cuda_tests is built (--build) and run, and
the file is put back, on Ctrl-C too. A mutant is found when a test fails, crashes or takes too long.
Exit status: 1 if one survived, did not apply or did not build."""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = "quanta_cuda_tests"
SLOW = "cuda networks*"  # test cases that run when no other has found the mutant

Mutant = collections.namedtuple("Mutant", "name file old new")


def read_mutants(path):
    """The mutants of a list; its head says how one looks."""
    mutants = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            head = re.fullmatch(r"\[([\w-]+)\] (\S+)", line)
            if head:
                mutants.append(Mutant(head[1], head[2], [], []))
            elif line[:1] in ("-", "+") and mutants:
                (mutants[-1].old if line[0] == "-" else mutants[-1].new).append(line[1:])
            elif line and line[0] != "#":
                sys.exit(f"{path}:{number}: expected [name] file, -old, +new or #, got {line!r}")
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        sys.exit(f"{path}: expected each name once, got {', '.join(twice)} again")
    return [Mutant(m.name, m.file, "\n".join(m.old), "\n".join(m.new)) for m in mutants]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def fault_of(mutant, source):
    """Why the mutant does not fit the sources, or None."""
    try:
        count = read(os.path.join(source, mutant.file)).count(mutant.old) if mutant.old else 0
    except FileNotFoundError:
        return f"there is no {mutant.file}"
    if count != 1:
        return f"expected the old text once in {mutant.file}, got it {count} times"
    if mutant.old == mutant.new:
        return "old and new text are the same"
    return None


def build(directory):
    """The compiler's words if it failed, else None."""
    done = subprocess.run(["ninja", "-C", directory, TARGET], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout if done.returncode != 0 else None


def verdict(program, limit):
    """Whether the tests find something, and what."""
    for filter_ in (f"--test-case-exclude={SLOW}", f"--test-case={SLOW}"):
        found, what = run_tests([program, filter_, "--abort-after=1", "--no-colors"], limit)
        if found:
            return True, what
    return False, ""


def run_tests(command, limit):
    # Hung threads and children that a crash leaves behind go with the group.
    tests = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", start_new_session=True)
    try:
        text, _ = tests.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return True, f"timeout after {limit} s"
    finally:
        if tests.poll() is None:
            os.killpg(tests.pid, signal.SIGKILL)
            tests.wait()
    if tests.returncode == 0:
        return False, ""
    case = re.search(r"^TEST CASE:\s+(.*)$", text, re.MULTILINE)
    where = case[1] if case else "no test case named"
    if tests.returncode < 0:
        return True, f"{signal.Signals(-tests.returncode).name}: {where}"
    return True, where


def try_mutant(mutant, arguments):
    """("found" or what else became of it, details)."""
    fault = fault_of(mutant, arguments.source)
    if fault:
        return "DOES NOT APPLY", fault
    path = os.path.join(arguments.source, mutant.file)
    text = read(path)
    try:
        write(path, text.replace(mutant.old, mutant.new))
        error = build(arguments.build)
        if error:
            return "DOES NOT BUILD", error.strip()[-2000:]
        found, what = verdict(os.path.join(arguments.build, "tests", TARGET), arguments.limit)
        return ("found" if found else "SURVIVED"), what
    finally:
        write(path, text)


def stop(*_):
    raise KeyboardInterrupt


def run(mutants, arguments):
    signal.signal(signal.SIGTERM, stop)
    error = build(arguments.build)
    if error:
        sys.exit(f"{TARGET} does not build without a mutant:\n{error}")
    failed, what = verdict(os.path.join(arguments.build, "tests", TARGET), arguments.limit)
    if failed:
        sys.exit(f"{TARGET} fails without a mutant: {what}")
    counts = collections.Counter()
    try:
        for number, mutant in enumerate(mutants, 1):
            began = time.monotonic()
            if sys.stderr.isatty():
                print(f"\r{number}/{len(mutants)} {mutant.name} ...\033[K", end="", flush=True,
                      file=sys.stderr)
            result, details = try_mutant(mutant, arguments)
            counts[result] += 1
            if sys.stderr.isatty():
                print("\r\033[K", end="", flush=True, file=sys.stderr)
            print(f"{number}/{len(mutants)} {mutant.name}: {result}"
                  f"{': ' if details else ''}{details} ({time.monotonic() - began:.0f} s)",
                  flush=True)
    finally:
        build(arguments.build)  # the program of the sources as they are
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 0 if set(counts) <= {"found"} else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=ROOT, help="the checkout (this one)")
    parser.add_argument("--build", help="its build directory (build/release of the checkout)")
    parser.add_argument("--mutants", default=os.path.join(HERE, "mutants.txt"), help="the list")
    parser.add_argument("--limit", type=float, default=120, help="seconds for the tests (120)")
    parser.add_argument("--only", action="append", metavar="NAME", help="this one; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--check", action="store_true",
                        help="say whether every old text occurs once, and end")
    arguments = parser.parse_args()
    arguments.build = arguments.build or os.path.join(arguments.source, "build", "release")
    mutants = read_mutants(arguments.mutants)
    if arguments.only:
        unknown = set(arguments.only) - {mutant.name for mutant in mutants}
        if unknown:
            parser.error(f"--only: expected names of --list, got {', '.join(sorted(unknown))}")
        mutants = [mutant for mutant in mutants if mutant.name in arguments.only]
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name}  {mutant.file}")
        return 0
    if arguments.check:
        faults = [(m.name, fault) for m in mutants if (fault := fault_of(m, arguments.source))]
        for name, fault in faults:
            print(f"{name}: {fault}")
        print(f"{len(mutants) - len(faults)} of {len(mutants)} mutants fit the sources")
        return 1 if faults or not mutants else 0
    return run(mutants, arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the file is as it was")
