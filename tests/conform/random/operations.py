"""Random cases like those of the golden suites of single operations: arithmetic, activations,
norms, embeddings, tensors."""

import random

import torch
import torch.nn.functional as F

from codes import coin, quantized, quantized_by_channel, scale, zero_point
from common import EXACT, Suite, arguments, dtype_name, random_shape, within

Q = torch.ops.quantized
NEAR = within(0.0, 0.0, 1, 0.95)  # one code off, next to ties


def case(suite, op, attrs, inputs, call, compare=EXACT):
    """Adds what torch answers; what it refuses is left out."""
    try:
        result = call()
    except (RuntimeError, NotImplementedError, IndexError, ValueError):
        return
    outputs = result if isinstance(result, dict) else {"out": result}
    suite.add(op, attrs, inputs, outputs, compare)


# Arithmetic ---------------------------------------------------------------------------------------

def broadcast(shape):
    """A shape that goes with another: ones in it, or its last dimensions."""
    first = random.choice([0, 0, 0, len(shape) - 1])
    return [random.choice([d, d, d, 1]) for d in shape][first:]


def add_binary(suite):
    dtype = random.choice([torch.quint8, torch.quint8, torch.qint8, torch.qint32])
    shape = random_shape(1, 5, 17, 900)
    for op in ("add", "add_relu", "mul", "mul_relu"):
        pair = [quantized(shape, dtype), quantized(random.choice([shape, broadcast(shape)]), dtype)]
        random.shuffle(pair)
        to = {"scale": scale(-5, 3), "zero_point": zero_point(dtype)}
        case(suite, op, to, {"x": pair[0], "y": pair[1]},
             lambda: getattr(Q, op)(*pair, to["scale"], to["zero_point"]))


def add_scalar(suite):
    x = quantized(random_shape(1, 4, 17, 700), random.choice([torch.quint8, torch.qint8, torch.qint32]))
    other = random.choice([0.0, 1.0, -1.0, random.uniform(-3, 3), random.uniform(-300, 300),
                           random.uniform(-0.01, 0.01)])
    for op in ("add_scalar", "mul_scalar", "add_scalar_relu", "mul_scalar_relu"):
        case(suite, op, {"other": other}, {"x": x}, lambda: getattr(Q, op)(x, other))


def add_cat(suite):
    shape = random_shape(1, 4, 9, 300)
    dim = random.randrange(len(shape))
    like = quantized(shape)
    parts = []
    for _ in range(random.randint(1, 5)):
        sizes = [random.randint(1, 5) if i == dim else d for i, d in enumerate(shape)]
        same = coin()
        parts.append(quantized(sizes, like.dtype, like.q_scale() if same else None,
                               like.q_zero_point() if same else None))
    to = {"dim": random.choice([dim, dim - len(shape)]), "scale": scale(-5, 1),
          "zero_point": zero_point(like.dtype)}
    for op in ("cat", "cat_relu"):
        case(suite, op, to, {"tensors": parts},
             lambda: getattr(Q, op)(parts, to["dim"], to["scale"], to["zero_point"]))


def add_matmul(suite):
    batch = [random.randint(1, 4) for _ in range(random.randint(0, 2))]
    rows, depth, columns = random.randint(1, 40), random.randint(1, 300), random.randint(1, 70)
    dtype = random.choice([torch.quint8, torch.qint8])
    x, y = quantized(batch + [rows, depth], dtype), quantized(batch + [depth, columns], dtype)
    to = {"scale": scale(-5, 3) * depth**0.5, "zero_point": zero_point(dtype)}
    # torch adds floats up, in the order of its blocks.
    case(suite, "matmul", to, {"x": x, "y": y},
         lambda: Q.matmul(x, y, to["scale"], to["zero_point"]), NEAR)


# Activations --------------------------------------------------------------------------------------

