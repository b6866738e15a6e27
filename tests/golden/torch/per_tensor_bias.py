"""Writes per_tensor_bias.json and .safetensors beside this file: sums next to a code's end.

fbgemm adds a float bias to the sums of a per-tensor weight as fma(bias, 1 / (sx * sw), sum), and
divides per channel. Biases and weights are drawn so that the sums lie where a product with its own
rounding, or a division, would give another code.

    python per_tensor_bias.py        needs torch, no engine but fbgemm; a minute
"""

import pathlib
import warnings

import torch
from histogram_states import Suite

FLOAT = torch.float32
REACH = 1100  # of the sums
CHANNELS = 61
# op, channels, outputs a group or None (depthwise), kernel, size of the image, batch or rows
CASES = [
    ("linear", 4, 61, [], [], 1),
    ("linear", 4, 61, [], [], 3),
    ("linear", 64, 61, [], [], 40),
    ("linear_relu", 36, 61, [], [], 20),
    ("conv1d", 8, 61, [3], [9], 2),
    ("conv2d", 4, 61, [1, 1], [5, 5], 1),
    ("conv2d", 64, 61, [1, 1], [5, 5], 1),
    ("conv2d", 6, 61, [1, 1], [5, 5], 1),
    ("conv2d", 3, 61, [3, 3], [7, 7], 1),
    ("conv2d_relu", 32, 61, [3, 3], [7, 7], 1),
    ("conv2d", 122, 1, [3, 3], [5, 5], 1),
    ("conv2d", 61, None, [3, 3], [9, 9], 1),
    ("conv2d_relu", 61, None, [5, 5], [9, 9], 1),
    ("conv2d", 61, None, [7, 7], [8, 8], 1),
    ("conv3d", 4, 61, [3, 3, 3], [4, 4, 4], 1),
    ("conv_transpose2d", 61, 61, [3, 3], [5, 5], 1),
]


def codes(sums, bias, t, scale, zero_point):
    sums, m = sums.to(FLOAT), t / torch.tensor(scale, dtype=FLOAT)
    ways = [
        (sums.double() + bias.double() * (1 / t).double()).to(FLOAT),  # fma: the sum is exact in double
        sums + bias * (1 / t),
        sums + bias / t,
    ]
    return [(torch.round(way * m) + zero_point).clamp(0, 255) for way in ways]


def hard_channels(t, scale, zero_point, generator, count):
    """Biases, and a sum for each at which the three ways give different codes."""
    found = []
    while sum(len(sums) for sums, _ in found) < count:
        bias = torch.randn(60000, generator=generator) * 3
        steps = torch.tensor(scale, dtype=FLOAT).double() / t.double()
        ends = (torch.arange(1, 256).double() - 0.5 - zero_point) * steps - (bias.double() / t.double())[:, None]
        sums = torch.round(ends)
        near = ((ends - sums).abs() < 2e-3) & (sums.abs() <= REACH)
        at, which = torch.where(near)
        sums, bias = sums[at, which].long(), bias[at]
        fused, product, division = codes(sums, bias, t, scale, zero_point)
        hard = (fused != product) & (fused != division)
        found.append((sums[hard], bias[hard]))
    return torch.cat([s for s, _ in found])[:count], torch.cat([b for _, b in found])[:count]


