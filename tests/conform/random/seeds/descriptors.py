"""Random cases of the descriptors of pytorch-quantization and ModelOpt."""

import ast
import pathlib
import sys

import numpy
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "vendor"))

from modelopt.torch.quantization.config import QuantizerAttributeConfig  # noqa: E402
from pytorch_quantization.tensor_quant import ScaledQuantDescriptor  # noqa: E402

SOURCE = (
    "pytorch-quantization 2.1.3 (pytq.*), nvidia-modelopt 0.13.0 (modelopt.descriptor),"
    " nvidia-modelopt 0.47.0 (modelopt.config)"
)
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}


def old_modelopt_descriptor():
    """The class alone: its module wants CUDA and the packages of its time."""
    text = (HERE / "vendor" / "modelopt_0_13" / "tensor_quant.py").read_text()
    found = [n for n in ast.parse(text).body if getattr(n, "name", "") == "ScaledQuantDescriptor"]
    names = {"np": numpy, "torch": torch}
    exec(compile(ast.Module(found, []), "tensor_quant.py", "exec"), names)  # noqa: S102
    return names["ScaledQuantDescriptor"]


OldDescriptor = old_modelopt_descriptor()


# What the packages give --------------------------------------------------------------------------


def from_json(value):
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if isinstance(value, dict) and "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    if isinstance(value, dict):
        return {from_json(k): from_json(v) for k, v in value["dict"]}
    return value