def add_activations(suite):
    shape = random_shape(1, 5, 11, 900)
    memory = random.choice(["contiguous", "channels_last"]) if len(shape) == 4 else None
    x = quantized(shape, memory_format=memory)
    to = {"output_scale": scale(), "output_zero_point": zero_point(x.dtype)}
    out = tuple(to.values())
    low, high = sorted(random.uniform(-6, 6) for _ in range(2))
    slope, alpha = random.uniform(0, 1.5), random.choice([1.0, random.uniform(0.05, 3)])
    dim = random.randrange(-len(shape), len(shape))
    calls = [
        ("relu", {}, lambda: F.relu(x), EXACT),
        ("relu6", {}, lambda: Q.relu6(x, False), EXACT),
        ("hardtanh", {"min_val": low, "max_val": high}, lambda: F.hardtanh(x, low, high), EXACT),
        ("clamp", {"min": low, "max": high}, lambda: torch.clamp(x, low, high), EXACT),
        ("clamp", {"min": low, "max": None}, lambda: torch.clamp(x, low, None), EXACT),
        ("clamp", {"min": None, "max": high}, lambda: torch.clamp(x, None, high), EXACT),
        ("threshold", {"threshold": low, "value": high}, lambda: Q.threshold(x, low, high), EXACT),
        ("leaky_relu", {"negative_slope": slope}, lambda: F.leaky_relu(x, slope), EXACT),
        ("leaky_relu", {"negative_slope": slope} | to,
         lambda: Q.leaky_relu(x, slope, False, *out), NEAR),
        ("sigmoid", {}, lambda: torch.sigmoid(x), EXACT),
        ("sigmoid", to, lambda: Q.sigmoid(x, *out), NEAR),
        ("tanh", {}, lambda: torch.tanh(x), EXACT),
        ("hardsigmoid", {}, lambda: F.hardsigmoid(x), NEAR),
        ("gelu", {"approximate": "none"}, lambda: F.gelu(x), NEAR),
        ("gelu", {"approximate": "tanh"}, lambda: F.gelu(x, approximate="tanh"), NEAR),
        ("hardswish", to, lambda: Q.hardswish(x, *out), NEAR),
        ("elu", {"alpha": alpha} | to, lambda: Q.elu(x, *out, alpha), NEAR),
        ("elu", {"alpha": alpha, "scale": slope, "input_scale": 0.7} | to,
         lambda: Q.elu(x, *out, alpha, slope, 0.7), NEAR),
        ("celu", {"alpha": alpha} | to, lambda: Q.celu(x, *out, alpha), NEAR),
        ("softmax", {"dim": dim} | to, lambda: Q.softmax(x, dim, *out), NEAR),
    ]
    more = {"memory_format": memory} if memory else {}
    for op, attrs, call, compare in calls:
        case(suite, op, attrs | more, {"x": x}, call, compare)
    if len(shape) > 1:
        weight = quantized([random.choice([1, shape[1]])], x.dtype)
        case(suite, "prelu", to | more, {"x": x, "weight": weight},
             lambda: Q.prelu(x, weight, *out), within(0.0, 0.0, 1, 0.8))


# Norms and embeddings -----------------------------------------------------------------------------

def memory_of(dims):
    """What a tensor of so many dimensions may lie in."""
    last = {4: "channels_last", 5: "channels_last_3d"}.get(dims, "contiguous")
    return random.choice(["contiguous", last])


def affine(shape):
    return {"weight": torch.randn(shape), "bias": torch.randn(shape)}


def add_norms(suite):
    to = {"eps": random.choice([1e-5, 1e-3]), "output_scale": scale(), "output_zero_point": 7}
    out = tuple(to.values())
    for name, dims in (("1d", random.choice([2, 3])), ("2d", 4), ("3d", 5)):
        x = quantized(random_shape(dims, dims, 9, 900), memory_format=(memory := memory_of(dims)))
        channels = x.shape[1]
        inputs = {"x": x} | affine([channels]) | {"mean": torch.randn(channels),
                                                  "var": torch.rand(channels) + 0.1}
        for op in (f"batch_norm{name}", f"batch_norm{name}_relu"):
            case(suite, op, to | {"memory_format": memory}, inputs,
                 lambda: getattr(Q, op)(*inputs.values(), *out), NEAR)
    shape = random_shape(1, 4, 17, 900)
    last = shape[-random.randint(1, len(shape)):]
    inputs = {"x": quantized(shape)} | (affine(last) if coin() else {"weight": None, "bias": None})
    case(suite, "layer_norm", to | {"normalized_shape": last}, inputs,
         lambda: Q.layer_norm(inputs["x"], last, inputs["weight"], inputs["bias"], *out), NEAR)
    add_group_norms(suite, to, out)


