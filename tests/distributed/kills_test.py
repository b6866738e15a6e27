#!/usr/bin/env python3
"""Trainings whose ranks are killed at random moments, and go on from their checkpoints, end with the
weights of one that was never killed; no file is ever half written, and nobody waits for ever.

    kills_test.py MPIEXEC QUANTA KILLS [SEED]

Each killed run has 1 to 4 processes, the run that goes on another number; 4 ranks in all.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

RANKS = 4
LONGEST = 30.0  # seconds from the kill to the end of all


class Failure(Exception):
    pass


def start(mpiexec, quanta, folder, name, processes, through=()):
    return subprocess.Popen(
        [*through, mpiexec, "-np", str(processes), quanta, "train", "--ranks", str(RANKS),
         "--threads", "1", "--images", "512", "--batch", "32", "--steps", "12", "--save-every", "2",
         "--checkpoint", os.path.join(folder, name + ".checkpoint.safetensors"),
         "--save", os.path.join(folder, name + ".safetensors")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def finish(running):
    """What it printed."""
    told, text = (each.decode(errors="replace") for each in running.communicate(timeout=600))
    if running.returncode != 0:
        raise Failure(f"status {running.returncode}: {text[-2000:]}")
    return told


def all_processes():
    """Parent and words of the command line of each process, by id."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rsplit(b")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        found[int(name)] = (parent, words)
    return found


def ranks_of(launcher, program, table):
    """Process ids of the ranks that a launcher has started, itself or through others (MPICH's has a
    proxy on each machine, a script a shell)."""
    found = []
    for number, (parent, words) in table.items():
        # A proxy has the program's name among its arguments, too.
        if words[0] != program.encode():
            continue
        while parent in table and parent != launcher:
            parent = table[parent][0]
        if parent == launcher:
            found.append(number)
    return found


def check_ranks_are_found(running, program, count):
    """Of a training that somebody between has started."""
    begin = time.monotonic()
    while len(ranks_of(running.pid, program, all_processes())) != count:
        if running.poll() is not None or time.monotonic() - begin > LONGEST:
            raise Failure(f"expected to find {count} ranks of a running training")
        time.sleep(0.01)


def content(folder, name):
    with open(os.path.join(folder, name + ".safetensors"), "rb") as file:
        return file.read()


def kill_once(mpiexec, quanta, folder, chance, duration):
    """Whether a rank was killed before the training ended."""
    running = start(mpiexec, quanta, folder, "killed", chance.randint(1, RANKS))
    time.sleep(chance.uniform(0.0, duration))
    victims = ranks_of(running.pid, quanta, all_processes())
    killed = bool(victims) and running.poll() is None
    if killed:
        try:
            os.kill(chance.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            killed = False
    begin = time.monotonic()
    try:
        running.communicate(timeout=LONGEST + duration)
    except subprocess.TimeoutExpired as error:
        running.kill()
        raise Failure(f"no end within {LONGEST} s of a kill") from error
    if killed and time.monotonic() - begin > LONGEST:
        raise Failure(f"an end only {time.monotonic() - begin:.1f} s after a kill")
    return killed


def main():
    mpiexec, quanta, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
    chance = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    done = resumed = attempts = 0
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        whole = start(mpiexec, quanta, folder, "whole", 2, ["sh", "-c", '"$@"; exit $?', "sh"])
        check_ranks_are_found(whole, quanta, 2)
        finish(whole)
        duration = time.monotonic() - begin
        expected = content(folder, "whole")
        while done < kills:
            attempts += 1
            if attempts > 10 * kills + 10:
                raise Failure(f"expected to kill {kills} ranks, got {done} in {attempts} trainings")
            for name in ("killed.checkpoint.safetensors", "killed.safetensors"):
                if os.path.exists(os.path.join(folder, name)):
                    os.remove(os.path.join(folder, name))
            done += kill_once(mpiexec, quanta, folder, chance, duration)
            if os.path.exists(os.path.join(folder, "killed.safetensors")):
                if content(folder, "killed") != expected:
                    raise Failure(f"after kill {done}: a file that is not whole")
            goes_on = os.path.exists(os.path.join(folder, "killed.checkpoint.safetensors"))
            told = finish(start(mpiexec, quanta, folder, "killed", chance.randint(1, RANKS)))
            # From the beginning it would get there too.
            if goes_on != ("going on from step" in told):
                raise Failure(f"after kill {done}: expected {'a' if goes_on else 'no'} checkpoint to "
                              f"be taken up, got {told!r}")
            resumed += goes_on
            if content(folder, "killed") != expected:
                raise Failure(f"after kill {done}: other weights than those of a run that was not killed")
            left = [name for name in os.listdir(folder) if name.startswith(".quanta-")]
            if left:
                raise Failure(f"after kill {done}: left behind: {left}")
        size = len(expected)
    print(f"{done} ranks killed, {resumed} trainings went on from a checkpoint: no hang, no broken file, "
          f"the same {size} bytes in the end each time")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"kills_test: {failure}")
