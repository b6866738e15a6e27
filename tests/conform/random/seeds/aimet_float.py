"""Random cases of AIMET's float quantizers."""

import torch
from aimet_torch.fp_quantization import fake_cast_to_ieee_float
from aimet_torch.quantization import encoding_analyzer
from aimet_torch.quantization.float import FloatQuantizeDequantize
from aimet_torch.quantization.float._finfo import _finfo
from aimet_torch.quantization.float.encoding import FloatEncoding
from aimet_torch.quantization.float.quantizer import _MXFP4QuantizeDequantize

from golden import Failure

SOURCE = "aimet-torch 2.42.0 on torch CPU"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}
DTYPES = (
    "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip


def plain(tensor):
    return tensor.detach().as_subclass(torch.Tensor)


# What the package gives --------------------------------------------------------------------------


def make_quantizer(attrs):
    names = ("exponent_bits", "mantissa_bits", "finite", "unsigned_zero")
    options = {n: attrs[n] for n in names if n in attrs}
    if "dtype" in attrs:
        options["dtype"] = getattr(torch, attrs["dtype"])
    shape = tuple(attrs.get("shape", ()))
    block = attrs.get("block_size")
    block = None if block is None else tuple(block)
    if attrs.get("analyzer") == "minmax":
        options["encoding_analyzer"] = encoding_analyzer.MinMaxEncodingAnalyzer(shape, block)
    return FloatQuantizeDequantize(shape=shape, block_size=block, **options)


def run_float_qdq(attrs, inputs):
    quantizer = make_quantizer(attrs)
    if attrs.get("calibrate"):
        with quantizer.compute_encodings():
            for batch in inputs["calib"]:
                quantizer(batch)
    backward = attrs.get("backward", False)
    x = inputs["x"].clone().requires_grad_(backward)
    y = quantizer(x)
    encoding = quantizer.get_encodings()
    outputs = {"y": plain(y), "scale": plain(quantizer.get_scale())}
    outputs |= {"maxval": plain(encoding.maxval), "bitwidth": quantizer.bitwidth}
    if backward:
        y.backward(inputs["grad"])
        outputs["grad_x"] = x.grad
    return outputs


def finfo_of(attrs):
    names = ("exponent_bits", "mantissa_bits", "finite", "unsigned_zero")
    return _finfo(*(attrs[n] for n in names))


def run_finfo(attrs, inputs):
    finfo = finfo_of(attrs)
    try:
        most = finfo.max
    except RuntimeError as error:
        most = Failure("RuntimeError", str(error))
    return {"max": most, "name": finfo.to_str()}


def run_fake_cast(attrs, inputs):
    bits = attrs["exponent_bits"], attrs["mantissa_bits"]
    y = fake_cast_to_ieee_float(inputs["x"], inputs["maxval"], *bits, finite=attrs["finite"])
    return {"y": y}


def run_mxfp4(attrs, inputs):
    quantizer = _MXFP4QuantizeDequantize(tuple(attrs["shape"]), tuple(attrs["block_size"]))
    with quantizer.compute_encodings():
        for batch in inputs["calib"]:
            quantizer(batch)
    y = plain(quantizer(inputs["x"]))
    return {"y": y, "scale": plain(quantizer.get_scale()), "maxval_param": quantizer.maxval}


def run_float_encoding(attrs, inputs):
    e, m, finite, unsigned_zero = _finfo.from_torch_dtype(getattr(torch, attrs["dtype"]))
    encoding = FloatEncoding(m, e, finite, unsigned_zero, inputs["scale"])
    q = encoding.quantize(inputs["x"])
    outputs = {"q": plain(q), "dq": plain(encoding.dequantize(q))}
    return outputs | {"granularity": encoding.granularity, "mapping": encoding.mapping}


OPS = {
    "aimet.float_qdq": run_float_qdq,
    "aimet.finfo": run_finfo,
    "aimet.fake_cast_to_ieee_float": run_fake_cast,
    "aimet.mxfp4_qdq": run_mxfp4,
    "aimet.float_encoding": run_float_encoding,
}

# Random cases ------------------------------------------------------------------------------------


def loose(exponent_bits, mantissa_bits, largest, scale, min_exact):
    """A scale that is off in the last place moves elements next to a tie by one step."""
    compare = {"max_int_diff": 0, "min_exact": min_exact, "rtol": 3e-06, "atol": 0.0}
    compare["loose_rtol"] = 1.01 * 2.0**-mantissa_bits
    compare["loose_atol"] = largest * 2.0 ** -(2**exponent_bits - 2) * scale
    return compare


def format_attrs(draw):
    if draw.chance(0.45):
        return {"dtype": draw.choice(DTYPES)}
    bits = draw.choice([(2, 1), (3, 2), (4, 3), (5, 2), (5, 10), (8, 7), (4, 1), (6, 9), (3, 4)])
    if draw.chance(0.3):
        bits = draw.integer(2, 8), draw.integer(1, 10)
    attrs = {"exponent_bits": bits[0], "mantissa_bits": bits[1]}
    attrs |= {"finite": False, "unsigned_zero": False}
    if draw.chance(0.1):
        attrs |= {"finite": draw.chance(0.7), "unsigned_zero": draw.chance(0.4)}
    return attrs


def layout(draw):
    way = draw.choice(["none", "tensor", "tensor", "channel", "block", "wild", "last"])
    rows, columns = draw.sizes(2, 1, 20)
    if way in ("none", "tensor"):
        return way, draw.sizes(draw.integer(1, 4), 1, 9), [], None
    if way == "channel":
        rank = draw.integer(2, 4)
        shape = draw.sizes(rank, 1, 8)
        return way, shape, [shape[0]] + [1] * (rank - 1), None
    if way == "last":
        return way, [rows, columns], [columns], None
    blocks, size = draw.integer(1, 5), draw.integer(1, 9)
    if way == "wild":
        return "block_wild", [rows, blocks * size], [1, blocks], [-1, size]
    return "block", [rows, blocks * size], [rows, blocks], [1, size]


def random_float_qdq(draw):
    tag, shape, scale_shape, block = layout(draw)
    attrs = format_attrs(draw) | {"shape": scale_shape, "block_size": block}
    attrs["calibrate"] = tag != "none"
    try:
        finfo = make_quantizer(attrs)._finfo
    except RuntimeError:
        return tag, "aimet.float_qdq", attrs, {"x": draw.normal(shape)}, EXACT
    if attrs["calibrate"] and finfo.exponent_bits + finfo.mantissa_bits >= 15:
        attrs |= {"analyzer": "minmax"} if draw.chance(0.7) else {}
    attrs["backward"] = draw.chance(0.9)
    x = draw.values(shape)
    if tag == "none":
        x = draw.values(shape, "normal") / draw.choice([1.0, 1.0, 100.0]) * draw.magnitude()
    inputs = {"x": x.clone(), "grad": draw.normal(shape)}
    if attrs["calibrate"]:
        inputs["calib"] = [draw.values(shape) for _ in range(draw.choice([0, 0, 1]))] + [x]
        if draw.chance(0.2):
            inputs["x"] = inputs["x"] * 3

    def compare(outputs):
        if "error" in outputs:
            return EXACT
        bits = finfo.exponent_bits, finfo.mantissa_bits, finfo.max
        scale = float(outputs["scale"].max())
        return loose(*bits, scale, 0.97 if tag != "none" else 1.0)

    return tag, "aimet.float_qdq", attrs, inputs, compare


def random_finfo(draw):
    attrs = {"exponent_bits": draw.integer(1, 8), "mantissa_bits": draw.integer(0, 12)}
    attrs |= {"finite": draw.chance(0.3), "unsigned_zero": draw.chance(0.3)}
    return "", "aimet.finfo", attrs, {}, EXACT | {"rtol": 0}


def random_fake_cast(draw):
    bits = draw.choice([(2, 1), (3, 2), (4, 3), (5, 2), (3, 4), (2, 3), (4, 7)])
    attrs = {"exponent_bits": bits[0], "mantissa_bits": bits[1], "finite": draw.chance(0.6)}
    shape = draw.sizes(2, 1, 20)
    rows = draw.choice([[], [], [shape[0], 1], [shape[1]]])
    maxval = draw.normal(rows).abs() * draw.magnitude() + 1e-4
    if draw.chance(0.3):
        maxval = torch.full(rows, draw.choice([1.0, 2.0, 6.0, 240.0, 448.0]))
    x = draw.values(shape, draw.choice(["normal", "outlier", "sparse", "negative_zero"]))
    x = x / (x.abs().max() + 1e-9) * float(maxval.max()) * draw.choice([1, 2, 15])
    if draw.chance(0.2):
        x.view(-1)[0] = float("inf")
    largest = float(maxval.max())
    compare = loose(*bits, largest, 1.0, 0.96)
    return "", "aimet.fake_cast_to_ieee_float", attrs, {"x": x, "maxval": maxval}, compare


def random_mxfp4(draw):
    size = draw.choice([8, 16, 32])
    shape = draw.sizes(2, 1, 8)
    whole = [shape[0], shape[1] * size]
    x = draw.values(whole)
    attrs = {"shape": shape, "block_size": [1, size]}
    calib = [draw.values(whole)] if draw.chance(0.2) else []
    return "", "aimet.mxfp4_qdq", attrs, {"calib": [*calib, x], "x": x.clone()}, EXACT


def random_float_encoding(draw):
    shape = draw.sizes(2, 1, 16)
    dtype = draw.choice(DTYPES[2:])
    scale_shape = draw.choice([[], [], [shape[0], 1], [1], [shape[1]]])
    scale = draw.normal(scale_shape).abs() * 0.02 + 1e-3
    x = draw.normal(shape, 3.0)
    if draw.chance(0.3):
        x = x * 100
    return "", "aimet.float_encoding", {"dtype": dtype}, {"x": x, "scale": scale}, EXACT


MAKERS = (
    [random_float_qdq] * 8 + [random_finfo, random_fake_cast, random_fake_cast]
    + [random_mxfp4] * 2 + [random_float_encoding]
)  # fmt: skip


def random_case(draw):
    return draw.choice(MAKERS)(draw)
