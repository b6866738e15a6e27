#!/usr/bin/env python3
"""What the commands of several ranks say before they work for hours.

    commands_test.py MPIEXEC QUANTA

The pictures are random ones.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

from pictures import write_pictures

LONGEST = 60.0  # seconds; work that began would take hours
NEVER_ENDING = ["--steps", "1000000000"]


class Failure(Exception):
    pass


def check(command, expected):
    """That it fails at once with that line first."""
    name = " ".join(command[command.index("-np"):])
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{name}: no end within {LONGEST} s") from error
    said = [line for line in result.stderr.splitlines() if line.startswith("rank ")]
    if result.returncode == 0:
        raise Failure(f"{name}: expected another exit status than 0")
    if not said or said[0] != expected:
        raise Failure(f"{name}: expected {expected!r}, got {said or result.stderr!r}")


def refuse_outputs(start, folder, data):
    """Files that cannot be written, one for each option that names one."""
    good = os.path.join(folder, "good")
    written = {
        "evaluate": {"--json": []},
        "calibrate": {"--save": []},
        "train": {"--save": NEVER_ENDING, "--json": NEVER_ENDING, "--checkpoint": NEVER_ENDING},
    }
    wrong = {
        os.path.join(folder, "missing", "file"):
            "creating the temporary file beside it: No such file or directory",
        folder: "expected a regular file or a new name, got a folder",
    }
    for command, options in written.items():
        for option, more in options.items():
            for path, problem in wrong.items():
                check([*start, command, "--data", data, option, path, *more],
                      f"rank 0: {option}: write_file: {path}: {problem}; name a file in a folder "
                      "that exists and may be written to (nothing was done)")
    # One is right, the other is not.
    check([*start, "train", "--data", data, "--save", good, "--json", folder],
          f"rank 0: --json: write_file: {folder}: {wrong[folder]}; name a file in a folder that "
          "exists and may be written to (nothing was done)")
    if os.path.exists(good):
        raise Failure(f"expected no {good} after a command that did nothing")


def without_entry(path, entry):
    """Takes an entry out of a checkpoint's metadata."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        tensors = file.read()
    del header["__metadata__"][entry]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + tensors)


def refuse_checkpoint(start, folder, data):
    path = os.path.join(folder, "run.safetensors")
    train = [*start, "train", "--float", "--data", data, "--batch", "8", "--threads", "1",
             "--checkpoint", path, "--steps"]
    for entry in ("step", "loader.epoch", "loader.seed", "loader.batch"):
        subprocess.run([*train, "1"], stdin=subprocess.DEVNULL, capture_output=True, check=True,
                       timeout=LONGEST)
        without_entry(path, "counter." + entry)
        check([*train, "1"],
              f"rank 0: load_checkpoint: {path}: counter.{entry}: expected a whole number, got "
              "nothing: the checkpoint of another kind of training")
        os.remove(path)


def main():
    mpiexec, quanta = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        data = write_pictures(os.path.join(folder, "data"), 32)
        refuse_outputs([mpiexec, "-np", "2", quanta], folder, data)
        refuse_checkpoint([mpiexec, "-np", "1", quanta], folder, data)
    print("files that cannot be written and checkpoints that lack an entry are told at the start")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"commands_test: {failure}")
