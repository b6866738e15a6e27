"""Random cases like those of the golden suite `fake_quantize`."""

import random

import torch
from torch.ao.quantization import fake_quantize as fq

from common import DISTRIBUTIONS, EXACT, Suite, arguments, draw, dtype_name, random_shape, within

RANGES = [(0, 255), (-128, 127), (0, 127), (-8, 7), (0, 15), (-127, 127), (0, 1), (-64, 63), (-1, 0),
          (0, 3), (-2, 1), (-32768, 32767), (0, 65535), (3, 17), (-20, -5)]
SCALES = [0.1, 1 / 3, 2.0**-7, 17.3, 0.11, 1e-4, 2.7e-6, 900.0, 1.0, 0.5, 0.024]


def draw_zero_point(low, high):
    return random.choice([low, high, (low + high) // 2, random.randint(low, high),
                          max(low, min(high, 0))])


def draw_values(shape, scale, zero_point, low, high, dtype=torch.float32):
    """Ties, both ends of the range and beyond, and plain draws, in no order."""
    span = min(high - low, 4096)
    codes = torch.rand(shape, dtype=torch.float64) * (span * 1.4 + 4) - span * 0.2 - 2
    halves = codes.floor() + 0.5
    pick = torch.rand(shape)
    codes = torch.where(pick < 0.3, halves, torch.where(pick < 0.5, codes.round(), codes))
    x = (codes + low - zero_point) * scale
    special = torch.tensor([0.0, -0.0, 1e-30, -1e-30])
    where = torch.rand(shape) < 0.05
    return torch.where(where, special[torch.randint(4, shape)].double(), x).to(dtype)


def away_from_ties(x, scale, zero_point, low, high):
    """Moves values whose code lies near a tie or near an end of the range to the next integer."""
    codes = x.double() / scale + zero_point
    near_tie = (codes - codes.floor() - 0.5).abs() < 0.02
    return torch.where(near_tie, (codes.floor() - zero_point) * scale, x.double()).float()


def gradients(function, x, grad_out, leaves=()):
    x = x.clone().requires_grad_()
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    y = function(x, *leaves)
    y.backward(grad_out)
    return y.detach(), x.grad, [leaf.grad for leaf in leaves]


def specials(x):
    """Infinities now and then."""
    if random.random() < 0.15 and x.numel() > 3:
        flat = x.flatten()
        flat[random.randrange(x.numel())] = float("inf")
        flat[random.randrange(x.numel())] = float("-inf")
        return flat.view(x.shape)
    return x


def add_per_tensor(suite):
    low, high = random.choice(RANGES)
    scale, zero_point = random.choice(SCALES), draw_zero_point(low, high)
    dtype = random.choices([torch.float32, torch.float64, torch.float16, torch.bfloat16],
                           [8, 1, 1, 1])[0]
    shape = random.choice([random_shape(0, 5), [random.randint(1, 700)]])
    x = specials(draw_values(shape, scale, zero_point, low, high, dtype))
    grad_out = torch.randn(shape).to(dtype)
    attrs = {"scale": scale, "zero_point": zero_point, "quant_min": low, "quant_max": high}
    inputs = {"x": x, "grad_out": grad_out}
    as_tensors = random.random() < 0.3
    if as_tensors:
        zero_dtype = random.choice([torch.int32, torch.int32, torch.int64])
        shape_of_qparams = random.choice([[1], []])
        inputs["scale"] = torch.full(shape_of_qparams, scale)
        inputs["zero_point"] = torch.full(shape_of_qparams, zero_point, dtype=zero_dtype)
        attrs = {"quant_min": low, "quant_max": high}
        qparams = inputs["scale"], inputs["zero_point"]
    else:
        qparams = scale, zero_point
    y, grad_x, _ = gradients(
        lambda v: torch.fake_quantize_per_tensor_affine(v, *qparams, low, high), x, grad_out)
    suite.add("fake_quantize_per_tensor_affine", attrs, inputs, {"y": y, "grad_x": grad_x}, EXACT)


def channel_view(values, axis, rank):
    return values.view([-1 if d == axis else 1 for d in range(rank)])


def draw_channels(shape, axis, low, high):
    """x, scale and zero point (float64), a value for every channel."""
    count = shape[axis]
    scale = torch.tensor([random.choice(SCALES[:8]) * random.uniform(0.5, 2) for _ in range(count)],
                         dtype=torch.float32)
    zero_point = torch.tensor([draw_zero_point(low, high) for _ in range(count)])
    x = draw_values(shape, channel_view(scale.double(), axis, len(shape)),
                    channel_view(zero_point.double(), axis, len(shape)), low, high)
    return x, scale, zero_point


