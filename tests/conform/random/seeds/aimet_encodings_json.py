"""Random cases of AIMET's encodings as JSON."""

import torch
from aimet_torch.quantization.affine.encoding import AffineEncoding, GroupedBlockEncoding
from aimet_torch.quantization.float._finfo import _finfo
from aimet_torch.quantization.float.encoding import (
    FloatEncoding,
    _MXFP4Encoding,
    _NVFP4Encoding,
)

SOURCE = "aimet-torch 2.42.0"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}
LOOSE = EXACT | {"rtol": 2e-06}
VERSIONS = ("0.6.1", "1.0.0", "2.0.0", "2.1.0")


# What the package gives --------------------------------------------------------------------------


def affine_encoding(attrs, inputs, block):
    return AffineEncoding(
        inputs["scale"], inputs["offset"], qmin=attrs["qmin"], qmax=attrs["qmax"],
        symmetry=attrs["symmetric"], block_size=block,
        zero_point_shift=attrs.get("zero_point_shift"),
    )  # fmt: skip


def grouped_encoding(attrs, inputs, block):
    return GroupedBlockEncoding(
        inputs["scale"], inputs["offset"], attrs["bitwidth"], attrs["signed"], attrs["symmetric"],
        block, tuple(attrs["block_grouping"]), attrs["decompressed_bw"],
        inputs["per_channel_scale"],
    )  # fmt: skip


def float_encoding(attrs, inputs, block):
    e, m, finite, unsigned_zero = _finfo.from_torch_dtype(getattr(torch, attrs["dtype"]))
    return FloatEncoding(m, e, finite, unsigned_zero, inputs["scale"], block)


KINDS = {
    "affine": affine_encoding,
    "grouped_block": grouped_encoding,
    "float": float_encoding,
    "mxfp4": lambda attrs, inputs, block: _MXFP4Encoding(inputs["scale"], block),
    "nvfp4": lambda attrs, inputs, block: _NVFP4Encoding(
        inputs["scale"], inputs["meta_scale"], block
    ),
}


def run_to_json(attrs, inputs):
    block = attrs.get("block_size")
    block = None if block is None else tuple(block)
    encoding = KINDS[attrs.get("kind", "affine")](attrs, inputs, block)
    if attrs.get("input_shape") is not None:
        encoding._hint_input_shape(tuple(attrs["input_shape"]))
    return {"encoding": encoding.to_qnn_encoding_dict(attrs["version"])}


def run_from_json(attrs, inputs):
    encoding = AffineEncoding._from_qnn_encoding_dict(attrs["encoding"])
    outputs = {"scale": encoding.scale, "offset": encoding.offset}
    outputs |= {"qmin": encoding.qmin, "qmax": encoding.qmax}
    return outputs | {"symmetric": encoding.symmetry}


OPS = {"aimet.encoding_to_json": run_to_json, "aimet.encoding_from_json": run_from_json}

# Random cases ------------------------------------------------------------------------------------


def layout(draw):
    """(tag, shape of the scale, block size, shape of the input)."""
    rank = draw.choice([1, 2, 2, 2, 3, 4])
    shape = draw.sizes(rank, 1, 8)
    way = draw.choice(["tensor", "ones", "channel", "channel", "trailing", "block", "block", "wild"])
    if way == "tensor":
        return way, [], None, shape
    if way == "ones":
        return way, [1] * rank, None, shape
    axis = draw.integer(0, rank - 1)
    if way == "channel":
        return f"channel{axis}", [n if d == axis else 1 for d, n in enumerate(shape)], None, shape
    if way == "trailing":
        return way, shape[-1:] + [1] * draw.integer(0, 0), None, shape
    shape = shape if rank > 1 else [draw.integer(1, 8), *shape]
    axis = draw.integer(0, len(shape) - 1)
    blocks, size = draw.integer(1, 4), draw.choice([1, 2, 4, 8, 16])
    channel = draw.choice([d for d in range(len(shape)) if d != axis])
    scale = [blocks if d == axis else n if d == channel else 1 for d, n in enumerate(shape)]
    block = [size if d == axis else 1 if d == channel else n for d, n in enumerate(shape)]
    shape[axis] = blocks * size
    if way == "wild":
        block = [-1 if draw.chance(0.4) else b for b in block]
    if draw.chance(0.05):
        scale = [n if draw.chance(0.5) else 1 for n in shape]
        block = [-1] * len(shape)
    return "block", scale, block, shape


def random_affine(draw):
    tag, scale_shape, block, shape = layout(draw)
    attrs = {"version": draw.choice(VERSIONS)}
    bits = draw.choice([2, 3, 4, 4, 5, 6, 8, 8, 8, 12, 16])
    signed, symmetric = draw.chance(0.5), draw.chance(0.5)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if draw.chance(0.1):
        low, high = draw.choice([(-127, 127), (-7, 7), (0, 100), (1, 16), (-5, 10), (0, 14)])
    attrs |= {"qmin": low, "qmax": high, "symmetric": symmetric, "block_size": block}
    offset = torch.randint(-high, 1 - low, scale_shape, generator=draw.generator).float()
    if symmetric:
        offset = torch.full(scale_shape, float(-round((low + high) / 2)))
    elif draw.chance(0.3):
        offset = torch.zeros(scale_shape)
    if draw.chance(0.1):
        attrs["zero_point_shift"] = 0.5
    if draw.chance(0.97):
        attrs["input_shape"] = shape
    if draw.chance(0.01):
        attrs["version"] = draw.choice(["3.0.0", "0.6.0", "2.0"])
    scale = draw.normal(scale_shape).abs() * 0.05 * draw.magnitude() + 1e-6
    return tag, "aimet.encoding_to_json", attrs, {"scale": scale, "offset": offset}, EXACT


