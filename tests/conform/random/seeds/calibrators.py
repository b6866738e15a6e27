"""Random cases of ModelOpt's calibrators."""

import pathlib
import sys
from unittest import mock

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "vendor"))

from modelopt.torch.quantization import tensor_quant  # noqa: E402
from modelopt.torch.quantization.calib.bias import BiasCalibrator  # noqa: E402
from modelopt.torch.quantization.calib.histogram import HistogramCalibrator  # noqa: E402
from modelopt.torch.quantization.calib.max import MaxCalibrator  # noqa: E402
from modelopt.torch.quantization.calib.mse import MseCalibrator  # noqa: E402
from pytorch_quantization.calib.histogram import (  # noqa: E402
    HistogramCalibrator as OldHistogramCalibrator,
)

from golden import Skip  # noqa: E402

SOURCE = (
    "nvidia-modelopt 0.47.0 calibrators; method mse of the histogram from pytorch-quantization"
    " 2.1.3; CPU"
)
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}


# What the packages give --------------------------------------------------------------------------


def axis_of(attrs):
    axis = attrs.get("axis")
    return tuple(axis) if isinstance(axis, list) else axis


def run_max(attrs, inputs):
    calibrator = MaxCalibrator(axis=axis_of(attrs))
    for batch in inputs["batches"]:
        calibrator.collect(batch)
    return {"amax": calibrator.compute_amax()}


def float_tensor(values):
    return torch.as_tensor(numpy.asarray(values)).float()


def run_histogram(attrs, inputs):
    names = ("num_bits", "unsigned", "num_bins", "skip_zeros", "torch_hist")
    options = {n: attrs[n] for n in names if n in attrs}
    method = attrs.get("method")
    kind = OldHistogramCalibrator if method == "mse" else HistogramCalibrator
    options = {"num_bits": 8, "unsigned": False, **options}
    calibrator = kind(axis=axis_of(attrs), **options)
    for batch in inputs["batches"]:
        calibrator.collect(batch)
    # The search for the least entropy alters the histogram of numpy.
    outputs = {"histogram": float_tensor(calibrator._calib_hist).clone()}
    outputs["bin_edges"] = float_tensor(calibrator._calib_bin_edges).clone()
    search = {n: attrs[n] for n in ("stride", "start_bin", "percentile") if n in attrs}
    with mock.patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
        amax = calibrator.compute_amax(method, **search)
    if amax is None or not torch.isfinite(torch.as_tensor(amax)).all():
        raise Skip("no finite amax")
    return {"amax": float_tensor(amax)} | outputs


def run_mse(attrs, inputs):
    names = ("step_size", "start_multiplier", "stop_multiplier")
    options = {n: attrs[n] for n in names if n in attrs}

    def quantize(x, amax):
        codes = attrs["num_bits"], False, attrs["narrow_range"]
        return tensor_quant.fake_tensor_quant(x, amax, None, *codes)

    function = quantize if "num_bits" in attrs else None
    amax = inputs.get("amax", torch.tensor(1.0))
    calibrator = MseCalibrator(amax, axis_of(attrs), quant_func=function, **options)
    for batch in inputs["batches"]:
        calibrator.collect(batch)
    best = calibrator.compute_amax()
    return {"amax": best, "losses": torch.stack(calibrator._losses_sum)}


def run_bias(attrs, inputs):
    calibrator = BiasCalibrator(attrs["method"], axis_of(attrs))
    for batch in inputs["batches"]:
        calibrator.collect(batch)
    return {"bias": calibrator.compute_bias()}


OPS = {
    "modelopt.calib.max": run_max,
    "modelopt.calib.histogram": run_histogram,
    "modelopt.calib.mse": run_mse,
    "modelopt.calib.bias": run_bias,
}

# Random cases ------------------------------------------------------------------------------------


def batches_of(draw, shape):
    return [draw.values(shape) for _ in range(draw.integer(1, 4))]


def random_axes(draw, rank):
    axis = draw.integer(-rank, rank - 1)
    way = draw.integer(0, 3)
    if way == 0:
        return None
    if way == 1:
        return axis
    return sorted({axis % rank, draw.integer(0, rank - 1)} if way == 2 else {axis})