def add_group_norms(suite, to, out):
    groups = random.randint(1, 6)
    # A single pixel lies in both orders, and torch's kernel for channels last reads beside it.
    shape = ([random.randint(1, 3), groups * random.randint(1, 6)]
             + [random.randint(2, 9) for _ in range(random.randint(1, 3))])
    x = quantized(shape, memory_format=(memory := memory_of(len(shape))))
    terms = affine([shape[1]]) if coin() else {"weight": None, "bias": None}
    attrs, inputs = to | {"memory_format": memory}, {"x": x} | terms
    case(suite, "group_norm", attrs | {"num_groups": groups}, inputs,
         lambda: Q.group_norm(x, groups, *terms.values(), *out), NEAR)
    case(suite, "instance_norm", attrs, inputs,
         lambda: Q.instance_norm(x, *terms.values(), *out), NEAR)


def add_embeddings(suite):
    rows = random.randint(1, 40)
    weight = torch.randn(rows, 4 * random.randint(1, 20)) * scale(-3, 5)
    for bits in ("byte", "4bit", "2bit"):
        packed = getattr(Q, f"embedding_bag_{bits}_prepack")(weight)
        case(suite, f"embedding_bag_{bits}_prepack", {}, {"weight": weight}, lambda: packed)
        case(suite, f"embedding_bag_{bits}_unpack", {}, {"packed_weight": packed},
             lambda: getattr(Q, f"embedding_bag_{bits}_unpack")(packed), within(1e-6, 1e-6))
        if bits != "2bit":
            add_bags(suite, f"embedding_bag_{bits}_rowwise_offsets", packed, rows)


def add_bags(suite, op, packed, rows):
    last = coin()
    count = random.randint(0, 30)
    indices = torch.randint(0, rows, (count,))
    ends = sorted(random.randint(0, count) for _ in range(random.randint(0, 5)))
    offsets = torch.tensor([0] + ends + ([count] if last else []))
    if coin():
        indices, offsets = indices.int(), offsets.int()
    weights = torch.randn(count) if coin() else None
    case(suite, op, {"mode": "sum", "include_last_offset": last},
         {"weight": packed, "indices": indices, "offsets": offsets, "per_sample_weights": weights},
         lambda: getattr(Q, op)(packed, indices, offsets, False, 0, False, weights, None, last),
         within(1e-5, 1e-5))


# Tensors ------------------------------------------------------------------------------------------

def add_views(suite):
    dtype = random.choice([torch.quint8, torch.qint8, torch.qint32])
    x = quantized(random_shape(1, 5, 13, 900), dtype)
    rank = x.dim()
    a, b = (random.randrange(-rank, rank) for _ in range(2))
    low, high = sorted((a % rank, b % rank))
    size = x.shape[a]
    order = random.sample(range(rank), rank)
    index = random.randrange(-size, size)
    start, end, step = random.randint(-size, size), random.randint(-size, size + 3), random.randint(1, 3)
    cut = (slice(None),) * (a % rank) + (slice(start, end, step),)
    calls = [
        ("view", {"shape": [-1, x.shape[-1]]}, lambda: x.view(-1, x.shape[-1])),
        ("reshape", {"shape": [x.numel()]}, lambda: x.reshape(-1)),
        ("flatten", {"start_dim": low, "end_dim": high}, lambda: x.flatten(low, high)),
        ("permute", {"dims": order}, lambda: x.permute(order)),
        ("transpose", {"dim0": a, "dim1": b}, lambda: x.transpose(a, b)),
        ("select", {"dim": a, "index": index}, lambda: x.select(a, index)),
        ("slice", {"dim": a, "start": start, "end": end, "step": step}, lambda: x[cut]),
        ("squeeze", {"dim": a}, lambda: x.squeeze(a)), ("squeeze", {}, lambda: x.squeeze()),
        ("unsqueeze", {"dim": a}, lambda: x.unsqueeze(a)),
        ("chunk", {"chunks": 3, "dim": a}, lambda: numbered(x.chunk(3, a))),
        ("split", {"split_size": 2, "dim": a}, lambda: numbered(x.split(2, a))),
        ("flip", {"dims": [a]}, lambda: x.flip([a])),
    ]
    for op, attrs, call in calls:
        case(suite, op, attrs, {"x": x}, call)
    chosen = torch.randint(0, size, (random.randint(0, 5),))
    case(suite, "index_select", {"dim": a}, {"x": x, "index": chosen},
         lambda: x.index_select(a, chosen))