def random_grouped(draw):
    rank = draw.choice([2, 2, 2, 3, 4])
    shape = [draw.integer(1, 6), draw.choice([1, 2, 4, 6])] + [1] * (rank - 2)
    block = [1, draw.choice([1, 2, 4])] + [1] * (rank - 2)
    if draw.chance(0.2):  # transposed: the blocks lie along the first axis
        shape[:2], block[:2] = shape[1::-1], block[1::-1]
    groups = [1 if b == 1 and d != 1 else draw.choice([1, -1, n]) for d, (n, b) in
              enumerate(zip(shape, block, strict=True))]  # fmt: skip
    if shape[1] % 2 == 0 and draw.chance(0.4):
        groups[1] = 2
    bits, more = draw.choice([2, 3, 4, 4, 8]), draw.integer(1, 4)
    channels = [1 if g == -1 else n // g for n, g in zip(shape, groups, strict=True)]
    per_channel = draw.normal(channels).abs() * 0.05 + 1e-3
    whole = torch.randint(1, 2**more + 1, shape, generator=draw.generator).float()
    spread = per_channel
    for d, (n, c) in enumerate(zip(shape, channels, strict=True)):
        spread = spread.repeat_interleave(n // c, dim=d)
    attrs = {"version": draw.choice(VERSIONS), "kind": "grouped_block", "bitwidth": bits}
    attrs |= {"decompressed_bw": bits + more, "block_grouping": groups, "block_size": block}
    attrs["input_shape"] = [n * b for n, b in zip(shape, block, strict=True)]
    attrs |= {"signed": True, "symmetric": True}
    inputs = {"scale": whole * spread, "offset": torch.zeros(shape)}
    inputs["per_channel_scale"] = per_channel
    return "lpbq", "aimet.encoding_to_json", attrs, inputs, LOOSE


def random_float(draw):
    tag, scale_shape, block, shape = layout(draw)
    dtypes = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    dtype = draw.choice([*dtypes, "float8_e4m3fnuz", "float8_e5m2fnuz"])
    attrs = {"version": draw.choice(VERSIONS), "kind": "float", "dtype": dtype}
    attrs["input_shape"] = shape
    if block is not None:
        attrs["block_size"] = block
    scale = draw.normal(scale_shape).abs() * 0.05 + 1e-6
    if "8" not in dtype and draw.chance(0.7):
        scale = torch.ones(scale_shape)
    return tag, "aimet.encoding_to_json", attrs, {"scale": scale}, LOOSE


def random_fp4(draw):
    kind = draw.choice(["mxfp4", "nvfp4"])
    rows, blocks, size = draw.integer(1, 5), draw.integer(1, 6), draw.choice([8, 16, 32])
    attrs = {"version": draw.choice([*VERSIONS, "2.1.0", "2.1.0"]), "kind": kind}
    attrs |= {"block_size": [1, size], "input_shape": [rows, blocks * size]}
    if kind == "mxfp4":
        k = torch.randint(-20, 20, [rows, blocks], generator=draw.generator)
        inputs = {"scale": torch.ldexp(torch.ones(rows, blocks), k)}
    else:
        meta = torch.tensor(draw.choice([0.01, 1.0, 0.125, 3e-4]))
        fp8 = (draw.normal([rows, blocks]).abs() * 100 + 0.5).to(torch.float8_e4m3fn).float()
        inputs = {"scale": fp8 * meta, "meta_scale": meta}
    return kind, "aimet.encoding_to_json", attrs, inputs, EXACT


def random_from_json(draw):
    bits = draw.choice([2, 3, 4, 5, 8, 8, 12, 16])
    signed = draw.chance(0.5)
    encoding = {"output_dtype": f"{'' if signed else 'u'}int{bits}"}
    encoding["y_scale"] = float(draw.normal([]).abs() * 0.05 + 1e-4)
    if draw.chance(0.6):
        low = -(2 ** (bits - 1)) if signed else 0
        encoding["y_zero_point"] = draw.integer(low, low + 2**bits - 1)
    if draw.chance(0.08):
        encoding |= {"axis": 0, "y_scale": [0.1, 0.2]}
        encoding.pop("y_zero_point", None)
    return "", "aimet.encoding_from_json", {"encoding": encoding}, {}, EXACT


MAKERS = (
    [random_affine] * 6 + [random_grouped] * 2 + [random_float] * 2 + [random_fp4]
    + [random_from_json]
)  # fmt: skip


def random_case(draw):
    return draw.choice(MAKERS)(draw)
