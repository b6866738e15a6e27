"""Random cases of AIMET's affine quantizers."""

import torch
from aimet_torch.quantization import affine
from aimet_torch.quantization.affine.encoding import AffineEncoding
from aimet_torch.quantization.tensor import DequantizedTensor, QuantizedTensor

from golden import Skip, dtype_name

SOURCE = "aimet-torch 2.42.0, torch_builtins backend, CPU"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}


def plain(tensor):
    return tensor.detach().as_subclass(torch.Tensor)


# What the package gives --------------------------------------------------------------------------


def grid_arguments(attrs):
    if "qmin" in attrs:
        return {"qmin": attrs["qmin"], "qmax": attrs["qmax"]}
    return {"bitwidth": attrs["bitwidth"], "signed": attrs.get("signed", False)}


def block_of(attrs):
    block = attrs.get("block_size")
    return None if block is None else tuple(block)


def run_function(function, takes_grid):
    def run(attrs, inputs):
        backward = attrs.get("backward", False)
        names = ("x", "scale", "offset")
        wanted = backward or attrs.get("kernel") == "divide"
        leaves = [inputs[name].clone().requires_grad_(wanted) for name in names]
        options = {"block_size": block_of(attrs)} | (grid_arguments(attrs) if takes_grid else {})
        with torch.set_grad_enabled(wanted):
            y = function(*leaves, **options)
        outputs = {"y": y.detach()}
        if backward:
            y.backward(inputs["grad"])
            outputs |= {
                f"grad_{n}": leaf.grad for n, leaf in zip(names, leaves, strict=True)
            }
        return outputs

    return run


def make_quantizer(attrs):
    attrs = dict(attrs)
    kind = getattr(affine, attrs.get("kind") or "QuantizeDequantize")
    names = ["symmetric", "zero_point_shift", "decompressed_bw", "block_grouping"]
    names += ["qmin", "qmax"] if attrs.get("qmin") is not None else ["bitwidth"]
    options = {n: attrs[n] for n in names if attrs.get(n) is not None}
    if "block_grouping" in options:
        options["block_grouping"] = tuple(options["block_grouping"])
    return kind(tuple(attrs.get("shape", ())), block_size=block_of(attrs), **options)


def follow_kernel(attrs, quantizer):
    """Parameters that ask for no gradient let AIMET use torch's fake quantization."""
    quantizer.requires_grad_(attrs.get("kernel") == "divide")


def parameters(quantizer):
    values = {n: getattr(quantizer, f"get_{n}")() for n in ("scale", "offset", "min", "max")}
    return {n: plain(v) for n, v in values.items() if v is not None}


def calibrate(quantizer, batches):
    last = None
    with quantizer.compute_encodings():
        for batch in batches:
            last = quantizer(batch)
    return last


def run_quantizer(attrs, inputs):
    backward = attrs.get("backward", False)
    quantizer = make_quantizer(attrs)
    follow_kernel(attrs, quantizer)
    outputs = {}
    if inputs.get("calib"):
        outputs["y_calib_last"] = plain(calibrate(quantizer, inputs["calib"]))
    x = inputs["x"].clone().requires_grad_(backward)
    y = quantizer(x)
    outputs |= parameters(quantizer)
    outputs |= {f"param_{n}": plain(p) for n, p in quantizer.named_parameters()}
    outputs |= {"y": plain(y), "q": plain(y.quantize()), "dq": plain(y.dequantize())}
    outputs |= {"q_int": plain(y.quantized_repr()), "granularity": y.encoding.granularity}
    outputs |= {"qmin": quantizer.qmin, "qmax": quantizer.qmax, "repr": repr(quantizer)}
    try:
        outputs |= {"bitwidth": quantizer.bitwidth, "signed": quantizer.signed}
    except RuntimeError:
        pass  # undefined for this grid
    if backward:
        y.backward(inputs["grad"])
        outputs["grad_x"] = x.grad
        outputs |= {f"grad_{n}": p.grad for n, p in quantizer.named_parameters()}
    return outputs


