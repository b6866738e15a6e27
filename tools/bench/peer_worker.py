#!/usr/bin/env python3
"""ONNX Runtime or OpenVINO on one file, asked line by line; tools/bench/peers.py starts it.

Needs a Python that has numpy and onnxruntime or openvino; nothing of Quanta's is needed for it.

    peer_worker.py ort|ov FILE --batch N --threads N [--streams N] [--sizes x=1,3,224,224]

Without --streams one request follows the other, on --threads threads. With it N of them are answered
side by side, one thread each: ONNX Runtime by N sessions, each called by a thread of its own;
OpenVINO in its throughput mode with N streams, through its asynchronous queue. Requests that the
language itself slows (some 20 us each) are those of very small networks.

One JSON object a line, as `quanta bench --worker` speaks it: {"ready": true} first; then
  {"cmd": "run", "seconds": s} -> {"ns": [...], "reps": n, "cpu_ns": c, "elapsed_ns": e}
  {"cmd": "quit"}              -> {"rss_peak_mb": m}
"""

import argparse
import json
import os
import sys
import threading
import time

LEAST = 3  # requests of a stream in a turn, as Quanta's


def parse_sizes(texts):
    sizes = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        if not equals or not all(one.isdigit() for one in dims.split(",")):
            raise SystemExit(f"--sizes: expected NAME=1,3,224,224, got '{text}'")
        sizes[name] = [int(one) for one in dims.split(",")]
    return sizes


def full_sizes(name, dims, batch, sizes):
    """Sizes of an input: as given, else those of the file, whose first dimension may be free."""
    if name in sizes:
        return sizes[name]
    dims = [batch if i == 0 else dim for i, dim in enumerate(dims)]
    if not all(isinstance(dim, int) and dim > 0 for dim in dims):
        raise ValueError(f"--sizes: expected those of input '{name}', whose sizes are {dims} in the file")
    return dims


def random_array(sizes, kind):
    import numpy as np

    random = np.random.default_rng(1)
    if "int" in kind:
        return random.integers(0, 2, sizes, dtype=np.int64 if "64" in kind else np.int32)
    return random.standard_normal(sizes, dtype=np.float32)


class Turn:
    """Times of the requests of all streams in one turn."""

    def __init__(self, seconds):
        self.ns, self.begun, self.cpu = [], time.perf_counter_ns(), time.process_time_ns()
        self.stop = self.begun + int(seconds * 1e9)

    def figures(self):
        return {"ns": self.ns, "reps": len(self.ns), "cpu_ns": time.process_time_ns() - self.cpu,
                "elapsed_ns": time.perf_counter_ns() - self.begun}  # fmt: skip


def answer_in_turn(request, turn):
    ns, begin = [], time.perf_counter_ns()
    while len(ns) < LEAST or begin < turn.stop:
        request()
        end = time.perf_counter_ns()
        ns.append(end - begin)
        begin = end
    turn.ns += ns


class OnnxRuntime:
    def __init__(self, path, batch, threads, streams, sizes):
        import onnxruntime

        def session():
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            options.log_severity_level = 3
            made = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            binding = made.io_binding()
            for value in made.get_inputs():
                dims = full_sizes(value.name, value.shape, batch, sizes)
                binding.bind_cpu_input(value.name, random_array(dims, value.type))
            for value in made.get_outputs():
                binding.bind_output(value.name, "cpu")
            return lambda: made.run_with_iobinding(binding)

        self.requests = [session() for _ in range(max(streams, 1))]
        for request in self.requests:
            request()

    def run(self, seconds):
        turn = Turn(seconds)
        if len(self.requests) == 1:
            answer_in_turn(self.requests[0], turn)
            return turn.figures()
        threads = [threading.Thread(target=answer_in_turn, args=(request, turn)) for request in self.requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return turn.figures()


class OpenVino:
    def __init__(self, path, batch, threads, streams, sizes):
        import openvino

        core = openvino.Core()
        model = core.read_model(path)
        shapes = {}
        for value in model.inputs:
            dims = [dim.get_length() if dim.is_static else None for dim in value.partial_shape]
            shapes[value.any_name] = full_sizes(value.any_name, dims, batch, sizes)
        model.reshape(shapes)
        hint = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
        if streams:
            hint = {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": streams * threads}
        compiled = core.compile_model(model, "CPU", {**hint, "ENABLE_CPU_PINNING": False})
        inputs = {name: random_array(dims, str(model.input(name).element_type)) for name, dims in shapes.items()}
        self.queue = None
        if streams:
            self.streams = streams
            self.queue = openvino.AsyncInferQueue(compiled, streams)
            for request in self.queue:
                for name, array in inputs.items():
                    request.set_tensor(name, openvino.Tensor(array.copy()))
            self.queue.set_callback(self._done)
            self.run(0.0)
        else:
            request = compiled.create_infer_request()
            for name, array in inputs.items():
                request.set_tensor(name, openvino.Tensor(array))
            self.infer = request.infer
            self.infer()

    def _done(self, request, data):
        begin, ns = data
        ns.append(time.perf_counter_ns() - begin)

    def run(self, seconds):
        turn = Turn(seconds)
        if self.queue is None:
            answer_in_turn(self.infer, turn)
            return turn.figures()
        sent = 0
        while sent < LEAST * self.streams or time.perf_counter_ns() < turn.stop:
            self.queue.get_idle_request_id()  # waits; a request begins when there is a free one
            self.queue.start_async(userdata=(time.perf_counter_ns(), turn.ns))
            sent += 1
        self.queue.wait_all()
        return turn.figures()


def peak_megabytes():
    with open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("ort", "ov"))
    parser.add_argument("file")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--sizes", action="append", default=[])
    options = parser.parse_args()
    # What the peers print goes elsewhere than the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        kind = {"ort": OnnxRuntime, "ov": OpenVino}[options.peer]
        peer = kind(options.file, options.batch, options.threads, options.streams, parse_sizes(options.sizes))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:600]}), file=answers)
        return 1
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        if request["cmd"] == "quit":
            print(json.dumps({"rss_peak_mb": peak_megabytes()}), file=answers)
            return 0
        try:
            print(json.dumps(peer.run(request["seconds"])), file=answers)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:600]}), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