def add_per_channel(suite):
    low, high = random.choice(RANGES[:13] + RANGES[14:])
    shape = random_shape(1, 5)
    axis = random.randrange(len(shape))
    x, scale, zero_point = draw_channels(shape, axis, low, high)
    is_float = random.random() < 0.3
    zero_point = (zero_point + torch.rand(len(zero_point)) - 0.5 if is_float
                  else zero_point.to(torch.int32))
    if is_float:
        rank = len(shape)
        x = away_from_ties(x, channel_view(scale.double(), axis, rank),
                           channel_view(zero_point.double(), axis, rank), low, high)
    grad_out = torch.randn(shape)  # infinities: torch's cast to int64 is undefined
    y, grad_x, _ = gradients(
        lambda v: torch.fake_quantize_per_channel_affine(v, scale, zero_point, axis, low, high), x,
        grad_out)
    attrs = {"axis": axis, "quant_min": low, "quant_max": high,
             "zero_point_dtype": dtype_name(zero_point.dtype)}
    suite.add("fake_quantize_per_channel_affine", attrs,
              {"x": x, "scale": scale, "zero_point": zero_point, "grad_out": grad_out},
              {"y": y, "grad_x": grad_x}, within(1e-6, 0.0) if is_float else EXACT)


def add_learnable_per_tensor(suite):
    low, high = random.choice(RANGES[:10])
    scale = torch.tensor([random.choice(SCALES)])
    zero_point = torch.tensor([draw_zero_point(low, high) + random.choice([0, 0, 0.3, -0.4, 40, -40])],
                              dtype=torch.float32)
    rounded = float(zero_point.round().clamp(low, high))
    shape, factor = random_shape(0, 5), random.choice([1.0, 0.05, 0.37])
    x = draw_values(shape, float(scale), rounded, low, high)
    x = away_from_ties(x, float(scale), rounded, low, high)
    grad_out = torch.randn(shape)
    y, grad_x, rest = gradients(
        lambda v, s, z: torch._fake_quantize_learnable_per_tensor_affine(v, s, z, low, high, factor),
        x, grad_out, (scale, zero_point))
    suite.add("fake_quantize_learnable_per_tensor_affine",
              {"quant_min": low, "quant_max": high, "grad_factor": factor},
              {"x": x, "scale": scale, "zero_point": zero_point, "grad_out": grad_out},
              {"y": y, "grad_x": grad_x, "grad_scale": rest[0], "grad_zero_point": rest[1]},
              within(1e-5, 2e-4))


def add_learnable_per_channel(suite):
    low, high = random.choice(RANGES[:10])
    shape, factor = random_shape(1, 5), random.choice([1.0, 0.05, 0.37])
    axis = random.randrange(len(shape))
    if len(shape) == 1:
        return  # torch gives a gradient of another shape
    x, scale, zero_point = draw_channels(shape, axis, low, high)
    zero_point = zero_point.float() + random.choice([0, 0, 0.3, -0.4])
    rank, rounded = len(shape), zero_point.round().clamp(low, high).double()
    x = away_from_ties(x, channel_view(scale.double(), axis, rank),
                       channel_view(rounded, axis, rank), low, high)
    grad_out = torch.randn(shape)
    y, grad_x, rest = gradients(
        lambda v, s, z: torch._fake_quantize_learnable_per_channel_affine(
            v, s, z, axis, low, high, factor), x, grad_out, (scale, zero_point))
    suite.add("fake_quantize_learnable_per_channel_affine",
              {"axis": axis, "quant_min": low, "quant_max": high, "grad_factor": factor},
              {"x": x, "scale": scale, "zero_point": zero_point, "grad_out": grad_out},
              {"y": y, "grad_x": grad_x, "grad_scale": rest[0], "grad_zero_point": rest[1]},
              within(1e-5, 2e-4))


def draw_steps(shape, kind, count):
    steps = []
    for i in range(count):
        steps.append({"x": draw(kind, shape, i), "grad_out": torch.randn(shape),
                      "observer_on": int(i == 0 or random.random() < 0.7),
                      "fake_quant_on": int(random.random() < 0.8)})
    return steps