def run_set_range(attrs, inputs):
    quantizer = make_quantizer(attrs)
    if "parametrization" in attrs:
        quantizer._reparametrize_to_scale_offset()
    follow_kernel(attrs, quantizer)
    quantizer.set_range(inputs.get("range_min"), inputs.get("range_max"))
    return parameters(quantizer) | {"y": plain(quantizer(inputs["x"]))}


def run_scale_offset(attrs, inputs):
    quantizer = make_quantizer(attrs)
    quantizer.set_range(torch.tensor(attrs["range_min"]), torch.tensor(attrs["range_max"]))
    quantizer._reparametrize_to_scale_offset()
    follow_kernel(attrs, quantizer)
    x = inputs["x"].clone().requires_grad_()
    y = quantizer(x)
    y.backward(inputs["grad"])
    outputs = parameters(quantizer) | {"y": plain(y), "grad_x": x.grad}
    return outputs | {f"grad_{n}": p.grad for n, p in quantizer.named_parameters()}


def run_new(attrs, inputs):
    make_quantizer(attrs)
    raise Skip("constructed without failing")


def run_grid(attrs, inputs):
    encoding = AffineEncoding(
        torch.tensor(1.0), torch.tensor(0.0), attrs["qmin"], attrs["qmax"], False
    )
    if "get" in attrs:
        return {attrs["get"]: getattr(encoding, attrs["get"])}
    outputs = {"dtype": str(encoding.dtype).split(".")[1], "num_steps": encoding.num_steps}
    outputs["mapping"] = encoding.mapping
    for name in ("bitwidth", "signed"):
        try:
            outputs[name] = getattr(encoding, name)
        except RuntimeError:
            outputs[name] = None
    return outputs


def run_grouped_block(attrs, inputs):
    quantizer = make_quantizer({**attrs, "kind": "GroupedBlockQuantizeDequantize"})
    calibrate(quantizer, inputs["calib"])
    y = quantizer(inputs["x"])
    return {
        "scale": plain(quantizer.get_scale()),
        "per_channel_scale": plain(y.encoding.per_channel_scale),
        "per_block_int_scale": plain(y.encoding.per_block_int_scale),
        "y": plain(y),
    }


def add_inplace(x):
    changed = x.detach().clone()
    changed += 1
    return changed


FUNCTIONS = {
    "mul_2": lambda x: x * 2,
    "mul_neg3": lambda x: x * -3.0,
    "div_4": lambda x: x / 4,
    "div_neg2": lambda x: x / -2.0,
    "rmul_half": lambda x: 0.5 * x,
    "reshape": lambda x: x.reshape(-1),
    "reshape_then_quantize": lambda x: x.reshape(-1).quantize(),
    "transpose": lambda x: x.transpose(0, 1),
    "slice": lambda x: x[1:],
    "add_1": lambda x: x + 1,
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "half": lambda x: x.half(),
    "int": lambda x: x.int(),
    "neg": lambda x: -x,
    "relu": torch.relu,
    "mul_tensor": lambda x: x * torch.ones(x.shape),
    "add_inplace": add_inplace,
}


def run_qtensor_fn(attrs, inputs):
    quantizer = make_quantizer(attrs)
    follow_kernel(attrs, quantizer)
    low, high = (torch.tensor(attrs[n]).view(quantizer.shape) for n in ("range_min", "range_max"))
    quantizer.set_range(low, high)
    y = FUNCTIONS[attrs["fn"]](quantizer(inputs["x"]))
    kinds = {QuantizedTensor: "QuantizedTensor", DequantizedTensor: "DequantizedTensor"}
    encoding = getattr(y, "encoding", None)
    outputs = {"type": kinds.get(type(y), "Tensor"), "has_encoding": encoding is not None}
    outputs["y"] = plain(y)
    if encoding is not None:
        outputs |= {"scale": plain(encoding.scale), "offset": plain(encoding.offset)}
    return outputs


