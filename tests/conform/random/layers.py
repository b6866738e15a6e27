"""Random cases like those of the golden suites conv_fbgemm, conv_x86 and conv_qnnpack: convolutions
and linear layers under each engine, and dynamic linear layers.

Several of torch's kernels saturate or are wrong for some shapes (README.md of the golden cases). So
each case is calculated in float64 as well: where torch is further off than one code it is left out,
and the others have to be equal as often as torch is to float64.
"""

import random

import torch
import torch.nn.functional as F

from codes import coin, quantized, quantized_by_channel, scale, zero_point
from common import Suite, arguments, within

Q = torch.ops.quantized
ENGINES = ["fbgemm", "x86", "qnnpack", "onednn"]


def weight_of(shape, by_channel=True):
    kind = random.choice(["tensor", "zero_point", "channel"] if by_channel else ["tensor", "zero_point"])
    if kind == "channel":
        return quantized_by_channel(shape, 0, torch.qint8, zero=True)
    zero = random.randint(-20, 20) if kind == "zero_point" else 0
    return quantized(shape, torch.qint8, scale(-8, -3), zero)


def bias_of(count, x):
    return torch.randn(count) * 3 * x.q_scale() if coin() else None


def target(x, depth):
    """Where about all codes of the result are used."""
    return {"scale": x.q_scale() * scale(-3, 1) * depth**0.5 * 2,
            "zero_point": zero_point(torch.quint8)}


def add_layer(suite, op, attrs, inputs, call, exact):
    """exact() gives the result in float64, before its ReLU."""
    try:
        y = call()
    except RuntimeError:
        return
    wanted = exact().relu() if op.endswith("relu") else exact()
    codes = (torch.round(wanted / y.q_scale()) + y.q_zero_point()).clamp(0, 255)
    off = (codes - y.int_repr().double()).abs()
    if off.numel() == 0 or off.max() > 1:
        return
    share = (off == 0).double().mean().item() - 0.005 - 1.5 / off.numel()
    suite.add(op, attrs, inputs, {"out": y}, within(0.0, 0.0, 1, max(0.0, share)))


def doubles(x):
    return x.dequantize().double() if x.is_quantized and x.qscheme() != torch.per_channel_affine else (
        (x.int_repr().double() - by_axis(x, x.q_per_channel_zero_points())) *
        by_axis(x, x.q_per_channel_scales()))


def by_axis(x, values):
    return values.double().view([-1 if i == x.q_per_channel_axis() else 1 for i in range(x.dim())])


def conv_shape(spatial, engine):
    groups = random.choice([1, 1, 1, 2, 4, 8])
    into = groups * random.choice([1, 2, 3, 4, 8, 16, random.randint(1, 40)])
    out = groups * random.choice([1, 2, 4, 8, 16, random.randint(1, 40)])
    if random.random() < 0.25 and engine != "qnnpack":
        into = out = groups = random.choice([8, 16, 24, 32, 48, random.randint(2, 70)])
    kernel = [random.choice([1, 1, 3, 3, 5, 2, 7] if spatial < 3 else [1, 2, 3])
              for _ in range(spatial)]
    return groups, into, out, kernel if coin() else kernel[:1] * spatial


