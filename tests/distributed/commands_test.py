#!/usr/bin/env python3
"""What the commands of several ranks say before they work for hours, and from which rank.

    commands_test.py MPIEXEC QUANTA

The pictures are random ones.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from pictures import write_pictures
from ranks_said import ranks_said

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
    said = ranks_said(result.stderr)
    if result.returncode == 0:
        raise Failure(f"{name}: expected another exit status than 0")
    if not said or said[0] != expected:
        raise Failure(f"{name}: expected {expected!r}, got {said or result.stderr!r}")


def right(command):
    """What a command that ends well says on stderr."""
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=LONGEST)
    if result.returncode != 0:
        raise Failure(f"{command}: {result.stderr}")
    return result.stderr


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


def read_safetensors(path):
    """Header and bytes."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)), bytearray(file.read())


def write_safetensors(path, header, tensors):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) + 56) + text + b" " * 56 + tensors)


def without_entry(path, entry):
    """Takes an entry out of a checkpoint's metadata."""
    header, tensors = read_safetensors(path)
    del header["__metadata__"][entry]
    write_safetensors(path, header, tensors)


def refuse_checkpoint(start, folder, data):
    path = os.path.join(folder, "run.safetensors")
    train = [*start, "train", "--float", "--data", data, "--batch", "8", "--threads", "1",
             "--checkpoint", path, "--steps"]
    for entry in ("step", "loader.epoch", "loader.seed", "loader.batch"):
        right([*train, "1"])
        without_entry(path, "counter." + entry)
        check([*train, "1"],
              f"rank 0: load_checkpoint: {path}: counter.{entry}: expected a whole number, got "
              "nothing: the checkpoint of another kind of training")
        os.remove(path)


def check_warnings(mpiexec, quanta, folder, data):
    """Packed weights that are damaged, which all ranks find."""
    path = os.path.join(folder, "packed.safetensors")
    right([mpiexec, "-np", "1", quanta, "calibrate", "--data", data, "--packed", "--save", path])
    header, tensors = read_safetensors(path)
    if "quanta.packed" not in header:
        print("warnings: not looked at: this processor's kernels pack no weights")
        return
    tensors[header["quanta.packed"]["data_offsets"][0]] ^= 1
    write_safetensors(path, header, tensors)
    for processes, ranks, origins in ((1, 1, ["quanta"]), (2, 2, ["rank 0", "rank 1"]),
                                      (1, 3, ["rank [012]"])):
        text = right([mpiexec, "-np", str(processes), quanta, "evaluate", "--data", data, "--batch",
                      "4", "--weights", path, "--ranks", str(ranks)])
        said = sorted(line for line in text.splitlines() if ": warning: " in line)
        if len(said) != len(origins) or not all(
                re.match(origin + ": warning: load_model: packed weights", line)
                for origin, line in zip(origins, said)):
            raise Failure(f"{ranks} ranks in {processes}: expected a warning of {origins}, got {said}")


def main():
    mpiexec, quanta = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        data = write_pictures(os.path.join(folder, "data"), 32)
        refuse_outputs([mpiexec, "-np", "2", quanta], folder, data)
        refuse_checkpoint([mpiexec, "-np", "1", quanta], folder, data)
        check_warnings(mpiexec, quanta, folder, data)
    print("files that cannot be written and checkpoints that lack an entry are told at the start; "
          "warnings say from which rank they are")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"commands_test: {failure}")