OPS = {
    "aimet.quantize": run_function(affine.quantize, True),
    "aimet.quantize_dequantize": run_function(affine.quantize_dequantize, True),
    "aimet.dequantize": run_function(affine.dequantize, False),
    "aimet.quantizer": run_quantizer,
    "aimet.quantizer.set_range": run_set_range,
    "aimet.quantizer.scale_offset": run_scale_offset,
    "aimet.quantizer.new": run_new,
    "aimet.grid": run_grid,
    "aimet.grouped_block": run_grouped_block,
    "aimet.qtensor_fn": run_qtensor_fn,
}

# Random cases ------------------------------------------------------------------------------------


def grid_attrs(draw, flag, strict=False):
    """A grid as bits and sign (called `flag`) or as two ends; and these ends."""
    bits = draw.choice([2, 3, 4, 4, 5, 6, 7, 8, 8, 8, 10, 12, 16])
    signed = draw.chance(0.5)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    way = draw.integer(0, 4)
    if way < 2:
        return {"bitwidth": bits, flag: signed}, low, high
    if way == 2 and strict and signed and bits > 1:
        low += 1
    if way == 3 and strict:
        low, high = draw.integer(-40, 3), draw.integer(5, 60)
    return {"qmin": low, "qmax": high}, low, high


def layout(draw):
    """(tag, shape of x, shape of the scale, block size)."""
    rank = draw.choice([1, 2, 2, 3, 3, 4])
    shape = draw.sizes(rank, 1, 8)
    way = draw.choice(["tensor", "ones", "channel", "last", "block", "wild", "mixed", "axes"])
    if way == "tensor":
        return way, shape, [], None
    if way == "ones":
        return way, shape, [1] * draw.integer(1, rank), None
    axis = draw.integer(0, rank - 1)
    if way == "channel":
        scale = [n if d == axis else 1 for d, n in enumerate(shape)]
        return f"channel{axis}", shape, scale[axis if draw.chance(0.3) else 0 :], None
    if way == "last":
        return "channel_last", shape, [shape[-1]], None
    if way == "axes":
        return "axes", shape, [n if draw.chance(0.6) else 1 for n in shape], None
    scale = draw.sizes(draw.integer(1, rank), 1, 4)
    block = draw.sizes(len(scale), 1, 5)
    tail = [s * b for s, b in zip(scale, block, strict=True)]
    if way == "wild":
        block = [-1] * len(block)
    if way == "mixed":
        block = [-1 if draw.chance(0.5) else b for b in block]
    return f"block_{way}", shape[: rank - len(scale)] + tail, scale, block


def broken_layout(draw):
    """Layouts that do not fit, most of them."""
    tag, shape, scale, block = layout(draw)
    way = draw.integer(0, 3)
    if way == 0 and scale:
        scale = [n + 1 for n in scale]
    elif way == 1 and block:
        block = block[1:] or [2, 2]
    elif way == 2 and block:
        shape = [n + 1 for n in shape]
    else:
        scale = [2] * (len(shape) + 1)
    return tag, shape, scale, block


def random_function(draw):
    op = draw.choice(["aimet.quantize", "aimet.quantize_dequantize"] * 2 + ["aimet.dequantize"])
    broken = draw.chance(0.08)
    tag, shape, scale_shape, block = broken_layout(draw) if broken else layout(draw)
    attrs, low, high = grid_attrs(draw, "signed", strict=True)
    if op == "aimet.dequantize":
        attrs = {}
    backward = draw.chance(0.6)
    attrs["block_size"] = block
    magnitude = draw.magnitude()
    step = magnitude / max(high - low, 1) * draw.uniform(0.5, 4)
    if draw.chance(0.3):
        step = draw.power_of_two(-12, 3)
        magnitude = step * (high - low)
    scale = torch.full(scale_shape, step) * (1 + draw.normal(scale_shape).abs() * draw.choice([0, 1]))
    offset = -torch.randint(low, high + 1, scale_shape, generator=draw.generator).float()
    if draw.chance(0.4):
        offset = torch.zeros(scale_shape)
    if draw.chance(0.1):
        offset = offset + draw.integer(-300, 300)
    if op == "aimet.dequantize":
        x = torch.randint(low, high + 1, shape, generator=draw.generator).float()
    elif draw.chance(0.3):
        x = draw.ties(shape, step, low, high)
    else:
        x = draw.values(shape, draw.choice(["normal", "negative", "zero_row", "shifted"]))
        x = x / (x.abs().max() + 1e-12) * magnitude * 1.5
    dtype = draw.choice([torch.float32] * 8 + [torch.float16, torch.bfloat16])
    inputs = {"x": x.to(dtype), "scale": scale.to(dtype), "offset": offset.to(dtype)}
    if dtype != torch.float32:
        backward = False
    if op != "aimet.quantize" and op != "aimet.dequantize":
        fast = not backward and block is None
        attrs["kernel"] = "inv_multiply" if fast else "divide"
    if not backward:
        return tag, op, attrs, inputs, EXACT
    attrs["backward"] = True
    inputs["grad"] = draw.normal(shape)
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 3e-05}
    return tag, op, attrs, inputs, compare | {"atol": 2e-05 * max(1.0, magnitude)}


