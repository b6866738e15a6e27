#!/usr/bin/env python3
"""Quanta beside ONNX Runtime and OpenVINO, in paired rounds: one request after the other, or many
side by side.

    tools/run bench peers FOLDER --python PYTHON [OPTIONS]

FOLDER has a folder for each network (tools/bench/peer_files.py writes them, and so does the harness
whose results `tools/run bench --peers` reads):

    ort_*.onnx       what ONNX Runtime runs, one or several; float.onnx where there is none
    ov_int8.xml      what OpenVINO runs; float.onnx where it is missing
    quanta_int8.onnx what Quanta runs, written by `quanta quantize`; or else
    float.safetensors, calib.safetensors  weights and calibration inputs of a network that `quanta
                     bench --model` knows

--python is that of an environment with numpy, onnxruntime and openvino. Each peer is a process of its
own with a turn in every round, in an order that changes. Without --streams the ratio is the peer's
median time over Quanta's; with it, Quanta's requests a second over the peer's: above 1 Quanta is
ahead. The ratio of processor time for a request stands beside it: with other load on the machine it
tells more, for one thread; several wait actively. In streams ONNX Runtime has a session and a thread for each, OpenVINO its throughput mode with
as many streams and its asynchronous queue, Quanta one model that as many threads call.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from paired import Row  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# Those with attention, whose products may be int8 too, as OpenVINO's are.
ATTENTION = ("bert4", "bert_base", "distilbert_16", "distilbert_512", "vit_tiny")
# Those without a QuantStub have only dynamic int8.
DYNAMIC = ("lstm", "gru", *ATTENTION)


class PeerError(Exception):
    """What a peer said instead of an answer."""


class Peer:
    """A process that answers line by line."""

    def __init__(self, name, command, threads):
        self.name, self.turns = name, []
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env=environment)  # fmt: skip
        try:
            self.info = self._receive()
        except PeerError:
            self.close()
            raise

    def _receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"{self.name}: ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._receive()

    def take_turn(self, seconds):
        turn = self.ask(cmd="run", seconds=seconds)
        self.turns.append({"ns": turn["ns"], "elapsed_ns": turn.get("elapsed_ns", sum(turn["ns"])), "cpu_ns": turn["cpu_ns"]})

    def close(self):
        self.process.kill()
        self.process.communicate()

    # What was measured.

    def median_ms(self, turn):
        return statistics.median(turn["ns"]) / 1e6

    def rate(self, turn):
        return 1e9 * len(turn["ns"]) / turn["elapsed_ns"]

    def cpu_ms(self, turn):
        return turn["cpu_ns"] / len(turn["ns"]) / 1e6

    def figures(self):
        ns = sorted(time for turn in self.turns for time in turn["ns"])
        return {"median_ms": statistics.median(ns) / 1e6, "p99_ms": ns[(99 * (len(ns) - 1)) // 100] / 1e6, "reps": len(ns),
                "requests_per_second": statistics.median(map(self.rate, self.turns)),
                "round_medians_ms": [self.median_ms(turn) for turn in self.turns],
                "round_rates": [self.rate(turn) for turn in self.turns],
                "round_cpu_ms": [self.cpu_ms(turn) for turn in self.turns],
                "cpu_ms_per_call": statistics.median(map(self.cpu_ms, self.turns))}  # fmt: skip


def with_batch(sizes, batch):
    """x=1,3,640,640 for so many inputs at a time."""
    name, equals, dims = sizes.rpartition("=")
    return name + equals + ",".join([str(batch), *dims.split(",")[1:]])


def commands(folder, model, options, batch, threads, streams):
    """How each peer that has a file there is started."""
    path = os.path.join(folder, model)
    if not os.path.isdir(path):
        raise PeerError(f"{model}: expected a folder of that name in '{folder}'")
    have = set(os.listdir(path))
    common = ["--batch", str(batch), "--threads", str(threads)] + (["--streams", str(streams)] if streams else [])
    sizes = [part for one in options.sizes for part in ("--sizes", with_batch(one, batch))]
    quanta = [options.quanta, "bench", "--worker", *common]
    found = {}
    if "quanta_int8.onnx" in have:
        found["quanta"] = [*quanta, "--onnx", os.path.join(path, "quanta_int8.onnx"), *sizes]
    elif "float.safetensors" in have:
        dtype = "dynamic-int8" if model in DYNAMIC else "int8"
        if options.int8_attention and model in ATTENTION:
            dtype += "-attention"
        found["quanta"] = [*quanta, "--model", model, "--weights", os.path.join(path, "float.safetensors"), "--dtype", dtype]
        if "calib.safetensors" in have and model not in DYNAMIC:
            found["quanta"] += ["--calib", os.path.join(path, "calib.safetensors")]
    else:
        raise PeerError(f"{model}: expected quanta_int8.onnx or float.safetensors in '{path}', got {', '.join(sorted(have)) or 'nothing'}")
    worker = [options.python, os.path.join(HERE, "peer_worker.py")]
    ort = sorted(name for name in have if name.startswith("ort_") and name.endswith(".onnx"))
    for name in ort or ["float.onnx"] * ("float.onnx" in have):
        form = name.removesuffix(".onnx").removeprefix("ort_")
        form = form if form in ("dyn", "float") else "int8_" + form
        found["ort_" + form] = [*worker, "ort", os.path.join(path, name), *common, *sizes]
    for name in ("ov_int8.xml", "float.onnx"):
        if name in have:
            found["ov_" + name.split(".")[0].removeprefix("ov_")] = [*worker, "ov", os.path.join(path, name), *common, *sizes]
            break
    return found


def measure(model, batch, threads, streams, found, rounds, seconds):
    """One case: every peer has a turn in every round. A result as the side-by-side harness writes it."""
    live, failed = [], {}
    result = {"model": model, "batch": batch, "threads": threads, "streams": streams, "peers": {}, "failed": failed}
    try:
        for name, command in found.items():
            try:
                live.append(Peer(name, command, threads))
            except PeerError as error:
                failed[name] = str(error)
        for number in range(rounds):
            first = number % max(len(live), 1)
            order = live[first:] + live[:first]
            for peer in order if number % 2 == 0 else order[::-1]:
                try:
                    peer.take_turn(seconds)
                except PeerError as error:
                    failed[peer.name] = str(error)
                    live.remove(peer)
                    peer.close()
                time.sleep(0.01)  # threads that wait actively go to sleep
        for peer in live:
            result["peers"][peer.name] = {**peer.figures(), **peer.ask(cmd="quit")}
    finally:
        for peer in live:
            peer.close()
    return result


def ratios(result):
    """By peer: how many times faster Quanta is, the median of the rounds and its quartiles."""
    ours = result["peers"].get("quanta")
    answer = {}
    for name, peer in result["peers"].items():
        if name == "quanta" or ours is None:
            continue
        if result["streams"]:
            row = Row(name, peer["round_rates"], ours["round_rates"])
        else:
            row = Row(name, ours["round_medians_ms"], peer["round_medians_ms"])
        answer[name] = (row.ratio(), *row.quartiles())
    return answer


def cpu_ratio(result, name):
    """The peer's processor time for a request over Quanta's. On a machine with other load it tells more
    than the clock, which counts what interrupts a long request and not a short one."""
    return Row(name, result["peers"]["quanta"]["round_cpu_ms"], result["peers"][name]["round_cpu_ms"]).ratio()


def fastest(result):
    """The peer that Quanta is least ahead of, and the ratio; None without one."""
    found = ratios(result)
    return min(((ratio[0], name) for name, ratio in found.items()), default=None)


def table(results):
    """Markdown, a row for each case."""
    lines = ["| network | batch | threads | streams | Quanta ms (99 %) | requests/s | peak MB | fastest peer | its ms (99 %) | requests/s | peak MB | ratio | of CPU time |",
             "|" + "---|" * 13]  # fmt: skip
    for result in results:
        best = fastest(result)
        if best is None:
            told = "; ".join(result["failed"].values()) or "no peer"
            lines.append(f"| {result['model']} | {result['batch']} | {result['threads']} | {result['streams'] or ''} | {told[:80]} |" + " |" * 8)
            continue
        cells = [result["model"], result["batch"], result["threads"], result["streams"] or ""]
        for name in ("quanta", best[1]):
            peer = result["peers"][name]
            cells += [name] * (name != "quanta")
            cells += [f"{peer['median_ms']:.3g} ({peer['p99_ms']:.3g})", f"{peer['requests_per_second']:.4g}", f"{peer['rss_peak_mb']:.0f}"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{best[0]:.2f}", f"{cpu_ratio(result, best[1]):.2f}"])) + " |")
    return "\n".join(lines)


def networks_in(folder):
    """The networks that FOLDER has a folder for."""
    return sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/run bench peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable, help="of an environment that has the peers (default: this one)")
    parser.add_argument("--model", nargs="+", help="these networks (default: all of FOLDER)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="inputs of a request (default: 1)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="of a request (default: 1)")
    parser.add_argument("--streams", type=int, nargs="+", default=[0], help="requests side by side (default: one after the other)")
    parser.add_argument("--sizes", action="append", default=[], help="of inputs whose sizes the files leave open, as x=1,3,640,640; --batch replaces the first")
    parser.add_argument("--int8-attention", action="store_true", help="Quanta calculates the products of attention in int8 too, as OpenVINO does")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="that a turn takes (default: 0.5)")
    parser.add_argument("--quanta", default="build/release/tools/quanta", help="the command (default: build/release/tools/quanta)")
    parser.add_argument("--json", help="a folder for a file for each case, as `tools/run bench --peers` reads them")
    options = parser.parse_args(arguments)
    counts = (*options.batch, *options.threads, options.rounds)
    if min(counts) < 1 or min(options.streams) < 0 or options.seconds <= 0:
        parser.error("--batch, --threads, --rounds, --seconds: expected more than 0")
    if not os.path.isdir(options.folder):
        parser.error(f"FOLDER: expected a folder, got '{options.folder}'")
    return options


def main(arguments=None):
    options = parse(arguments)
    models = options.model or networks_in(options.folder)
    results = []
    for model in models:
        for case in [(batch, threads, streams) for streams in options.streams for threads in options.threads for batch in options.batch]:
            print(f"peers: {model}, batch {case[0]}, {case[1]} thread(s), {case[2] or 'no'} streams", file=sys.stderr, flush=True)
            try:
                result = measure(model, *case, commands(options.folder, model, options, *case), options.rounds, options.seconds)
            except PeerError as error:
                print(f"peers: {error}", file=sys.stderr)
                continue
            results.append(result)
            for text in result["failed"].values():
                print(f"peers: {text}", file=sys.stderr)
            for name, (ratio, first, third) in sorted(ratios(result).items()):
                print(f"  {name:<20} {result['peers'][name]['median_ms']:>9.3f} ms  Quanta is {ratio:.2f} times as fast ({first:.2f} .. {third:.2f}), {cpu_ratio(result, name):.2f} in CPU time", file=sys.stderr)
            if options.json:
                os.makedirs(options.json, exist_ok=True)
                name = f"{model}_b{case[0]}_t{case[1]}" + (f"_s{case[2]}" if case[2] else "")
                with open(os.path.join(options.json, name + ".json"), "w", encoding="utf-8") as file:
                    json.dump(result, file, indent=1)
    print(table(results))
    return 0 if results else 2


if __name__ == "__main__":
    sys.exit(main())