def taps(total, count):
    """`count` int8 weights of that sum."""
    result = torch.zeros(count, dtype=torch.int8)
    for i in range(count):
        result[i] = max(-127, min(127, total))
        total -= int(result[i])
    assert total == 0
    return result


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.backends.quantized.engine = "fbgemm"
    generator = torch.Generator().manual_seed(8)
    suite = Suite()
    for index, (op, channels, outputs, kernel, image, batch) in enumerate(CASES):
        name = f"{op}-pt_bias-{index}"
        draw = lambda low, high: low + (high - low) * float(torch.rand(1, generator=generator, dtype=torch.float64))
        x_scale, weight_scale, scale = draw(0.01, 0.03), draw(0.003, 0.013), draw(0.05, 0.1)
        x_zero, zero_point = index * 17 % 100, index * 13 % 60
        t = torch.tensor(x_scale, dtype=FLOAT) * torch.tensor(weight_scale, dtype=FLOAT)
        sums, bias = hard_channels(t, scale, zero_point, generator, CHANNELS)
        groups = CHANNELS if outputs in (None, 1) else 1
        inner = channels // groups
        positions = torch.Size(kernel).numel()
        # An x of 1 everywhere but for the border, so that the sum is that of the weights; what does not
        # fit into one weight goes to other channels of the middle tap, or, in depthwise ones, to other taps.
        # Narrow layers have an x of 9 in the first channel.
        x = torch.full([batch, channels, *image], x_zero + 1, dtype=torch.uint8)
        spread = inner if outputs is not None else positions
        first = 9 if spread < 9 else 1
        if first != 1:
            x[:, ::inner] = x_zero + first
        weight = torch.zeros([CHANNELS, inner, positions], dtype=torch.int8)
        for n, total in enumerate(sums.tolist()):
            if first != 1:
                high = max(-127, min(127, total // first))
                weight[n, 0, positions // 2] = high
                weight[n, 1:, positions // 2] = taps(total - first * high, inner - 1)
            elif outputs is None:
                weight[n, 0] = taps(total, positions)
            else:
                weight[n, :, positions // 2] = taps(total, inner)
        if op.startswith("conv_transpose"):
            weight = weight.transpose(0, 1)
        weight = weight.reshape(*weight.shape[:2], *kernel)
        ops = torch.ops.quantized
        qx = torch._make_per_tensor_quantized_tensor(x, x_scale, x_zero)
        qweight = torch._make_per_tensor_quantized_tensor(weight.contiguous(), weight_scale, 0)
        attrs = {}
        if op.startswith("linear"):
            packed = ops.linear_prepack(qweight, bias)
        else:
            dims = len(kernel)
            attrs = {"stride": [1] * dims, "padding": [k // 2 for k in kernel], "dilation": [1] * dims, "groups": groups}
            arguments = [attrs["stride"], attrs["padding"], attrs["dilation"], groups]
            if "transpose" in op:
                attrs["output_padding"] = [0] * dims
                arguments.insert(2, attrs["output_padding"])
            packed = getattr(ops, op.removesuffix("_relu") + "_prepack")(qweight, bias, *arguments)
        out = getattr(ops, op)(qx, packed, scale, zero_point)
        attrs |= {"scale": scale, "zero_point": zero_point}
        fused = codes(sums, bias, t, scale, zero_point)[0].clamp(zero_point if "relu" in op else 0, 255)
        middle = out.int_repr()[(0, slice(None)) + tuple(size // 2 for size in image)]
        print(name, "as expected:", int((middle == fused).sum()), "of", CHANNELS)

        def quantized(tensor, kind, key):
            reference = suite.reference(f"{name}/{key}", tensor.int_repr())
            return reference | {
                "dtype": kind,
                "qscheme": "per_tensor_affine",
                "scale": tensor.q_scale(),
                "zero_point": tensor.q_zero_point(),
            }

        suite.cases.append({
            "id": name,
            "op": op,
            "attrs": attrs,
            "inputs": {
                "x": quantized(qx, "quint8", "in.x"),
                "weight": quantized(qweight, "qint8", "in.weight"),
                "bias": suite.reference(f"{name}/in.bias", bias),
            },
            "outputs": {"out": quantized(out, "quint8", "out.out")},
            "compare": {"max_int_diff": 0, "min_exact": 1.0, "rtol": 0.0, "atol": 0.0},
        })
    suite.write(pathlib.Path(__file__).with_suffix(""))


if __name__ == "__main__":
    main()