def random_quantizer(draw):
    tag, shape, scale_shape, block = broken_layout(draw) if draw.chance(0.05) else layout(draw)
    while tag == "axes":
        tag, shape, scale_shape, block = layout(draw)
    attrs = {"kind": draw.choice(["Quantize", "QuantizeDequantize"]), "shape": scale_shape}
    attrs["block_size"] = block
    grid, low, high = grid_attrs(draw, "signed", strict=True)
    grid.pop("signed", None)
    attrs["symmetric"] = draw.chance(0.5)
    attrs |= grid
    backward = draw.chance(0.75)
    attrs["kernel"] = "divide" if backward or block is not None else "inv_multiply"
    batches = [draw.values(shape) for _ in range(draw.integer(1, 3))]
    x = batches[-1] if draw.chance(0.5) else draw.values(shape)
    inputs = {"calib": batches, "x": x.clone()}
    if not backward:
        return f"{tag}_nograd", "aimet.quantizer", attrs, inputs, EXACT
    attrs["backward"] = True
    inputs["grad"] = draw.normal(shape)
    atol = 1e-6 * float(inputs["grad"].abs().sum()) + 1e-5
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-05, "atol": atol}
    return tag, "aimet.quantizer", attrs, inputs, compare


def random_set_range(draw):
    attrs = {"kind": "QuantizeDequantize", "shape": [], "bitwidth": draw.integer(2, 16)}
    attrs["symmetric"] = draw.chance(0.5)
    attrs["zero_point_shift"] = 0.5 if draw.chance(0.3) else 0.0
    attrs["kernel"] = "divide"
    low, high = draw.uniform(-4, 2), draw.uniform(-2, 4)
    if draw.chance(0.1):
        low, high = 0.0, 0.0
    inputs = {"range_min": torch.tensor(low), "range_max": torch.tensor(high)}
    if draw.chance(0.15):
        attrs["parametrization"] = "scale_offset"
    if draw.chance(0.1):
        inputs.pop(draw.choice(["range_min", "range_max"]))
    inputs["x"] = draw.normal(draw.sizes(2, 1, 12), 3.0)
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-06, "atol": 1e-06}
    return "", "aimet.quantizer.set_range", attrs, inputs, compare


def random_scale_offset(draw):
    attrs = {"bitwidth": draw.integer(2, 12), "symmetric": draw.chance(0.5)}
    attrs |= {"range_min": draw.uniform(-5, 0.5), "range_max": draw.uniform(0.6, 5)}
    attrs |= {"kernel": "divide", "backward": True}
    shape = draw.sizes(2, 1, 12)
    inputs = {"x": draw.normal(shape, 2.0), "grad": draw.normal(shape)}
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-05, "atol": 2e-05}
    return "", "aimet.quantizer.scale_offset", attrs, inputs, compare


def random_grid(draw):
    low, high = grid_attrs(draw, "signed", strict=True)[1:]
    if draw.chance(0.4):
        low, high = draw.integer(-70000, 10), draw.integer(0, 70000)
    attrs = {"qmin": low, "qmax": high}
    if draw.chance(0.3):
        attrs["get"] = "bitwidth"
    return "", "aimet.grid", attrs, {}, EXACT


