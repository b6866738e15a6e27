#!/usr/bin/env python3
"""From a saved int8 file to its first result: Quanta beside other runtimes.

    tools/run bench startup FOLDER [--python PYTHON] [--harness FOLDER] [OPTIONS]

FOLDER has a folder for each network, with float.safetensors and calib.safetensors for Quanta, of
which two files are written: quanta_saved.safetensors and quanta_packed.safetensors, the latter with
packed weights. Beside them lie the files of the peers: ort_*.onnx, ov_int8.xml (tools/bench/peer_files.py
writes them), torch_*_x86.pth of the harness. --python is that of an environment with the peers;
without it Quanta runs alone. torch needs --harness, the folder of the harness's models.py.

Each turn is a process of its own. Two times are taken: from the start of the process, which for the
peers includes Python and its modules, and from the moment when the library is loaded and the inputs
are there. In both all of reading, building, packing and compiling is in it, and the first result. The
ratio is of the second: the fastest peer's time over that of Quanta's file with packed weights. The
memory is the most that the process had, its program and libraries among it. "mapped" are Quanta's
files with FileAccess::Map; the others are read into memory of the process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import DYNAMIC, networks_in  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


class StartupError(Exception):
    """A process that gave no figures."""


def environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONWARNINGS="ignore")


def write_files(quanta, path, model, threads):
    """Quanta's two files, where they are missing."""
    have = os.path.join(path, "float.safetensors")
    common = [quanta, "bench", "--model", model, "--seconds", "0.01", "--threads", str(threads)]
    common += ["--dtype", "dynamic-int8" if model in DYNAMIC else "int8"]
    if os.path.exists(have):
        common += ["--weights", have]
        if model not in DYNAMIC:
            common += ["--calib", os.path.join(path, "calib.safetensors")]
    for name, more in (("quanta_saved.safetensors", []), ("quanta_packed.safetensors", ["--packed"])):
        target = os.path.join(path, name)
        if os.path.exists(target):
            continue
        done = subprocess.run([*common, *more, "--save", target], capture_output=True, text=True, env=environment(threads))
        if done.returncode != 0:
            raise StartupError(f"{model}: {done.stderr.strip()[:300]}")


def commands(options, model, threads):
    """How each side is started."""
    path = os.path.join(options.folder, model)
    own = [options.quanta, "bench", "--first", "--model", model, "--dtype", "dynamic-int8" if model in DYNAMIC else "int8",
           "--batch", str(options.batch), "--threads", str(threads)]  # fmt: skip
    packed = ["--weights", os.path.join(path, "quanta_packed.safetensors")]
    found = {"quanta": [*own, "--eager", "--weights", os.path.join(path, "quanta_saved.safetensors")],
             "quanta packed": [*own, "--eager", *packed], "quanta packed, plan": [*own, *packed]}  # fmt: skip
    for name in ("quanta", "quanta packed"):
        found[name + ", mapped"] = [*found[name], "--map"]
    if not options.python:
        return found
    worker = [options.python, os.path.join(HERE, "startup_worker.py")]
    common = ["--batch", str(options.batch), "--threads", str(threads), *(part for one in options.sizes for part in ("--sizes", one))]
    for name in sorted(os.listdir(path)):
        file = os.path.join(path, name)
        if name in ("ort_u8s8.onnx", "ort_s8s8.onnx", "ort_dyn.onnx"):
            peer = name.removesuffix(".onnx")
            found[peer] = [*worker, "ort", file, *common]
            found[peer + ", saved"] = [*worker, "ort_saved", file, *common]
        elif name == "ov_int8.xml":
            found["ov_int8"] = [*worker, "ov", file, *common]
            found["ov_int8, cached"] = [*worker, "ov_cached", file, *common]
        elif name.startswith("torch_") and name.endswith("_x86.pth") and options.harness:
            found[name.removesuffix(".pth")] = [*worker, "torch", file, *common, "--harness", options.harness]
    return found


