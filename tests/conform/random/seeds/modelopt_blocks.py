"""Random cases of ModelOpt's quantizer with blocks, compressed tensors and block formats."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "vendor"))

from modelopt.torch.quantization.config import QuantizerAttributeConfig  # noqa: E402
from modelopt.torch.quantization.nn import TensorQuantizer  # noqa: E402
from modelopt.torch.quantization.qtensor import (  # noqa: E402
    FP8QTensor,
    INT4QTensor,
    INT8QTensor,
    MXFP4QTensor,
    MXFP8QTensor,
    NF4QTensor,
    NVFP4QTensor,
)
from modelopt.torch.quantization.tensor_quant import scaled_e4m3  # noqa: E402
from modelopt.torch.quantization.utils import numeric_utils  # noqa: E402
from modelopt.torch.quantization.utils.core_utils import (  # noqa: E402
    reduce_block_amax,
    reduce_block_padding,
)

SOURCE = "nvidia-modelopt 0.47.0 CPU code; dynamic_block_quant and static_fp4 are references"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}


# What the package gives --------------------------------------------------------------------------


def keys_of(block_sizes):
    """JSON has only text as keys."""
    if block_sizes is None:
        return None
    as_key = lambda key: int(key) if key.lstrip("-").isdigit() else key  # noqa: E731
    as_value = lambda v: tuple(v) if isinstance(v, list) else v  # noqa: E731
    return {as_key(k): as_value(v) for k, v in block_sizes.items()}


def make_quantizer(attrs):
    names = ("num_bits", "axis", "pass_through_bwd", "narrow_range", "type", "unsigned")
    given = {n: attrs[n] for n in names if n in attrs}
    given |= {n: tuple(v) for n, v in given.items() if isinstance(v, list)}
    if "block_sizes" in attrs:
        given["block_sizes"] = keys_of(attrs["block_sizes"])
    return TensorQuantizer(QuantizerAttributeConfig(**given))


def calibrate(quantizer, batches):
    quantizer.enable_calib()
    quantizer.disable_quant()
    for batch in batches:
        quantizer(batch)
    quantizer.load_calib_amax()
    quantizer.enable_quant()
    quantizer.disable_calib()


def run_quantizer(attrs, inputs):
    quantizer = make_quantizer(attrs)
    if "second_shape" in attrs:
        quantizer.amax = torch.tensor(1.0)
        quantizer(torch.ones(4, 16))
        quantizer(torch.ones(attrs["second_shape"]))
        return {}
    outputs = {}
    if "calib" in inputs:
        calibrate(quantizer, inputs["calib"])
    if "amax" in inputs:
        quantizer.amax = inputs["amax"]
    if "pre_quant_scale" in inputs:
        quantizer.pre_quant_scale = inputs["pre_quant_scale"]
        outputs["step_size"] = quantizer.step_size
    backward = attrs.get("backward", False)
    x = inputs["x"].clone().requires_grad_(backward)
    y = quantizer(x)
    outputs |= {"y": y.detach(), "maxbound": quantizer.maxbound}
    if backward:
        y.backward(inputs["grad"])
        outputs["grad_x"] = x.grad
    if attrs.get("type") != "dynamic" and quantizer.amax is not None:
        outputs |= {"amax": quantizer.amax, "export_amax": quantizer.export_amax()}
    return outputs


def run_block_amax(attrs, inputs):
    blocks = keys_of(attrs["block_sizes"])
    padded = reduce_block_padding(inputs["x"], blocks)
    return {"padded": padded, "amax": reduce_block_amax(padded, blocks)}


def by_axis_or_blocks(kind, attrs, x):
    blocks = keys_of(attrs.get("block_sizes"))
    axis = attrs.get("axis")
    axis = tuple(axis) if isinstance(axis, list) else axis
    q, scale = kind.quantize(x, axis=axis, block_sizes=blocks)
    y = q.dequantize(torch.float32, scale=scale, block_sizes=blocks)
    return {"data": q._quantized_data, "scale": scale, "dequantized": y}


def by_int4(attrs, x):
    blocks = keys_of(attrs["block_sizes"])
    q, scale = INT4QTensor.quantize(x, blocks[-1])
    y = q.dequantize(torch.float32, scale=scale, block_sizes=blocks)
    return {"data": q._quantized_data, "scale": scale, "dequantized": y}


def by_nf4(attrs, x):
    """The released dequantization fails with several blocks of scales: the intended one."""
    blocks = keys_of(attrs["block_sizes"])
    size, scale_size = blocks[-1], blocks["scale_block_sizes"]["-1"]
    q, raw = NF4QTensor.quantize(x, size, scale_size)
    scale, double_scale, zeros = NF4QTensor.double_quantization(raw, scale_size, blocks["scale_bits"])
    outputs = {"data": q._quantized_data, "scale_raw": raw, "scale": scale}
    outputs |= {"double_scale": double_scale, "scale_zeros": zeros}
    restored = (scale.float() / double_scale[:, None]).flatten() + zeros
    codes = q._quantized_data.flatten().long()
    indices = torch.stack([codes >> 4, codes & 15], dim=-1).flatten()
    from modelopt.torch.quantization.qtensor.nf4_tensor import nf4_table

    values = nf4_table[indices].float().view(-1, size)
    y = values * restored[: values.shape[0], None]
    return outputs | {"dequantized": y.flatten()[: x.numel()].view(x.shape)}


def by_nvfp4(attrs, x):
    blocks = keys_of(attrs["block_sizes"])
    q, scale, double_scale = NVFP4QTensor.quantize(x, blocks[-1])
    y = q.dequantize(torch.float32, scale=scale, double_scale=double_scale, block_sizes=blocks)
    return {"data": q._quantized_data, "scale": scale, "double_scale": double_scale,
            "dequantized": y}  # fmt: skip


def by_mxfp4(attrs, x):
    blocks = keys_of(attrs["block_sizes"])
    q, scale = MXFP4QTensor.quantize(x, blocks[-1])
    y = q.dequantize(torch.float32, scale=scale, block_sizes=blocks)
    return {"data": q._quantized_data, "scale": scale, "dequantized": y}


def by_mxfp8(attrs, x):
    q, scale = MXFP8QTensor.quantize(x)
    y = q.dequantize(torch.float32, scale=scale)
    return {"data": q._quantized_data, "scale": scale, "dequantized": y}


def by_mxfp8_with_scale(attrs, x):
    MXFP8QTensor.quantize_with_scale(torch.ones(2, 33), torch.full((2, 1), 127, dtype=torch.uint8))


KINDS = {
    "int8": lambda attrs, x: by_axis_or_blocks(INT8QTensor, attrs, x),
    "fp8": lambda attrs, x: by_axis_or_blocks(FP8QTensor, attrs, x),
    "int4": by_int4, "nf4": by_nf4, "nvfp4": by_nvfp4, "mxfp4": by_mxfp4, "mxfp8": by_mxfp8,
    "mxfp8_with_scale": by_mxfp8_with_scale,
}  # fmt: skip


def run_qtensor(attrs, inputs):
    x = inputs.get("x", torch.ones(2, 33))
    return KINDS[attrs["kind"]](attrs, x.clone())


def run_cast_fp4(attrs, inputs):
    return {"y": NVFP4QTensor._cast_fp4(inputs["x"].clone())}


def fp4_scales(amax, global_amax, fp8_max, quantized=True):
    """compute_fp4_scales of modelopt.torch.kernels, which needs a GPU to be imported."""
    scale = amax.float() / 6.0
    if not quantized:
        return scale
    return scaled_e4m3(scale, global_amax.float() * (448.0 / fp8_max) / 6.0, None, 4, 3)


def run_fp4_scales(attrs, inputs):
    arguments = attrs["fp8_max"], attrs["quantize_block_scales"]
    return {"scale": fp4_scales(inputs["amax"], inputs["global_amax"], *arguments)}


def run_static_fp4(attrs, inputs):
    x, amax = inputs["x"], inputs["amax"]
    scale = fp4_scales(amax, inputs["global_amax"], attrs["fp8_max"])
    divisor = torch.where(scale == 0, 1.0, scale)
    y = torch.sign(x) * to_table(x.abs() / divisor, VALUES[2, 1]) * scale
    outputs = {"y": y}
    if attrs.get("backward"):
        through = attrs.get("pass_through_bwd", True)
        outputs["grad_x"] = torch.where((x.abs() <= amax) | through, inputs["grad"], 0.0)
    return outputs


# References of kernels that only exist for GPUs (spec 2.3) ----------------------------------------


def steps_of(exponent_bits, mantissa_bits, bias):
    """All magnitudes of a float format without specials."""
    values = []
    for e in range(2**exponent_bits):
        for m in range(2**mantissa_bits):
            fraction = m / 2**mantissa_bits
            values.append((fraction + (e > 0)) * 2.0 ** (max(e, 1) - bias))
    return torch.tensor(values)


VALUES = {
    (2, 1): torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]),
    (1, 2): torch.arange(8) * 0.5,
    (0, 3): torch.arange(8) * 1.0,
    (3, 0): torch.tensor([0, 0.25, 0.5, 1, 2, 4, 8, 16]),
    (3, 2): steps_of(3, 2, 3),
    (2, 3): steps_of(2, 3, 1),
}
LARGEST = {k: float(v.max()) for k, v in VALUES.items()} | {(4, 3): 448.0, (5, 2): 57344.0, 8: 127.0}


def to_table(magnitude, values, away=False):
    """The nearest value, of two the one with the even index or the larger one."""
    middle = (values[1:].double() + values[:-1].double()) / 2
    low = torch.bucketize(magnitude.double(), middle, right=False)
    high = torch.bucketize(magnitude.double(), middle, right=True)
    index = high if away else torch.where((low != high) & (high % 2 == 0), high, low)
    return values[index.clamp(max=len(values) - 1)].float()


def round_to(magnitude, num_bits):
    if num_bits == 8:
        return magnitude.round().clamp(max=127.0)
    if num_bits in ((4, 3), (5, 2)):
        dtype = torch.float8_e4m3fn if num_bits == (4, 3) else torch.float8_e5m2
        return magnitude.clamp(max=LARGEST[num_bits]).to(dtype).float()
    return to_table(magnitude, VALUES[num_bits], away=num_bits == (3, 0))


def e8m0_unscale(amax, largest):
    """2^ceil(log2(amax / largest)), from the bits of the ratio."""
    bits = (amax / largest).view(torch.int32)
    exponent, mantissa = (bits >> 23) & 255, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 254) & ~((exponent == 0) & (mantissa <= 0x400000))
    return torch.ldexp(torch.ones_like(amax), exponent - 127 + up.int())


def e4m3_unscale(amax, largest, global_amax):
    level = (amax / largest).float()
    factor = 448.0 * (torch.tensor(largest) / global_amax).double()
    code = (level.double() * factor).float().clamp(max=448.0).to(torch.float8_e4m3fn)
    return (code.double() / factor).float(), (factor / code.double()).float()


def run_dynamic_block(attrs, inputs):
    x, size = inputs["x"], attrs["block_size"]
    num_bits = attrs["num_bits"]
    num_bits = tuple(num_bits) if isinstance(num_bits, list) else num_bits
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % size))
    blocks = padded.reshape(*padded.shape[:-1], -1, size)
    amax = blocks.abs().amax(dim=-1)
    if attrs["scale_bits"] == [8, 0]:
        unscale = e8m0_unscale(amax, LARGEST[num_bits])
        scale = 1.0 / unscale
    else:
        unscale, scale = e4m3_unscale(amax, LARGEST[num_bits], inputs["amax"].amax())
        scale, unscale = torch.where(unscale == 0, 0.0, scale), unscale
    scale, unscale = torch.where(amax == 0, 1.0, scale), torch.where(amax == 0, 1.0, unscale)
    y = round_to((blocks.abs() * scale[..., None]), num_bits) * unscale[..., None]
    y = (torch.sign(blocks) * y).reshape(padded.shape)[..., : x.shape[-1]]
    return {"y": y, "scale": unscale}


def run_mxfp4_to_nvfp4(attrs, inputs):
    blocks, e8m0 = inputs["blocks"], inputs["e8m0"]
    global_amax, info = numeric_utils.mxfp4_to_nvfp4_global_amax(e8m0)
    amax = numeric_utils.mxfp4_to_nvfp4_per_block_amax(blocks, e8m0)
    return {"global_amax": float(global_amax), "info": dict(info), "block_amax": amax}


def run_load_calib_amax(attrs, inputs):
    make_quantizer(attrs).load_calib_amax()
    return {}


def run_set_amax(attrs, inputs):
    quantizer = make_quantizer(attrs)
    quantizer.amax = inputs["first"]
    quantizer.amax = inputs["second"]
    return {}


OPS = {
    "modelopt.tensor_quantizer": run_quantizer,
    "modelopt.tensor_quantizer.load_calib_amax": run_load_calib_amax,
    "modelopt.tensor_quantizer.set_amax": run_set_amax,
    "modelopt.reduce_block_amax": run_block_amax,
    "modelopt.qtensor": run_qtensor,
    "modelopt.cast_fp4": run_cast_fp4,
    "modelopt.compute_fp4_scales": run_fp4_scales,
    "modelopt.static_fp4": run_static_fp4,
    "modelopt.dynamic_block_quant": run_dynamic_block,
    "modelopt.mxfp4_to_nvfp4": run_mxfp4_to_nvfp4,
}

# Random cases ------------------------------------------------------------------------------------


def granularity(draw, shape):
    """(tag, attributes): an axis, blocks, or neither."""
    rank = len(shape)
    way = draw.choice(["tensor", "axis", "axis_two", "block_last", "block_2d", "block_first", "none"])
    if way == "tensor":
        return way, {}
    if way == "axis":
        return way, {"axis": draw.integer(-rank, rank - 1)}
    if way == "axis_two":
        return way, {"axis": [0, -1] if draw.chance(0.6) else [0, draw.integer(1, rank - 1)]}
    size = lambda: draw.choice([1, 2, 2, 3, 4, 4, 8])  # noqa: E731
    if way == "block_last":
        return way, {"block_sizes": {"-1": size()}}
    if way == "block_2d":
        return way, {"block_sizes": {"-1": size(), "-2": size()}}
    if way == "block_first":
        return way, {"block_sizes": {str(draw.choice([0, -rank])): size()}}
    axes = sorted({-1, -draw.integer(1, rank)}, reverse=True)
    return "block_none", {"block_sizes": {str(a): None for a in axes}}


def random_quantizer(draw):
    shape = draw.sizes(draw.choice([2, 2, 3, 4]), 1, 9)
    if draw.chance(0.4):
        shape[-2:] = draw.choice([[4, 8], [8, 16], [6, 12], [2, 4]])
    num_bits = draw.choice([8, 8, 4, 6, 2, [4, 3], [4, 3]])
    tag, more = granularity(draw, shape)
    attrs = {"num_bits": num_bits} | more | {"pass_through_bwd": draw.chance(0.5)}
    if isinstance(num_bits, int) and draw.chance(0.3):
        attrs["narrow_range"] = True
    x = draw.values(shape)
    inputs = {"x": x}
    if draw.chance(0.15) and "block_sizes" not in attrs:
        attrs["type"] = "dynamic"
        return f"{tag}_dynamic", "modelopt.tensor_quantizer", attrs, inputs, EXACT
    calib = [draw.values(shape) for _ in range(draw.choice([0, 1]))]
    inputs["calib"] = [*calib, x] if draw.chance(0.6) else [*calib, draw.values(shape)]
    if draw.chance(0.8):
        attrs["backward"] = True
        inputs["grad"] = draw.normal(shape)
    if draw.chance(0.08) and "block_sizes" not in attrs and isinstance(num_bits, int):
        inputs["pre_quant_scale"] = draw.normal(shape[-1:]).abs() + 0.1
        inputs["amax"] = torch.tensor(draw.uniform(0.5, 3))
        attrs.pop("axis", None)
        inputs.pop("calib")
        attrs["pre_quant_scale"] = True
    return tag, "modelopt.tensor_quantizer", attrs, inputs, EXACT


def random_block_amax(draw):
    shape = draw.sizes(draw.integer(2, 3), 1, 20)
    blocks = {"-1": draw.integer(1, 9)}
    if draw.chance(0.5):
        blocks["-2"] = draw.integer(1, 9)
    compare = EXACT | {"rtol": 0}
    return "", "modelopt.reduce_block_amax", {"block_sizes": blocks}, {"x": draw.values(shape)}, compare


def values_without_zero_blocks(draw, shape):
    """Blocks of zeros divide by zero in some originals."""
    x = draw.values(shape, draw.choice(["normal", "outlier", "lognormal", "shifted", "negative"]))
    return torch.where(x == 0, x.abs().max() * 0.25 + 0.1, x)


def random_qtensor(draw):
    kind = draw.choice(list(KINDS)[:7])
    attrs = {"kind": kind}
    rows, columns = draw.integer(1, 8), 2 * draw.integer(1, 24)
    compare = EXACT
    if kind in ("int8", "fp8"):
        way = draw.integer(0, 2)
        if way == 0:
            attrs["block_sizes"] = {"-1": draw.choice([4, 8, 32])}
            if draw.chance(0.3):
                attrs["block_sizes"]["-2"] = draw.choice([2, 4])
        else:
            attrs["axis"] = None if way == 1 else draw.choice([0, 1, -1, [0]])
        columns = draw.integer(1, 40)
    elif kind == "int4":
        attrs["block_sizes"] = {"-1": draw.choice([4, 8, 16, 32])}
        columns = 16 * draw.integer(1, 4)
        rows = 2 * rows
    elif kind == "nf4":
        sizes = {"scale_bits": 8, "scale_block_sizes": {"-1": draw.choice([2, 4, 8])}}
        attrs["block_sizes"] = {"-1": draw.choice([4, 8, 32])} | sizes
        columns = 32 * draw.integer(1, 3)
        compare = EXACT | {"rtol": 2e-06, "atol": 1e-07}
    elif kind == "nvfp4":
        attrs["block_sizes"] = {"-1": draw.choice([16, 16, 8, 32]), "scale_bits": [4, 3]}
        columns = draw.choice([columns, 32, 64])
    else:
        attrs["block_sizes"] = {"-1": 32, "scale_bits": [8, 0], "type": "dynamic"}
        columns = draw.choice([32, 64, 96]) if kind == "mxfp4" else draw.choice([columns, 64])
    x = values_without_zero_blocks(draw, [rows, columns])
    if kind in ("nvfp4", "mxfp4", "mxfp8"):
        x = draw.values([rows, columns])
        if draw.chance(0.3):
            x = draw.ties([rows, columns], draw.power_of_two(-4, 2), -8, 8)
    return kind, "modelopt.qtensor", attrs, {"x": x}, compare


def random_cast_fp4(draw):
    x = draw.normal([draw.integer(1, 40)], 3.0)
    if draw.chance(0.5):
        x = draw.ties([40], 0.25, -28, 28)
    return "", "modelopt.cast_fp4", {}, {"x": x}, EXACT


def random_fp4_scales(draw):
    rows = draw.integer(1, 20)
    amax = draw.normal([rows, 1]).abs() * draw.magnitude()
    if draw.chance(0.3):
        amax[0] = 0
    largest = amax.max() * draw.choice([1.0, 1.0, 3.0])
    attrs = {"quantize_block_scales": True, "fp8_max": draw.choice([448.0, 256.0])}
    inputs = {"amax": amax, "global_amax": largest}
    if draw.chance(0.5):
        return "", "modelopt.compute_fp4_scales", attrs, inputs, EXACT
    size = draw.choice([8, 16, 32])
    del attrs["quantize_block_scales"]
    attrs |= {"block_size": size, "pass_through_bwd": draw.chance(0.3), "backward": True}
    attrs["reference"] = True
    inputs |= {"x": draw.normal([rows, size]) * amax * 0.6, "grad": draw.normal([rows, size])}
    return "", "modelopt.static_fp4", attrs, inputs, EXACT


def random_dynamic_block(draw):
    formats = [[4, 3], [5, 2], [3, 2], [2, 3], 8, [2, 1], [1, 2], [0, 3], [3, 0], [2, 1]]
    size = draw.choice([8, 16, 32])
    shape = [draw.integer(1, 6), draw.choice([size, 2 * size, 3 * size, draw.integer(1, 70)])]
    x = draw.values(shape)
    attrs = {"num_bits": draw.choice(formats), "scale_bits": [8, 0], "block_size": size}
    attrs["reference"] = True
    inputs = {"x": x}
    if draw.chance(0.3):
        attrs |= {"num_bits": [2, 1], "scale_bits": [4, 3]}
        inputs["amax"] = x.abs().max() * draw.choice([1.0, 1.0, 2.5, 0.5])
        if float(inputs["amax"]) == 0:
            inputs["amax"] = torch.tensor(1.0)
        return "nvfp4", "modelopt.dynamic_block_quant", attrs, inputs, EXACT | {"rtol": 3e-07}
    return "mx", "modelopt.dynamic_block_quant", attrs, inputs, EXACT


def random_mxfp4_to_nvfp4(draw):
    rows, blocks = draw.integer(1, 6), draw.integer(1, 6)
    codes = torch.randint(0, 256, [rows, blocks, 16], generator=draw.generator).to(torch.uint8)
    spread = draw.choice([4, 12, 30])
    middle = draw.integer(90, 140)
    e8m0 = torch.randint(middle - spread, middle + spread, [rows, blocks], generator=draw.generator)
    if draw.chance(0.4):
        e8m0[0, 0] = 0
    inputs = {"blocks": codes, "e8m0": e8m0.to(torch.uint8)}
    return "", "modelopt.mxfp4_to_nvfp4", {}, inputs, EXACT | {"rtol": 1e-07}


MAKERS = (
    [random_quantizer] * 8 + [random_block_amax] + [random_qtensor] * 6 + [random_cast_fp4]
    + [random_fp4_scales] * 2 + [random_dynamic_block] * 4 + [random_mxfp4_to_nvfp4]
)  # fmt: skip


def random_case(draw):
    return draw.choice(MAKERS)(draw)
