"""Writes interpolate_factors.json and .safetensors beside this file: sizes by odd scale factors.

Random sizes, factors and memory orders, in every mode that PyTorch has for them. Left out is what
its kernels get wrong: codes of one pixel, and codes in three dimensions whose sizes stay.

    python interpolate_factors.py        needs torch; a second
"""

import pathlib
import random
import warnings

import torch
from histogram_states import Suite

CASES = 150
MODES = {
    1: ["nearest", "nearest-exact", "linear"],
    2: ["nearest", "nearest-exact", "bilinear", "bilinear"],
    3: ["nearest", "nearest-exact", "trilinear"],
}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
FACTORS = [1.0, 1.3, 1.5, 2.0, 2.3, 2.6]


def draw(generator):
    """A case's input, arguments and memory format."""
    spatial = generator.choice([1, 2, 2, 2, 3, 3])
    mode = generator.choice(MODES[spatial])
    quantized = spatial > 1 and mode != "trilinear" and generator.random() < 0.7
    sizes = [generator.randint(1, 2), generator.choice([1, 2, 3, 5, 8, 9, 17])]
    sizes += [generator.randint(1, 7) for _ in range(spatial)]
    if spatial == 2 and generator.random() < 0.1:
        sizes[1:3] = [1, 110]
    x = torch.randn(sizes) * 3
    if quantized:
        dtype = generator.choice([torch.quint8, torch.qint8])
        zero_point = generator.randint(0, 255) - (128 if dtype == torch.qint8 else 0)
        x = torch.quantize_per_tensor(x, generator.choice([0.03, 0.05, 0.1]), zero_point, dtype)
    arguments = {"mode": mode}
    if "nearest" not in mode:
        arguments["align_corners"] = generator.random() < 0.4
    factor = lambda: generator.choice([*FACTORS, round(generator.uniform(0.4, 3.2), 2)])
    kind = generator.random()
    if kind < 0.2:
        arguments["size"] = [generator.randint(1, 12) for _ in range(spatial)]
    else:
        arguments["scale_factor"] = factor() if kind < 0.5 else [factor() for _ in range(spatial)]
        if generator.random() < 0.2:
            arguments["recompute_scale_factor"] = True
    order = LAST.get(spatial) if generator.random() < 0.5 else None
    return x.contiguous(memory_format=order) if order else x, arguments, order


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(19)
    generator = random.Random(19)
    suite = Suite()
    while len(suite.cases) < CASES:
        x, arguments, order = draw(generator)
        try:
            y = torch.nn.functional.interpolate(x, **arguments)
        except RuntimeError:  # a size of 0
            continue
        image, result = x.shape[2:], y.shape[2:]
        if y.numel() == 0:
            continue
        if x.is_quantized and (image.numel() == 1 or (len(image) == 3 and image == result)):
            continue
        name = f"interpolate-{arguments['mode']}{len(image)}d-{len(suite.cases)}"

        def reference(tensor, key):
            if not tensor.is_quantized:
                return suite.reference(f"{name}/{key}", tensor)
            return suite.reference(f"{name}/{key}", tensor.int_repr()) | {
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "qscheme": "per_tensor_affine",
                "scale": tensor.q_scale(),
                "zero_point": tensor.q_zero_point(),
            }

        blended = not x.is_quantized and "nearest" not in arguments["mode"]
        suite.cases.append({
            "id": name,
            "op": "interpolate",
            "attrs": arguments | {"memory_format": str(order or torch.contiguous_format).removeprefix("torch.").removesuffix("_format")},
            "inputs": {"x": reference(x, "in.x")},
            "outputs": {"out": reference(y, "out.out")},
            "compare": {"max_int_diff": 0, "min_exact": 1.0, "rtol": 0.0, "atol": 4e-6 if blended else 0.0},
        })
    suite.write(pathlib.Path(__file__).with_suffix(""))


if __name__ == "__main__":
    main()