def start(command, threads):
    """Milliseconds from the process's start and from the loaded library, and the most memory that it had."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        begun = time.monotonic_ns()
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment(threads))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        lines, complaint = out.read().strip().splitlines(), errors.read().strip()
    if process.returncode != 0 or not lines:
        raise StartupError((complaint or f"status {process.returncode}").splitlines()[-1][:300])
    figures = json.loads(lines[-1])
    return {"process_ms": (figures["first_ns"] - begun) / 1e6, "library_ms": (figures["first_ns"] - figures["begun_ns"]) / 1e6,
            "model_ms": (figures["ready_ns"] - figures["begun_ns"]) / 1e6, "peak_mb": usage.ru_maxrss / 1024}  # fmt: skip


def measure(found, threads, rounds):
    """By side, its times in all rounds; and what went wrong. The first round is not counted: it fills
    caches, the peers' own too."""
    times, failed = {name: [] for name in found}, {}
    for number in range(rounds + 1):
        order = list(found)
        first = number % len(order)
        for name in order[first:] + order[:first]:
            if name in failed:
                continue
            try:
                turn = start(found[name], threads)
            except StartupError as error:
                failed[name] = str(error)
                continue
            if number > 0:
                times[name].append(turn)
    return {name: turns for name, turns in times.items() if name not in failed}, failed


def median(turns, key):
    return statistics.median(turn[key] for turn in turns)


def ratio(times):
    """The fastest peer, and the median over the rounds of its time over ours; None without one."""
    peers = [name for name in times if not name.startswith("quanta")]
    if not peers or "quanta packed" not in times:
        return None
    best = min(peers, key=lambda name: median(times[name], "library_ms"))
    ours = times["quanta packed"]
    return best, statistics.median(theirs["library_ms"] / own["library_ms"] for theirs, own in zip(times[best], ours))


def table(results):
    """Markdown, a row for each network and side."""
    lines = ["| network | threads | | process start to result, ms | library to result, ms | of it to the model, ms | peak memory, MB |", "|" + "---|" * 7]
    for model, threads, times, _ in results:
        for name in sorted(times, key=lambda one: median(times[one], "library_ms")):
            cells = [f"{median(times[name], key):.1f}" for key in ("process_ms", "library_ms", "model_ms", "peak_mb")]
            lines.append("| " + " | ".join([model, str(threads), name, *cells]) + " |")
    lines += ["", "| network | threads | fastest peer | its time over Quanta's |", "|" + "---|" * 4]
    for model, threads, times, _ in results:
        best = ratio(times)
        lines.append(f"| {model} | {threads} | {best[0]} | {best[1]:.2f} |" if best else f"| {model} | {threads} | none | |")
    return "\n".join(lines)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/run bench startup", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--python", help="of an environment that has the peers (default: Quanta alone)")
    parser.add_argument("--harness", help="the folder of the harness's models.py, for torch")
    parser.add_argument("--model", nargs="+", help="these networks (default: all of FOLDER)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--sizes", action="append", default=[], help="of inputs whose sizes the peers' files leave open, as x=1,3,640,640")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quanta", default="build/release/tools/quanta", help="the command (default: build/release/tools/quanta)")
    parser.add_argument("--json", help="where to write all times")
    options = parser.parse_args(arguments)
    if min(options.batch, options.rounds, *options.threads) < 1:
        parser.error("--batch, --threads, --rounds: expected more than 0")
    if not os.path.isdir(options.folder):
        parser.error(f"FOLDER: expected a folder, got '{options.folder}'")
    return options


def main(arguments=None):
    options = parse(arguments)
    models = options.model or networks_in(options.folder)
    results = []
    for model in models:
        for threads in options.threads:
            print(f"startup: {model}, {threads} thread(s)", file=sys.stderr, flush=True)
            try:
                write_files(options.quanta, os.path.join(options.folder, model), model, threads)
            except (StartupError, OSError) as error:
                print(f"startup: {error}", file=sys.stderr)
                continue
            times, failed = measure(commands(options, model, threads), threads, options.rounds)
            for name, text in failed.items():
                print(f"startup: {model}: {name}: {text}", file=sys.stderr)
            results.append((model, threads, times, failed))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{"model": model, "threads": threads, "times": times, "failed": failed} for model, threads, times, failed in results], file, indent=1)
    print(table(results))
    return 0 if any(times for _, _, times, _ in results) else 2


if __name__ == "__main__":
    sys.exit(main())