def random_max(draw):
    shape = draw.sizes(draw.integer(2, 4), 1, 8)
    axis = random_axes(draw, len(shape))
    if axis is not None and draw.chance(0.2):
        axis = [0, -1]
    batches = batches_of(draw, shape)
    if draw.chance(0.06):
        batches[-1].view(-1)[0] = draw.choice([float("nan"), float("inf"), -float("inf")])
    if draw.chance(0.06):
        batches.append(draw.normal([n + 1 for n in shape]))
    return "", "modelopt.calib.max", {"axis": axis}, {"batches": batches}, EXACT | {"rtol": 0}


def histogram_batches(draw):
    shape = draw.choice([[64, 16], [32, 48], [256], [20, 30, 4]])
    spread = draw.magnitude()
    batches = []
    for _ in range(draw.choice([1, 2, 2, 3, 4])):
        x = draw.normal(shape) * spread * draw.choice([1, 1, 0.5, 1.7])
        x = x.clamp(min=0) if draw.chance(0.2) else x
        x = x.abs() if draw.chance(0.3) else x
        batches.append(draw._sparse(x) if draw.chance(0.15) else x)
    return batches


def random_histogram(draw):
    method = draw.choice(["percentile", "percentile", "entropy", "mse"])
    attrs = {"method": method, "num_bits": draw.choice([4, 6, 8]), "unsigned": draw.chance(0.4)}
    bins = [200, 300, 512, 2048] if method == "percentile" else [128, 200, 300, 512]
    attrs |= {"num_bins": draw.choice(bins), "skip_zeros": draw.chance(0.4)}
    attrs["torch_hist"] = draw.chance(0.6)
    if method == "percentile":
        attrs["percentile"] = draw.choice([0.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0])
    else:
        attrs |= {"stride": draw.choice([1, 2, 3, 7]), "start_bin": draw.choice([16, 32, 64, 100])}
    batches = histogram_batches(draw)
    if draw.chance(0.04):
        attrs |= draw.choice([{"method": "foo"}, {"axis": 0}, {"percentile": 101.0}])
        if "percentile" in attrs:
            attrs["method"] = "percentile"
    compare = EXACT | {"rtol": 3e-06, "atol": 1e-07}
    return "", "modelopt.calib.histogram", attrs, {"batches": batches}, compare


def random_mse(draw):
    shape = draw.sizes(2, 2, 24)
    axis = draw.choice([None, None, 0, 0, 1, -1])
    attrs = {"axis": axis, "num_bits": draw.choice([2, 3, 4, 5, 8]), "narrow_range": False}
    attrs["narrow_range"] = draw.chance(0.2)
    attrs |= {"step_size": draw.choice([0.05, 0.1, 0.25, 0.3])}
    attrs["start_multiplier"] = draw.choice([0.1, 0.25, 0.5])
    attrs["stop_multiplier"] = draw.choice([1.0, 2.0, 4.0])
    batches = [draw.values(shape, "normal") for _ in range(draw.integer(1, 3))]
    spread = draw.choice([1.0, 1.0, 10.0, 0.01])
    batches = [b / (b.std() + 1e-9) * spread for b in batches]
    kept = None if axis is None else axis % 2
    amax = batches[0].abs().max()
    if kept is not None:
        amax = batches[0].abs().amax(dim=1 - kept, keepdim=True)
    inputs = {"amax": amax, "batches": batches}
    compare = EXACT | {"rtol": 0.0002, "atol": 1e-06 * max(1.0, spread**2)}
    return "", "modelopt.calib.mse", attrs, inputs, compare


def random_bias(draw):
    shape = draw.sizes(draw.integer(2, 4), 1, 9)
    rank = len(shape)
    axis = random_axes(draw, rank)
    if isinstance(axis, int):
        axis = [axis]
    attrs = {"method": draw.choice(["mean", "max_min"]), "axis": axis}
    if draw.chance(0.05):
        attrs["method"] = "median"
    spread = draw.choice([1.0, 10.0, 0.1])
    batches = [draw.normal(shape, spread, 0.3) for _ in range(draw.integer(1, 4))]
    compare = EXACT | {"rtol": 1e-05, "atol": 1e-06 * max(1.0, spread)}
    return "", "modelopt.calib.bias", attrs, {"batches": batches}, compare


MAKERS = [random_max] * 3 + [random_histogram] * 5 + [random_mse] * 2 + [random_bias] * 2


def random_case(draw):
    return draw.choice(MAKERS)(draw)
