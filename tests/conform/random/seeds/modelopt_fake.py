"""Random cases of the functions of pytorch-quantization and ModelOpt that quantize a tensor."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "vendor"))

from modelopt.torch.quantization import tensor_quant as modelopt  # noqa: E402
from modelopt.torch.quantization.nn.functional import clip  # noqa: E402
from pytorch_quantization import tensor_quant as pytq  # noqa: E402

SOURCE = "pytorch-quantization 2.1.3 (pytq.*) and nvidia-modelopt 0.47.0 (modelopt.*), CPU"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}


# What the packages give --------------------------------------------------------------------------


def codes(attrs):
    narrow = attrs.get("narrow_range", True)
    return attrs["num_bits"], attrs.get("unsigned", False), narrow


def forward_and_backward(attrs, inputs, function, learned=()):
    backward = attrs.get("backward", False)
    x = inputs["x"].clone().requires_grad_(backward)
    others = {n: inputs[n].clone().requires_grad_(backward) for n in learned}
    results = function(x, **others)
    results = results if isinstance(results, tuple) else (results,)
    outputs = dict(zip(("y", "scale"), (r.detach() for r in results), strict=False))
    if backward:
        results[0].backward(inputs["grad"])
        outputs["grad_x"] = x.grad
        outputs |= {f"grad_{n}": t.grad for n, t in others.items()}
    return outputs


def run_pytq(function):
    def run(attrs, inputs):
        return forward_and_backward(
            attrs, inputs, lambda x: function(x, inputs["amax"], *codes(attrs))
        )

    return run


def run_modelopt_fake(attrs, inputs):
    through = attrs.get("pass_through_bwd", True)
    return forward_and_backward(attrs, inputs, lambda x: modelopt.fake_tensor_quant(
        x, inputs["amax"], inputs.get("bias"), *codes(attrs), None, through))  # fmt: skip


def run_affine(attrs, inputs):
    ends = inputs["min_range"], inputs["max_range"]
    function = pytq.fake_affine_tensor_quant
    return forward_and_backward(attrs, inputs, lambda x: function(x, *ends, attrs["num_bits"]))


def run_scaled_e4m3(attrs, inputs):
    through = attrs.get("pass_through_bwd", True)
    return forward_and_backward(attrs, inputs, lambda x: modelopt.scaled_e4m3(
        x, inputs.get("amax"), inputs.get("bias"), attrs["E"], attrs["M"], None, through))  # fmt: skip


def run_int_cast(attrs, inputs):
    return forward_and_backward(
        attrs, inputs, lambda x: modelopt.int_cast_ste(x, *codes(attrs))
    )


def run_clip(attrs, inputs):
    return forward_and_backward(
        attrs, inputs, lambda x, **ends: clip(x, ends["min"], ends["max"]), ("min", "max")
    )


OPS = {
    "pytq.tensor_quant": run_pytq(pytq.tensor_quant),
    "pytq.fake_tensor_quant": run_pytq(pytq.fake_tensor_quant),
    "pytq.legacy_fake_tensor_quant": run_pytq(pytq.legacy_fake_tensor_quant),
    "modelopt.fake_tensor_quant": run_modelopt_fake,
    "pytq.fake_affine_tensor_quant": run_affine,
    "modelopt.scaled_e4m3": run_scaled_e4m3,
    "modelopt.int_cast_ste": run_int_cast,
    "modelopt.clip": run_clip,
}

# Random cases ------------------------------------------------------------------------------------


def amax_of(draw, x):
    """(tag, amax): a shape that broadcasts, and values near those of x."""
    way = draw.choice(["tensor", "one", "axis0", "axis_last", "mid", "broadcast", "full"])
    shape = list(x.shape)
    axis = draw.integer(0, len(shape) - 1)
    kept = {
        "tensor": [], "one": [1], "axis0": [shape[0]] + [1] * (len(shape) - 1),
        "axis_last": shape[-1:], "mid": [n if d == axis else 1 for d, n in enumerate(shape)],
        "broadcast": [n if draw.chance(0.5) else 1 for n in shape], "full": shape,
    }[way]  # fmt: skip
    largest = float(x.abs().max()) if x.numel() else 1.0
    amax = torch.full(kept, largest)
    if draw.chance(0.7):
        amax = amax * (draw.normal(kept).abs() * 0.5 + 0.2)
    if draw.chance(0.15) and amax.numel():
        amax.view(-1)[0] = draw.choice([0.0, 2.0**-24, 2.0**-25, 1e-30, 2.0**-23])
    if draw.chance(0.02):
        amax = -amax
    return way, amax


def values_for(draw, shape, attrs):
    if draw.chance(0.25):
        top = 2 ** (attrs["num_bits"] - 1) - 1
        x = draw.ties(shape, draw.power_of_two(-10, 4), -top, top)
    else:
        x = draw.values(shape)
    return x.abs() if attrs.get("unsigned") and draw.chance(0.95) else x


def integer_attrs(draw):
    attrs = {"num_bits": draw.choice([1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 8, 12, 16])}
    if attrs["num_bits"] == 1 and draw.chance(0.8):
        attrs["num_bits"] = 7
    return attrs | {"unsigned": draw.chance(0.35), "narrow_range": draw.chance(0.6)}


def with_gradient(draw, attrs, inputs, probability=0.8):
    if inputs["x"].dtype == torch.float32 and draw.chance(probability):
        attrs["backward"] = True
        inputs["grad"] = draw.normal(inputs["x"].shape)


def random_quant(draw):
    ops = ["pytq.tensor_quant", "pytq.fake_tensor_quant", "pytq.legacy_fake_tensor_quant"]
    op = draw.choice([*ops, "modelopt.fake_tensor_quant", "modelopt.fake_tensor_quant"])
    attrs = integer_attrs(draw)
    shape = draw.sizes(draw.integer(1, 4), 1, 9)
    x = values_for(draw, shape, attrs)
    tag, amax = amax_of(draw, x)
    dtype = torch.float32
    if draw.chance(0.15):
        half = [torch.float16, torch.bfloat16] if op.startswith("modelopt") else [torch.float16]
        dtype = draw.choice(half)
        x = x.clamp(-6e4, 6e4)
        amax = amax.clamp(-6e4, 6e4)
    inputs = {"x": x.to(dtype), "amax": amax.to(dtype)}
    if op == "modelopt.fake_tensor_quant":
        attrs["pass_through_bwd"] = draw.chance(0.4)
        if draw.chance(0.15) and not attrs["unsigned"]:
            kept = draw.choice([[1], shape[-1:], [shape[0]] + [1] * (len(shape) - 1)])
            inputs["bias"] = (draw.normal(kept) * float(x.abs().max())).to(dtype)
    with_gradient(draw, attrs, inputs)
    return tag, op, attrs, inputs, EXACT


def random_affine(draw):
    attrs = {"num_bits": draw.choice([2, 3, 4, 5, 6, 8, 8, 12])}
    x = draw.values(draw.sizes(draw.integer(1, 3), 1, 9), "normal")
    largest = float(x.abs().max())
    low, high = -largest * draw.uniform(0, 1.2), largest * draw.uniform(0.1, 1.2)
    if draw.chance(0.2):
        low = high * draw.uniform(0, 0.8)
    inputs = {"x": x, "min_range": torch.tensor(low), "max_range": torch.tensor(high)}
    with_gradient(draw, attrs, inputs, 0.9)
    atol = 1e-7 * max(1.0, largest)
    return "", "pytq.fake_affine_tensor_quant", attrs, inputs, EXACT | {"atol": atol}


def random_scaled_e4m3(draw):
    attrs = {"E": 4, "M": 3, "pass_through_bwd": draw.chance(0.4)}
    if draw.chance(0.03):
        attrs |= {"E": 5, "M": 2}
    shape = draw.sizes(draw.integer(1, 4), 1, 9)
    x = draw.values(shape)
    if draw.chance(0.2):
        x = x * 2.0**-20
    inputs = {"x": x}
    tag, amax = amax_of(draw, x)
    if draw.chance(0.85):
        inputs["amax"] = amax.abs()
        if draw.chance(0.2):
            inputs["bias"] = draw.normal(shape[-1:]) * float(x.abs().max())
    else:
        tag = "none"
    with_gradient(draw, attrs, inputs)
    if draw.chance(0.1) and "backward" not in attrs:
        inputs = {n: t.to(torch.bfloat16) for n, t in inputs.items()}
    return tag, "modelopt.scaled_e4m3", attrs, inputs, EXACT


def random_int_cast(draw):
    attrs = integer_attrs(draw)
    top = 2 ** (attrs["num_bits"] - 1)
    shape = draw.sizes(2, 1, 12)
    x = draw.ties(shape, 1.0, -top, 2 * top) if draw.chance(0.5) else draw.normal(shape, top)
    inputs = {"x": x}
    with_gradient(draw, attrs, inputs)
    return "", "modelopt.int_cast_ste", attrs, inputs, EXACT


def random_clip(draw):
    x = draw.values(draw.sizes(2, 1, 12), draw.choice(["normal", "integers", "sparse"]))
    largest = float(x.abs().max())
    low, high = -largest * draw.uniform(-0.2, 1), largest * draw.uniform(0.2, 1)
    if draw.chance(0.3):
        low, high = float(x.min()), float(x.view(-1)[0])
    inputs = {"x": x, "min": torch.tensor(low), "max": torch.tensor(high)}
    attrs = {"backward": True}
    inputs["grad"] = draw.normal(x.shape)
    return "", "modelopt.clip", attrs, inputs, EXACT | {"rtol": 1e-05, "atol": 1e-05}


MAKERS = [random_quant] * 12 + [random_affine] * 2 + [random_scaled_e4m3] * 4
MAKERS += [random_int_cast, random_clip]


def random_case(draw):
    return draw.choice(MAKERS)(draw)