def add_conv(suite, engine):
    n = random.choice([1, 2, 2, 2, 3])
    groups, into, out, kernel = conv_shape(n, engine)
    attrs = {"stride": [random.choice([1, 1, 2, 3])] * n,
             "padding": [random.randint(0, k // 2 + 1) for k in kernel],
             "dilation": [random.choice([1, 1, 1, 2])] * n, "groups": groups}
    sizes = [max((k - 1) * d + 1 - 2 * p, random.randint(1, {1: 60, 2: 20, 3: 7}[n]))
             for k, d, p in zip(kernel, attrs["dilation"], attrs["padding"])]
    x = quantized([random.randint(1, 3), into] + sizes, torch.quint8)
    weight = weight_of([out, into // groups] + kernel)
    bias = bias_of(out, x)
    attrs |= target(x, weight[0].numel())
    settings = (attrs["stride"], attrs["padding"], attrs["dilation"], groups)
    ends = (attrs["scale"], attrs["zero_point"])

    def packed():
        return getattr(Q, f"conv{n}d_prepack")(weight, bias, *settings)

    def exact():
        double = None if bias is None else bias.double()
        return getattr(F, f"conv{n}d")(x.dequantize().double(), doubles(weight), double, *settings)
    inputs = {"x": x, "weight": weight, "bias": bias}
    for op in (f"conv{n}d", f"conv{n}d_relu"):
        add_layer(suite, op, attrs, inputs, lambda: getattr(Q, op)(x, packed(), *ends), exact)
    if engine == "onednn" and n == 2:
        y = quantized(exact().shape, torch.quint8)
        for op in ("conv2d_add", "conv2d_add_relu"):
            add_layer(suite, op, attrs, inputs | {"y": y},
                      lambda: getattr(Q, op)(x, y.clone(), packed(), *ends),
                      lambda: exact() + y.dequantize().double())


def add_transposed(suite, engine):
    n = random.choice([1, 2, 2] if engine == "qnnpack" else [1, 2, 2, 3])
    groups = 1 if engine == "onednn" else random.choice([1, 1, 2])
    each_in, each_out = random.randint(1, 12), random.randint(1, 12)
    kernel = [random.choice([1, 3, 3, 4, 5]) for _ in range(n)] if n < 3 else [random.choice([1, 3])] * 3
    stride = random.choice([1, 2, 3])
    attrs = {"stride": [stride] * n, "padding": [random.randint(0, k // 2) for k in kernel],
             "output_padding": [random.randint(0, stride - 1)] * n,
             "dilation": [random.choice([1, 1, 2])] * n, "groups": groups}
    sizes = [random.randint(2, {1: 30, 2: 9, 3: 5}[n]) for _ in range(n)]
    x = quantized([random.randint(1, 2), groups * each_in] + sizes, torch.quint8)
    weight = weight_of([groups * each_in, each_out] + kernel, by_channel=False)
    bias = bias_of(groups * each_out, x)
    settings = {name: attrs[name] for name in attrs}
    attrs |= target(x, weight[0].numel())

    def call():
        packed = getattr(Q, f"conv_transpose{n}d_prepack")(
            weight, bias, *(settings[s] for s in ("stride", "padding", "output_padding", "dilation", "groups")))
        return getattr(Q, f"conv_transpose{n}d")(x, packed, attrs["scale"], attrs["zero_point"])

    def exact():
        double = None if bias is None else bias.double()
        return getattr(F, f"conv_transpose{n}d")(
            x.dequantize().double(), doubles(weight), double, **settings)
    add_layer(suite, f"conv_transpose{n}d", attrs, {"x": x, "weight": weight, "bias": bias}, call, exact)


def linear_inputs(x_of):
    depth, out = random.randint(1, 400), random.randint(1, 130)
    lead = random.choice([[random.randint(1, 70)], [random.randint(1, 4), random.randint(1, 9)], [1]])
    x = x_of(lead + [depth])
    return x, weight_of([out, depth]), out


def add_linear(suite, engine):
    x, weight, out = linear_inputs(lambda shape: quantized(shape, torch.quint8))
    bias = bias_of(out, x)
    attrs = target(x, x.shape[-1])

    def exact():
        return F.linear(x.dequantize().double(), doubles(weight), None if bias is None else bias.double())
    for op in ("linear", "linear_relu"):
        add_layer(suite, op, attrs, {"x": x, "weight": weight, "bias": bias},
                  lambda: getattr(Q, op)(x, Q.linear_prepack(weight, bias), *attrs.values()), exact)


def add_dynamic(suite, engine):
    if engine not in ("fbgemm", "x86"):
        return
    x, weight, out = linear_inputs(
        lambda shape: torch.randn(shape) * scale(-3, 5) + random.choice([0.0, 0.0, 3.0]))
    bias = torch.randn(out) if coin() else None
    attrs = {"relu": coin(), "weight_dtype": "qint8", "reduce_range": coin()}
    op = Q.linear_relu_dynamic if attrs["relu"] else Q.linear_dynamic
    y = op(x, Q.linear_prepack(weight, bias), attrs["reduce_range"])
    codes = torch.quantize_per_tensor_dynamic(x, torch.quint8, attrs["reduce_range"])
    suite.add("linear_dynamic", attrs, {"x": x, "weight": weight, "bias": bias},
              {"y": y, "x_scale": codes.q_scale(), "x_zero_point": codes.q_zero_point()},
              within(1e-5, max(1e-7, y.abs().max().item() * 3e-6)))


MAKERS = [add_conv, add_conv, add_transposed, add_linear, add_dynamic]


def main():
    given = arguments(900)
    suite = Suite("layers", given.seed, "PyTorch layers")
    while not suite.is_full(given):
        torch.backends.quantized.engine = engine = random.choice(ENGINES)
        random.choice(MAKERS)(suite, engine)
    suite.save(given.out)


if __name__ == "__main__":
    main()
