#!/usr/bin/env python3
"""One process of a peer, from its start to its first result; tools/bench/startup.py starts it.

    startup_worker.py ort|ort_saved|ov|ov_cached|torch FILE --batch N --threads N [--sizes ...] [--harness FOLDER]

Needs a Python that has numpy and the peer. The library is there and the inputs are, then the clock
starts: the file is read, and the network answers once. Printed is one JSON object as `quanta bench
--first` prints it. ort_saved is the file that ONNX Runtime wrote when it had optimized the network,
ov_cached OpenVINO with its cache of compiled networks; both are written, beside FILE, by the first
process. torch unpickles a module, with the help of models.py in --harness.
"""

import argparse
import json
import os
import sys
import time

from peer_worker import full_sizes, parse_sizes, random_array


def report(begun, ready):
    print(json.dumps({"begun_ns": begun, "ready_ns": ready, "first_ns": time.monotonic_ns()}))


def run_ort(options, saved):
    import onnxruntime

    path = options.file
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    settings.log_severity_level = 3
    settings.add_free_dimension_override_by_name("N", options.batch)
    if saved:
        target = path.removesuffix(".onnx") + f".b{options.batch}.optimized.ort"
        if not os.path.exists(target):
            settings.optimized_model_filepath = target + ".part"
            settings.add_session_config_entry("session.save_model_format", "ORT")
            onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
            os.replace(target + ".part", target)
            settings.optimized_model_filepath = ""
        settings.add_session_config_entry("session.load_model_format", "ORT")
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        path = target
    if options.sizes:
        inputs = {name: random_array(sizes, "tensor(float)") for name, sizes in parse_sizes(options.sizes).items()}
    else:
        import onnx

        graph = onnx.load(options.file, load_external_data=False).graph
        constants = {value.name for value in graph.initializer}
        types = {1: "tensor(float)", 6: "tensor(int32)", 7: "tensor(int64)"}
        inputs = {}
        for value in graph.input:
            if value.name not in constants:
                tensor = value.type.tensor_type
                dims = full_sizes(value.name, [dim.dim_value or None for dim in tensor.shape.dim], options.batch, {})
                inputs[value.name] = random_array(dims, types[tensor.elem_type])
    begun = time.monotonic_ns()
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    ready = time.monotonic_ns()
    session.run(None, inputs)
    report(begun, ready)


def run_openvino(options, cached):
    import openvino

    known = parse_sizes(options.sizes)
    arrays = {}
    for value in openvino.Core().read_model(options.file).inputs:
        dims = [dim.get_length() if dim.is_static else None for dim in value.get_partial_shape()]
        name, kind = value.get_any_name(), value.get_element_type().get_type_name()
        sizes = full_sizes(name, dims, options.batch, known)
        arrays[name] = random_array(sizes, {"i64": "tensor(int64)", "i32": "tensor(int32)"}.get(kind, "tensor(float)"))
    begun = time.monotonic_ns()
    core = openvino.Core()
    if cached:
        core.set_property({"CACHE_DIR": os.path.join(os.path.dirname(options.file), "openvino_cache")})
    model = core.read_model(options.file)
    model.reshape({name: list(array.shape) for name, array in arrays.items()})
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": options.threads, "NUM_STREAMS": 1})
    ready = time.monotonic_ns()
    compiled.create_infer_request().infer(arrays)
    report(begun, ready)


def run_torch(options):
    import torch

    sys.path.insert(0, options.harness)
    import models

    torch.set_num_threads(options.threads)
    name = os.path.basename(os.path.dirname(os.path.abspath(options.file)))
    engine = options.file.removesuffix(".pth").rsplit("_", 1)[1]
    x = torch.from_numpy(random_array([options.batch, *models.input_shape(name)], "tensor(float)"))
    if x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    begun = time.monotonic_ns()
    model = models.load_quantized(options.file, engine)
    ready = time.monotonic_ns()
    with torch.inference_mode():
        model(x)
    report(begun, ready)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["ort", "ort_saved", "ov", "ov_cached", "torch"])
    parser.add_argument("file")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--sizes", action="append", default=[])
    parser.add_argument("--harness", default=".")
    options = parser.parse_args()
    if options.peer == "torch":
        run_torch(options)
    elif options.peer.startswith("ort"):
        run_ort(options, options.peer == "ort_saved")
    else:
        run_openvino(options, options.peer == "ov_cached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