def random_grouped_block(draw):
    rank = draw.choice([2, 2, 2, 3])
    shape = [draw.integer(1, 6)] + [draw.choice([1, 2, 4, 6]) for _ in range(rank - 1)]
    block = [1 if d == 0 else draw.integer(1, 8) for d in range(rank)]
    groups = [draw.choice([1, -1] + ([2] if n % 2 == 0 else [])) for n in shape]
    bits = draw.choice([2, 3, 4, 4, 5])
    attrs = {"shape": shape, "bitwidth": bits, "decompressed_bw": bits + draw.integer(0, 4)}
    attrs |= {"block_size": block, "block_grouping": groups, "symmetric": True}
    size = [s * b for s, b in zip(shape, block, strict=True)]
    if draw.chance(0.3):
        attrs["block_size"] = [-1 if draw.chance(0.5) else b for b in block]
    inputs = {"calib": [draw.values(size)], "x": draw.values(size)}
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-06, "atol": 1e-07}
    return "", "aimet.grouped_block", attrs, inputs, compare


def random_qtensor_fn(draw):
    shape = draw.sizes(2, 2, 12)
    kind = draw.choice(["asymmetric", "symmetric", "strict_symmetric", "per_channel"])
    attrs = {"fn": draw.choice(FUNCTIONS)}
    bits = draw.integer(2, 10)
    half = 2 ** (bits - 1)
    scale_shape = [shape[0], 1] if kind == "per_channel" else []
    ends = draw.normal([shape[0] if kind == "per_channel" else 1]).abs() + 0.3
    low = -ends
    if kind == "asymmetric":
        attrs |= {"bitwidth": bits, "qmin": 0, "qmax": 2 * half - 1, "symmetric": False}
        low = -ends * draw.uniform(0.1, 2)
    else:
        strict = 1 if kind == "strict_symmetric" else 0
        attrs |= {"bitwidth": None if strict else bits, "qmin": strict - half}
        attrs |= {"qmax": half - 1, "symmetric": True}
    if attrs["qmin"] >= attrs["qmax"]:
        attrs["qmax"] = attrs["qmin"] + 2
    attrs |= {"range_min": low.tolist(), "range_max": ends.tolist(), "shape": scale_shape}
    attrs["kernel"] = "divide"
    compare = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-06, "atol": 1e-07}
    return kind, "aimet.qtensor_fn", attrs, {"x": draw.normal(shape)}, compare


def random_new(draw):
    attrs = {"kind": draw.choice(["Quantize", "QuantizeDequantize"]), "shape": []}
    way = draw.integer(0, 5)
    if way == 0:
        attrs |= {"qmin": draw.integer(0, 9), "qmax": draw.integer(-9, 0), "symmetric": True}
    elif way == 1:
        attrs |= {"bitwidth": draw.integer(2, 8)}
    elif way == 2:
        shift = draw.choice([0.25, 1.0, -0.5])
        attrs |= {"bitwidth": 8, "symmetric": True, "zero_point_shift": shift}
    elif way == 3:
        attrs |= {"kind": "Quantize", "bitwidth": 4, "symmetric": True, "zero_point_shift": 0.5}
    elif way == 4:
        attrs |= {"kind": "GroupedBlockQuantizeDequantize", "shape": [4, 6], "bitwidth": 4}
        attrs |= {"decompressed_bw": draw.integer(2, 8), "symmetric": draw.chance(0.5)}
        attrs["block_grouping"] = draw.choice([[1, 4], [3, 1], [1], [1, 1, 1], [1, -1]])
    else:
        attrs |= {"qmin": 0, "symmetric": True}
    return "", "aimet.quantizer.new", attrs, {}, EXACT


MAKERS = (
    [random_function] * 10 + [random_quantizer] * 8 + [random_set_range] * 2
    + [random_scale_offset, random_grid] + [random_grouped_block] * 2
    + [random_qtensor_fn] * 2 + [random_new]
)  # fmt: skip


def random_case(draw):
    return draw.choice(MAKERS)(draw)