def add_fused(suite):
    per_row, symmetric = random.random() < 0.5, random.random() < 0.5
    low, high = random.choice(RANGES[:6] + RANGES[7:8] if symmetric else RANGES[:8])
    kind = random.choice(DISTRIBUTIONS)
    shape = random_shape(2 if per_row else 1, 4)
    axis = 0  # all that torch takes, per row or not
    average = random.choice([0.01, 0.2, 0.9, 1.0])
    rows = shape[axis] if per_row else 1
    sizes = [rows] if per_row else []
    state = [torch.full(sizes, float("inf")), torch.full(sizes, float("-inf")), torch.ones(rows),
             torch.zeros(rows, dtype=torch.int32)]
    steps, results = draw_steps(shape, kind, random.randint(1, 5)), []
    for step in steps:
        switches = [torch.tensor([step[name]]) for name in ("observer_on", "fake_quant_on")]
        y, grad_x, _ = gradients(
            lambda v: torch.fused_moving_avg_obs_fake_quant(
                v, *switches, *state, average, low, high, axis, per_row, symmetric),
            step["x"], step["grad_out"])
        names = ("running_min", "running_max", "scale", "zero_point")
        results.append({"y": y, "grad_x": grad_x} | {n: s.clone() for n, s in zip(names, state)})
    attrs = {"averaging_const": average, "quant_min": low, "quant_max": high, "ch_axis": axis,
             "per_row_fake_quant": per_row, "symmetric_quant": symmetric, "distribution": kind}
    suite.add("fused_moving_avg_obs_fake_quant", attrs, {"steps": steps}, {"steps": results},
              within(1e-6, 0.0))


MODULES = """default_fake_quant default_weight_fake_quant default_per_channel_weight_fake_quant
default_histogram_fake_quant default_fused_act_fake_quant default_fused_wt_fake_quant
default_fused_per_channel_wt_fake_quant fused_wt_fake_quant_range_neg_127_to_127
fused_per_channel_wt_fake_quant_range_neg_127_to_127 default_fixed_qparams_range_0to1_fake_quant
default_fixed_qparams_range_neg1to1_fake_quant default_dynamic_fake_quant
default_embedding_fake_quant default_embedding_fake_quant_4bit""".split()


def module_attrs(name, module):
    observer = module.activation_post_process
    return {"name": name, "class": type(module).__name__, "observer": type(observer).__name__,
            "dtype": dtype_name(module.dtype), "qscheme": dtype_name(module.qscheme),
            "quant_min": observer.quant_min, "quant_max": observer.quant_max,
            "reduce_range": getattr(observer, "reduce_range", False),
            "averaging_constant": getattr(observer, "averaging_constant", None),
            "ch_axis": module.ch_axis, "is_per_channel": module.is_per_channel}


def add_module(suite):
    name = random.choice(MODULES)
    module = getattr(fq, name)()
    kind, shape = random.choice(DISTRIBUTIONS), random_shape(2, 4)
    steps, results = draw_steps(shape, kind, random.randint(1, 5)), []
    steps[0]["fake_quant_on"] = 1  # else the fused ones hold memory that nobody wrote
    for step in steps:
        module.enable_observer(bool(step["observer_on"]))
        module.enable_fake_quant(bool(step["fake_quant_on"]))
        y, grad_x, _ = gradients(module, step["x"], step["grad_out"])
        scale, zero_point = module.calculate_qparams()
        results.append({"y": y, "grad_x": grad_x, "scale": module.scale.clone(),
                        "zero_point": module.zero_point.clone(), "calculated_scale": scale,
                        "calculated_zero_point": zero_point})
    suite.add("fake_quantize_module", module_attrs(name, module), {"steps": steps},
              {"steps": results}, within(1e-6, 0.0))


MAKERS = [(4, add_per_tensor), (3, add_per_channel), (2, add_learnable_per_tensor),
          (2, add_learnable_per_channel), (4, add_fused), (4, add_module)]


def main():
    given = arguments(900)
    suite = Suite("fake_quantize", given.seed, "PyTorch fake quantization")
    weights, makers = zip(*MAKERS)
    while not suite.is_full(given):
        maker = random.choices(makers, weights)[0]
        try:
            maker(suite)
        except (RuntimeError, AssertionError, IndexError, TypeError) as error:
            print("refused by torch:", maker.__name__, str(error).split("\n")[0][:120])
    suite.save(given.out)


if __name__ == "__main__":
    main()