def to_json(value):
    if isinstance(value, dict):
        return {"dict": [[to_json(k), to_json(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [to_json(v) for v in value]}
    if isinstance(value, list):
        return [to_json(v) for v in value]
    if hasattr(value, "model_dump"):
        return to_json(value.model_dump())
    return value


def run_pytq(attrs, inputs):
    descriptor = ScaledQuantDescriptor(**from_json(attrs["kwargs"]))
    text = descriptor.to_yaml()
    back = ScaledQuantDescriptor.from_yaml(text)
    outputs = {"dict": to_json(descriptor.dict()), "yaml": text, "str": str(descriptor)}
    amax = descriptor.amax
    if amax is not None and amax.ndim:
        del outputs["str"]  # in numpy's own form
        same = back.dict() == descriptor.dict()
        same &= back._narrow_range == descriptor._narrow_range
        same &= back._calib_method == descriptor._calib_method
        outputs["roundtrip_equal"] = bool(same)
    else:
        outputs["roundtrip_equal"] = bool(back == descriptor)
    return outputs | {"from_yaml": to_json(back.dict())}


def run_modelopt(attrs, inputs):
    descriptor = OldDescriptor(**from_json(attrs["kwargs"]))
    outputs = {"dict": to_json(descriptor.dict()), "str": str(descriptor)}
    if descriptor.amax is not None and descriptor.amax.ndim:
        del outputs["str"]
    blocks = OldDescriptor.get_block_quant_axes_and_sizes(descriptor.block_sizes)
    return outputs | {"block_axes": to_json(blocks)}


def run_equal(attrs, inputs):
    a, b = (ScaledQuantDescriptor(**from_json(attrs[n])) for n in ("a", "b"))
    return {"equal": bool(a == b)}


def run_config(attrs, inputs):
    config = QuantizerAttributeConfig(**from_json(attrs["kwargs"]))
    dump = config.model_dump()
    set_fields = config.model_dump(exclude_unset=True)
    back = QuantizerAttributeConfig(**dump)
    return {"dict": to_json(dump), "set_fields": to_json(set_fields),
            "roundtrip_equal": bool(back == config)}  # fmt: skip


OPS = {
    "pytq.descriptor": run_pytq,
    "modelopt.descriptor": run_modelopt,
    "pytq.descriptor_eq": run_equal,
    "modelopt.config": run_config,
}

# Random cases ------------------------------------------------------------------------------------


def random_kwargs(draw):
    """Those of either ScaledQuantDescriptor; a few are wrong."""
    number = lambda: float(numpy.float32(draw.uniform(0.1, 9)))  # noqa: E731
    choices = {
        "num_bits": lambda: draw.choice([2, 4, 6, 8, 12, 16, 0, -3, 2.5, "4", True]),
        "name": lambda: draw.choice(["w", "act", "conv1.weight", "", None, 4, "a b", "yes", "1"]),
        "fake_quant": lambda: draw.chance(0.5),
        "axis": lambda: draw.choice([(0,), (1,), (0, 1), (-1,), (0, 2), None]),
        "amax": lambda: draw.choice(
            [number(), 0.1, 127.0, [number(), 2.0], [[1.0], [0.25]], 3, "x", 1e-8, 1e10, []]
        ),
        "learn_amax": lambda: draw.chance(0.5),
        "scale_amax": lambda: draw.choice([0.9, 1.5, 2.0, 0.0, round(draw.uniform(0.1, 2), 3)]),
        "calib_method": lambda: draw.choice(["max", "histogram"]),
        "unsigned": lambda: draw.chance(0.5),
        "narrow_range": lambda: draw.chance(0.5),
    }
    names = [n for n in choices if draw.chance(0.3)]
    return {n: choices[n]() for n in names}


def random_pytq(draw):
    kwargs = random_kwargs(draw)
    if draw.chance(0.03):
        kwargs["bits"] = 4
    return "", "pytq.descriptor", {"kwargs": to_json(kwargs)}, {}, EXACT


def random_modelopt(draw):
    kwargs = random_kwargs(draw)
    if draw.chance(0.3):
        kwargs["num_bits"] = draw.choice([(4, 3), (2, 1), (5, 2), (8, 0)])
    if draw.chance(0.5):
        size = draw.choice([4, 16, 32, 128, 0, -1, 2.0])
        blocks = {draw.choice([-1, -1, 0, 1, "x"]): size}
        if draw.chance(0.3):
            blocks[-2] = 8
        if draw.chance(0.5):
            blocks["type"] = draw.choice(["dynamic", "static"])
        if draw.chance(0.5):
            blocks["scale_bits"] = draw.choice([(4, 3), 8, (8, 0)])
        if draw.chance(0.2):
            blocks["scale_block_sizes"] = {-1: 256}
        kwargs["block_sizes"] = blocks
        if draw.chance(0.8):
            kwargs.pop("axis", None)
    return "", "modelopt.descriptor", {"kwargs": to_json(kwargs)}, {}, EXACT


def random_equal(draw):
    while True:
        a, b = random_kwargs(draw), random_kwargs(draw)
        for kwargs in (a, b):
            kwargs.pop("learn_amax", None)
            if isinstance(kwargs.get("amax", 1.0), (list, int, str)):
                kwargs.pop("amax")
            kwargs["num_bits"] = draw.choice([4, 8])
            if not isinstance(kwargs.get("name"), str):
                kwargs.pop("name", None)
        if draw.chance(0.5):
            b = dict(a)
        if draw.chance(0.3):
            b["narrow_range"] = True
        return "", "pytq.descriptor_eq", {"a": to_json(a), "b": to_json(b)}, {}, EXACT


def random_config(draw):
    block = lambda: {  # noqa: E731
        draw.choice([-1, -1, -2, 0]): draw.choice([16, 32, 128, None, 0, -4]),
    }
    choices = {
        "enable": lambda: draw.chance(0.6),
        "num_bits": lambda: draw.choice(
            [2, 4, 8, 16, 1, 0, -1, (4, 3), (2, 1), (5, 2), (1, 2), (3, 2), (2, 3), (0, 3), (3, 0),
             (6, 1), (4, 3, 1), "8", 4.5, None]
        ),
        "effective_bits": lambda: draw.choice([4.5, 16, 16.5, 0.0, -1.0, 8, None]),
        "axis": lambda: draw.choice([None, 0, 1, -1, (0,), (0, 1), (0, -1), "0"]),
        "fake_quant": lambda: draw.chance(0.5),
        "unsigned": lambda: draw.chance(0.5),
        "narrow_range": lambda: draw.chance(0.5),
        "learn_amax": lambda: draw.chance(0.2),
        "type": lambda: draw.choice(["static", "dynamic", "other"]),
        "bias": lambda: draw.choice(
            [None, {-1: None}, {-1: None, "type": "dynamic"}, {-1: None, "method": "mean"},
             {"type": "static"}, {-1: None, "type": "x"}, {-1: None, "method": "median"},
             {-1: None, -3: None, "type": "static", "method": "max_min"}, {"x": 1}]
        ),
        "trt_high_precision_dtype": lambda: draw.choice(["Float", "Half", "BFloat16", "Double"]),
        "calibrator": lambda: draw.choice(["max", "histogram", "entropy"]),
        "rotate": lambda: draw.choice(
            [True, False, {"enable": True}, {"enable": True, "rotate_fp32": True},
             {"enable": True, "block_size": 16}, {"enable": True, "block_size": 0},
             {"enable": False, "mode": "rotate"}, {"mode": "rotate_back", "enable": True},
             {"enable": True, "mode": "x"}, {"foo": 1}]
        ),
        "pass_through_bwd": lambda: draw.chance(0.5),
        "backend": lambda: draw.choice([None, "mine"]),
        "backend_extra_args": lambda: draw.choice([None, {"a": 1}]),
        "use_constant_amax": lambda: draw.chance(0.5),
        "constant_amax": lambda: draw.choice([None, 3.0, 1, 0.0, -2.0]),
    }
    kwargs = {n: make() for n, make in choices.items() if draw.chance(0.13)}
    if draw.chance(0.45):
        blocks = block()
        if draw.chance(0.5):
            blocks["type"] = draw.choice(["dynamic", "dynamic", "static", "x"])
        if draw.chance(0.5):
            blocks["scale_bits"] = draw.choice([(4, 3), (8, 0), 8])
        if draw.chance(0.15):
            blocks["scale_block_sizes"] = {-1: 256}
        if draw.chance(0.1):
            blocks["four_over_six"] = True
        if draw.chance(0.1):
            blocks[draw.choice([-2, "foo"])] = 16
        kwargs["block_sizes"] = blocks
        if draw.chance(0.8):
            kwargs.pop("axis", None)
    if draw.chance(0.03):
        kwargs["bits"] = 4
    return "", "modelopt.config", {"kwargs": to_json(kwargs)}, {}, EXACT


MAKERS = [random_pytq] * 3 + [random_modelopt] * 3 + [random_equal] + [random_config] * 5


def random_case(draw):
    return draw.choice(MAKERS)(draw)
