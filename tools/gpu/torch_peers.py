#!/usr/bin/env python3
"""Times PyTorch's networks on a GPU with random weights, for tools/gpu/first_run: bfloat16 in
channels-last, eager, as a CUDA graph and compiled; and products of int8. Prints a JSON object a line.
Exit status 3 where PyTorch (or a GPU that it can use) is missing."""

import argparse
import json
import statistics
import sys

try:
    import torch
except ImportError:
    print("not installed: torch")
    sys.exit(3)


def networks():
    """Name, network and an input of so many rows."""
    try:
        from torchvision import models
        for name in ("resnet50", "mobilenet_v2"):
            yield name, getattr(models, name)(), lambda rows: torch.randn(rows, 3, 224, 224)
    except ImportError:
        print("not installed: torchvision", file=sys.stderr)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    yield "bert4", torch.nn.TransformerEncoder(layer, 4), lambda rows: torch.randn(rows, 128, 768)
    mlp = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(),
                              torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
                              torch.nn.Linear(1024, 10))
    yield "mlp", mlp, lambda rows: torch.randn(rows, 784)


def captured(network, x):
    """The call as a graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            network(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network(x)
    return graph.replay


def median_ms(call, seconds):
    for _ in range(3):
        call()
    times, total = [], 0.0
    while total < seconds * 1000.0 and len(times) < 500:
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
        total += times[-1]
    return statistics.median(times)


def compiled(network, x):
    fast = torch.compile(network, mode="max-autotune")
    return lambda: fast(x)


FORMS = {"eager": lambda network, x: lambda: network(x), "graph": captured, "compiled": compiled}
# Rows for each input, columns and depth: of ResNet-50's and BERT's layers.
INTEGER_PRODUCTS = {"bert 768 -> 3072": (128, 3072, 768), "bert 3072 -> 768": (128, 768, 3072),
                    "resnet50 256 -> 64, 56x56": (3136, 64, 256)}


def print_time(row, call, seconds):
    """The milliseconds of what call() gives, or why there are none."""
    try:
        with torch.inference_mode():
            row["ms"] = median_ms(call(), seconds)
    except Exception as error:  # the next one may work
        row["error"] = str(error)[:500]
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("not installed: a GPU that torch can use")
        sys.exit(3)
    torch.backends.cudnn.benchmark = True
    for name, (rows, columns, depth) in INTEGER_PRODUCTS.items():
        for batch in options.batch:
            def multiply(shape=(batch * rows, columns, depth)):
                left = torch.ones(shape[0], shape[2], dtype=torch.int8, device="cuda")
                right = torch.ones(shape[1], shape[2], dtype=torch.int8, device="cuda").t()
                return lambda: torch._int_mm(left, right)
            print_time({"peer": f"torch {torch.__version__} int8 _int_mm", "model": name,
                        "batch": batch}, multiply, options.seconds)
    # Compiling takes minutes: what is quick comes first.
    for form, make in FORMS.items():
        for name, network, make_input in networks():
            network = network.eval().cuda().to(torch.bfloat16)
            network = network.to(memory_format=torch.channels_last)
            for batch in options.batch:
                x = make_input(batch).cuda().to(torch.bfloat16)
                if x.dim() == 4:
                    x = x.to(memory_format=torch.channels_last)
                print_time({"peer": f"torch {torch.__version__} bfloat16 {form}", "model": name,
                            "batch": batch}, lambda: make(network, x), options.seconds)


if __name__ == "__main__":
    main()
