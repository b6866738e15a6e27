"""Writes suites in the format of the golden cases: SUITE.json beside SUITE.safetensors."""

import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
from safetensors.torch import save_file

EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 0.0, "atol": 0.0}


def within(rtol, atol, max_int_diff=0, min_exact=1.0):
    return {"max_int_diff": max_int_diff, "min_exact": min_exact, "rtol": rtol, "atol": atol}


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class Suite:
    """Cases and their tensors, in the order in which they come."""

    def __init__(self, name, seed, source):
        self.name, self.source = name, f"{source}, torch {torch.__version__}, seed {seed}"
        self.cases, self.tensors = [], {}
        self.begun = time.monotonic()

    def is_full(self, given):
        """As many cases as asked for, or no time left for more."""
        return (len(self.cases) >= given.cases
                or time.monotonic() - self.begun > given.seconds)

    def add(self, op, attrs, inputs, outputs, compare, note=None):
        case_id = f"{op}-{len(self.cases)}"
        case = {"id": case_id, "op": op, "attrs": attrs,
                "inputs": self._refs(inputs, f"{case_id}/in"),
                "outputs": self._refs(outputs, f"{case_id}/out"), "compare": compare}
        if note:
            case["note"] = note
        self.cases.append(case)

    def _refs(self, value, path):
        if isinstance(value, torch.Tensor):
            return self._tensor_ref(value.detach(), path)
        if isinstance(value, dict):
            return {str(k): self._refs(v, f"{path}.{k}") for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._refs(v, f"{path}.{i}") for i, v in enumerate(value)]
        return value

    def _tensor_ref(self, tensor, path):
        if tensor.is_quantized:
            return self._quantized_ref(tensor, path)
        self._store(path, tensor.to(torch.uint8) if tensor.dtype is torch.bool else tensor)
        return {"tensor": path, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}

    def _store(self, path, tensor):
        # A copy of one element may keep an odd stride.
        self.tensors[path] = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)

    def _quantized_ref(self, tensor, path):
        codes = tensor.contiguous().int_repr()
        self._store(path, codes.flatten() if tensor.dtype is torch.quint4x2 else codes)
        ref = {"tensor": path, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape),
               "qscheme": dtype_name(tensor.qscheme())}
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return ref | {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        for name, values in (("scales", tensor.q_per_channel_scales()),
                             ("zero_points", tensor.q_per_channel_zero_points())):
            ref[name] = self._tensor_ref(values, f"{path}.{name}")["tensor"]
        return ref | {"axis": tensor.q_per_channel_axis()}

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        content = {"suite": self.name, "source": self.source, "cases": self.cases}
        with open(os.path.join(folder, self.name + ".json"), "w") as file:
            json.dump(content, file, indent=1)
        save_file(self.tensors, os.path.join(folder, self.name + ".safetensors"))
        print(f"{self.name}: {len(self.cases)} cases")


# Draws --------------------------------------------------------------------------------------------

DISTRIBUTIONS = ["normal", "relu", "skewed", "heavy", "zero", "constant", "negconst", "tiny",
                 "negative", "positive", "uniform", "large", "growing", "shrinking", "shifting",
                 "jump", "const_then_normal", "zero_then_relu", "hugely_spread", "few_values",
                 "plus_minus"]


def draw(name, shape, batch=0):
    """Values of a named distribution; `batch` is the number of the batch in its case."""
    x = torch.randn(shape)
    simple = {
        "normal": lambda: x, "relu": lambda: x.relu(), "skewed": lambda: x.exp() - 1,
        "heavy": lambda: x / torch.randn(shape).abs().clamp(min=0.02),
        "zero": lambda: x * 0, "constant": lambda: torch.full(shape, 1.7),
        "negconst": lambda: torch.full(shape, -0.6), "tiny": lambda: x * 1e-9,
        "negative": lambda: -x.abs() - 0.1, "positive": lambda: x.abs() + 0.1,
        "uniform": lambda: torch.rand(shape) * 4 - 1, "large": lambda: x * 3e4,
        "growing": lambda: x * 2.0 ** batch, "shrinking": lambda: x * 0.5 ** batch,
        "shifting": lambda: x + 1.5 * batch, "jump": lambda: x * (40.0 if batch == 1 else 1.0),
        "const_then_normal": lambda: x if batch else torch.full(shape, 0.9),
        "zero_then_relu": lambda: x.relu() if batch else x * 0,
        "hugely_spread": lambda: x * torch.pow(10.0, torch.randint(-6, 7, shape).float()),
        "few_values": lambda: (x * 1.5).round() * 0.37,
        "plus_minus": lambda: x.sign() * random.choice([1.0, 0.37, 5.0, 0.1]),
    }
    return simple[name]().float()


def random_shape(rank_low=1, rank_high=4, most=9, elements=600):
    while True:
        rank = random.randint(rank_low, rank_high)
        shape = [random.choice([1, 2, 3, random.randint(1, most)]) for _ in range(rank)]
        if math.prod(shape) <= elements:
            return shape


def arguments(default_count, weights=()):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=default_count)
    parser.add_argument("--out", default="build/random", help="where SUITE.json and .safetensors go (build/random)")
    parser.add_argument("--seconds", type=float, default=420, help="of drawing, at most")
    parser.add_argument("--net", help="of the pipeline suite: static cases of this network alone, "
                        "with observers that take little time")
    parser.add_argument("--weights", type=float, nargs="*", default=list(weights),
                        help="how often each kind of case is drawn")
    given = parser.parse_args()
    seed_all(given.seed)
    torch.set_num_threads(1)
    return given


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