def numbered(parts):
    return {f"out{i}": part for i, part in enumerate(parts)}


def add_comparisons(suite):
    dtype = random.choice([torch.quint8, torch.qint8, torch.qint32])
    shape = random_shape(1, 4, 13, 600)
    x, y, value = quantized(shape, dtype), quantized(shape, dtype), random.uniform(-3, 3)
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        case(suite, op, {}, {"x": x, "y": y}, lambda: getattr(torch, op)(x, y))
        case(suite, op, {"other": value}, {"x": x}, lambda: getattr(torch, op)(x, value))
    mask = torch.randint(0, 2, shape).bool()
    case(suite, "masked_fill", {"value": value}, {"x": x, "mask": mask},
         lambda: x.masked_fill(mask, value))
    case(suite, "fill_", {"value": value}, {"x": x}, lambda: x.clone().fill_(value))


def add_reductions(suite):
    x = quantized(random_shape(1, 5, 13, 900))
    dim, keep, descending = random.randrange(-x.dim(), x.dim()), coin(), coin()
    for op in ("max", "min"):
        case(suite, op, {}, {"x": x}, lambda: getattr(x, op)())
        case(suite, op, {"dim": dim, "keepdim": keep}, {"x": x},
             lambda: dict(zip(("values", "indices"), getattr(x, op)(dim, keep))))
    dims = sorted({dim % x.dim(), random.randrange(x.dim())})
    # Means of codes are often ties, and torch adds floats up in an order of its own.
    loose = within(0.0, 0.0, 1, 0.5)
    case(suite, "mean", {"dim": dims, "keepdim": keep}, {"x": x},
         lambda: x.mean(dims, keepdim=keep), loose)
    if any(x.shape[d] > 1 for d in dims):  # else NaN, and what that becomes is not said
        case(suite, "std", {"dim": dims, "unbiased": descending, "keepdim": keep}, {"x": x},
             lambda: x.std(dims, descending, keep), loose)
    case(suite, "sort", {"dim": dim, "descending": descending}, {"x": x},
         lambda: {"values": x.sort(dim=dim, descending=descending, stable=True)[0]})


def add_quantizations(suite):
    dtype = random.choice([torch.quint8, torch.qint8, torch.qint32])
    kind = dtype_name(dtype)
    shape = random_shape(1, 4, 17, 900)
    x = torch.randn(shape) * scale(-3, 6)
    to = {"scale": scale(), "zero_point": zero_point(dtype), "dtype": kind}
    case(suite, "quantize_per_tensor", to, {"x": x},
         lambda: torch.quantize_per_tensor(x, to["scale"], to["zero_point"], dtype))
    axis = random.randrange(len(shape))
    scales = torch.tensor([scale() for _ in range(shape[axis])],
                          dtype=random.choice([torch.float32, torch.float64]))
    zeros = torch.tensor([zero_point(dtype) for _ in range(shape[axis])])
    case(suite, "quantize_per_channel", {"axis": axis, "dtype": kind},
         {"x": x, "scales": scales, "zero_points": zeros},
         lambda: torch.quantize_per_channel(x, scales, zeros, axis, dtype))
    if dtype != torch.qint32:
        reduced = coin()
        case(suite, "quantize_per_tensor_dynamic", {"dtype": kind, "reduce_range": reduced},
             {"x": x}, lambda: torch.quantize_per_tensor_dynamic(x, dtype, reduced))
        codes = quantized_by_channel(shape, axis, dtype)
        for op in ("dequantize", "int_repr"):
            case(suite, op, {}, {"x": codes}, lambda: getattr(codes, op)())


MAKERS = [add_binary, add_scalar, add_cat, add_matmul, add_activations, add_norms, add_embeddings,
          add_views, add_comparisons, add_reductions, add_quantizations]


def main():
    given = arguments(1500)
    suite = Suite("operations", given.seed, "PyTorch operations")
    while not suite.is_full(given):
        random.choice(MAKERS)(suite)
    suite.save(given.out)


if __name__ == "__main__":
    main()
