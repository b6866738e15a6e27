"""Random cases like those of the golden suite `float_modules`: modules and optimizers."""

import copy
import random

import torch
from torch import nn

from common import Suite, arguments, within

COMPARE = within(1e-4, 2e-5)
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, -0.7, 1.1, 20.0, -20.0, 0.5, -0.5])


def chance(probability):
    return random.random() < probability


def maybe(args, probability, **more):
    return args | (more if chance(probability) else {})


def per_dim(value_of, rank):
    return value_of() if chance(0.65) else [value_of() for _ in range(rank)]


def as_list(value, rank):
    return list(value) if isinstance(value, (list, tuple)) else [value] * rank


def spatial(rank, low=3):
    most = {1: 17, 2: 10, 3: 6}[rank]
    return [random.randint(low, most) for _ in range(rank)]


def floats(shape, scale=1.0):
    return torch.randn(shape) * scale


def with_specials(x):
    pick = torch.rand(x.shape) < 0.15
    return torch.where(pick, SPECIAL[torch.randint(len(SPECIAL), x.shape)], x)


# Each draws (class, args, positional inputs, keyword inputs, keyword settings) --------------------

def draw_linear():
    args = {"in_features": random.randint(1, 30), "out_features": random.randint(1, 20)}
    lead = random.choice([[4], [1], [2, 3], [], [2, 1, 3]])
    return "Linear", maybe(args, 0.4, bias=False), [floats([*lead, args["in_features"]])]


def draw_conv():
    rank = random.choice([1, 2, 2, 3])
    groups = random.choice([1, 1, 2, 3])
    args = {"in_channels": groups * random.randint(1, 3),
            "out_channels": groups * random.randint(1, 3),
            "kernel_size": per_dim(lambda: random.randint(1, 3), rank)}
    kind = random.choice(["plain", "plain", "plain", "same", "valid", "mode"])
    args = maybe(args, 0.3, dilation=per_dim(lambda: random.randint(1, 2), rank))
    if kind in ("same", "valid"):
        args["padding"] = kind
    if kind != "same":
        args = maybe(args, 0.5, stride=per_dim(lambda: random.randint(1, 3), rank))
    if kind in ("plain", "mode"):
        args = maybe(args, 0.6, padding=per_dim(lambda: random.randint(0, 2), rank))
    if kind == "mode" or (kind == "same" and chance(0.3)):
        args["padding_mode"] = random.choice(["circular", "replicate", "reflect"])
    args = maybe(args | {"groups": groups}, 0.4, bias=False)
    return f"Conv{rank}d", args, [image(rank, args["in_channels"], 5)]


def image(rank, channels, low=3):
    lead = [channels] if chance(0.07) else [random.randint(1, 3), channels]
    return floats([*lead, *spatial(rank, low if rank < 3 else min(low, 4))])


def draw_conv_transpose():
    rank = random.choice([1, 2, 2, 3])
    groups = random.choice([1, 1, 2, 3])
    stride = per_dim(lambda: random.randint(1, 3), rank)
    args = {"in_channels": groups * random.randint(1, 3),
            "out_channels": groups * random.randint(1, 3),
            "kernel_size": per_dim(lambda: random.randint(1, 3), rank), "stride": stride,
            "groups": groups}
    args = maybe(args, 0.5, padding=per_dim(lambda: random.randint(0, 1), rank))
    args = maybe(args, 0.3, dilation=per_dim(lambda: random.randint(1, 2), rank))
    most = min(as_list(stride, rank)) - 1
    args = maybe(args, 0.4, output_padding=per_dim(lambda: random.randint(0, max(0, most)), rank))
    return f"ConvTranspose{rank}d", maybe(args, 0.4, bias=False), [image(rank, args["in_channels"])]


def draw_batch_norm():
    rank = random.choice([1, 2, 3])
    args = {"num_features": random.randint(1, 6)}
    args = maybe(args, 0.4, eps=random.choice([1e-3, 1e-2, 1e-6]))
    args = maybe(args, 0.4, momentum=random.choice([None, 0.3, 0.01, 1.0]))
    args = maybe(maybe(args, 0.3, affine=False), 0.3, track_running_stats=False)
    shape = [random.randint(2, 5), args["num_features"]]
    if rank > 1 or chance(0.6):
        shape += spatial(rank, 1)
    return f"BatchNorm{rank}d", args, [floats(shape, random.choice([1, 3])) + random.choice([0, 1])]


def draw_instance_norm():
    rank = random.choice([1, 2, 3])
    args = {"num_features": random.randint(1, 5)}
    args = maybe(maybe(args, 0.5, affine=True), 0.3, eps=1e-3)
    args = maybe(args, 0.3, track_running_stats=True)
    args = maybe(args, 0.2, momentum=0.3)
    lead = [args["num_features"]] if chance(0.15) else [random.randint(1, 3), args["num_features"]]
    return f"InstanceNorm{rank}d", args, [floats([*lead, *spatial(rank, 2)])]


def draw_layer_norm():
    shape = [random.randint(1, 4), random.randint(1, 4), random.randint(2, 17)]
    count = random.randint(1, 3)
    args = {"normalized_shape": shape[-count:]}
    if count == 1 and chance(0.3):
        args["normalized_shape"] = shape[-1]
    args = maybe(args, 0.3, eps=random.choice([1e-3, 1e-6]))
    args = maybe(args, 0.25, elementwise_affine=False)
    return "LayerNorm", maybe(args, 0.2, bias=False), [floats(shape) + random.choice([0, 2])]


def draw_group_norm():
    groups = random.randint(1, 4)
    args = {"num_groups": groups, "num_channels": groups * random.randint(1, 3)}
    args = maybe(maybe(args, 0.3, affine=False), 0.3, eps=1e-3)
    return "GroupNorm", args, [floats([random.randint(1, 3), args["num_channels"],
                                       *spatial(random.choice([1, 2]), 2)])]


def draw_pool():
    rank, kind = random.choice([1, 2, 2, 3]), random.choice(["Max", "Avg"])
    kernel = per_dim(lambda: random.randint(1, 4 if rank < 3 else 3), rank)
    args = {"kernel_size": kernel}
    half = min(as_list(kernel, rank)) // 2
    args = maybe(args, 0.5, stride=per_dim(lambda: random.randint(1, 3), rank))
    args = maybe(args, 0.5, padding=per_dim(lambda: random.randint(0, half), rank))
    args = maybe(args, 0.4, ceil_mode=True)
    if kind == "Max":
        args = maybe(args, 0.3, dilation=per_dim(lambda: random.randint(1, 2), rank))
    else:
        args = maybe(args, 0.4, count_include_pad=False)
        if rank > 1:
            args = maybe(args, 0.2, divisor_override=random.choice([1, 3, 4, 7]))
    x = image(rank, random.randint(1, 4), 5)
    return f"{kind}Pool{rank}d", args, [(x * 2).round() if kind == "Max" and chance(0.3) else x]


def draw_adaptive():
    rank, kind = random.choice([1, 2, 2, 3]), random.choice(["Max", "Avg"])
    size = random.randint(1, 7) if chance(0.5) else [random.randint(1, 6) for _ in range(rank)]
    if isinstance(size, list) and rank > 1 and chance(0.25):
        size[random.randrange(rank)] = None
    return f"Adaptive{kind}Pool{rank}d", {"output_size": size}, [image(rank, random.randint(1, 4))]


def draw_embedding():
    args = {"num_embeddings": random.randint(1, 12), "embedding_dim": random.randint(1, 7)}
    args = maybe(args, 0.3, padding_idx=random.randrange(-args["num_embeddings"],
                                                         args["num_embeddings"]))
    shape = random.choice([[3, 5], [12], [1], [], [2, 2, 2]])
    return "Embedding", args, [torch.randint(args["num_embeddings"], shape)]


def draw_embedding_bag():
    mode = random.choice(["sum", "mean", "max"])
    args = {"num_embeddings": random.randint(2, 12), "embedding_dim": random.randint(1, 7),
            "mode": mode}
    args = maybe(args, 0.2, padding_idx=random.randrange(args["num_embeddings"]))
    if chance(0.35):
        return "EmbeddingBag", args, [torch.randint(args["num_embeddings"], [3, 4])]
    count = random.randint(1, 12)
    offsets = torch.tensor([0] + sorted(random.randint(0, count) for _ in range(random.randint(0, 3))))
    if chance(0.25):
        args["include_last_offset"] = True
        offsets = torch.cat([offsets, torch.tensor([count])])
    inputs = [torch.randint(args["num_embeddings"], [count]), offsets]
    if mode == "sum" and chance(0.3):
        inputs.append(floats([count]))
    return "EmbeddingBag", args, inputs


ACTIVATIONS = {
    "ReLU": dict, "ReLU6": dict, "SiLU": dict, "Hardswish": dict, "Hardsigmoid": dict,
    "Sigmoid": dict, "Tanh": dict, "Mish": dict, "SELU": dict, "LogSigmoid": dict,
    "Softsign": dict, "Identity": dict,
    "GELU": lambda: random.choice([{}, {"approximate": "tanh"}]),
    "Hardtanh": lambda: random.choice([{}, {"min_val": -0.7, "max_val": 1.1},
                                       {"min_val": -2.0, "max_val": 0.5}]),
    "ELU": lambda: random.choice([{}, {"alpha": 0.7}, {"alpha": 2.5}]),
    "CELU": lambda: random.choice([{}, {"alpha": 0.5}, {"alpha": 2.0}]),
    "LeakyReLU": lambda: random.choice([{}, {"negative_slope": 0.1}, {"negative_slope": 1.5}]),
    "Softplus": lambda: random.choice([{}, {"beta": 2.0}, {"beta": 0.5, "threshold": 3.0}]),
    "Softmax": lambda: {"dim": random.randint(-3, 2)},
    "LogSoftmax": lambda: {"dim": random.randint(-3, 2)},
}
OTHER_ACTIVATIONS = {
    "Hardshrink": dict, "Softshrink": dict, "Tanhshrink": dict, "Softmin": lambda: {"dim": 1},
    "Threshold": lambda: {"threshold": 0.1, "value": -2.0},
}


def draw_activation():
    table = OTHER_ACTIVATIONS if chance(0.02) else ACTIVATIONS
    name = random.choice(list(table))
    x = floats([random.randint(1, 4) for _ in range(3)], random.choice([1, 1, 4]))
    return name, table[name](), [with_specials(x)]


def draw_prelu():
    count = random.choice([1, random.randint(1, 5)])
    args = {} if count == 1 and chance(0.5) else {"num_parameters": count}
    args = maybe(args, 0.3, init=0.6)
    x = floats(random.choice([[3, count], [2, count, 4], [2, count, 3, 2]]))
    return "PReLU", args, [with_specials(x)]


def draw_reshape():
    if chance(0.5):
        args = random.choice([{}, {"start_dim": 0}, {"start_dim": 2}, {"start_dim": 1, "end_dim": 2}])
        return "Flatten", args, [floats([2, 3, 4, 2])]
    factor = random.randint(1, 3)
    return "PixelShuffle", {"upscale_factor": factor}, [
        floats([random.randint(1, 2), factor * factor * random.randint(1, 3), 3, 4])]


def draw_upsample():
    rank = random.choice([1, 2, 2, 3])
    modes = {1: ["nearest", "linear"], 2: ["nearest", "bilinear", "bilinear"],
             3: ["nearest", "trilinear"]}[rank]
    mode = random.choice(modes + (["bicubic", "nearest-exact"] if chance(0.06) else []))
    args = {"mode": mode} if mode != "nearest" or chance(0.5) else {}
    if chance(0.5):
        args["size"] = per_dim(lambda: random.randint(1, 9), rank)
    else:
        args["scale_factor"] = random.choice(
            [2, 3, 1.5, 2.3, 0.5, 0.7, [random.choice([2, 1.5, 0.6]) for _ in range(rank)]])
        args = maybe(args, 0.1, recompute_scale_factor=True)
    if mode not in ("nearest", "nearest-exact"):
        args = maybe(args, 0.6, align_corners=chance(0.5))
    return "Upsample", args, [floats([random.randint(1, 2), random.randint(1, 3), *spatial(rank, 2)])]


def draw_recurrent():
    kind = random.choice(["LSTM", "GRU", "RNN"])
    args = {"input_size": random.randint(1, 7), "hidden_size": random.randint(1, 7)}
    args = maybe(args, 0.4, num_layers=random.randint(2, 3))
    args = maybe(maybe(args, 0.4, bidirectional=True), 0.4, batch_first=True)
    args = maybe(args, 0.25, bias=False)
    if kind == "LSTM" and args["hidden_size"] > 1:
        args = maybe(args, 0.3, proj_size=random.randint(1, args["hidden_size"] - 1))
    if kind == "RNN":
        args = maybe(args, 0.4, nonlinearity="relu")
    time, batch = random.randint(1, 5), random.randint(1, 3)
    unbatched = chance(0.12)
    lead = [time] if unbatched else [batch, time] if args.get("batch_first") else [time, batch]
    inputs = [floats([*lead, args["input_size"]])]
    if chance(0.6):
        count = args.get("num_layers", 1) * (2 if args.get("bidirectional") else 1)
        state_lead = [count] if unbatched else [count, batch]
        h = floats([*state_lead, args.get("proj_size", args["hidden_size"])])
        inputs.append([h, floats([*state_lead, args["hidden_size"]])] if kind == "LSTM" else h)
    return kind, args, inputs


def draw_cell():
    kind = random.choice(["LSTMCell", "GRUCell", "RNNCell"])
    args = {"input_size": random.randint(1, 7), "hidden_size": random.randint(1, 7)}
    args = maybe(args, 0.25, bias=False)
    if kind == "RNNCell":
        args = maybe(args, 0.4, nonlinearity="relu")
    lead = [] if chance(0.12) else [random.randint(1, 4)]
    inputs = [floats([*lead, args["input_size"]])]
    if chance(0.7):
        h = floats([*lead, args["hidden_size"]])
        inputs.append([h, floats(h.shape)] if kind == "LSTMCell" else h)
    return kind, args, inputs


def causal_mask(rows, columns, as_bool):
    mask = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    return mask if as_bool else torch.zeros(rows, columns).masked_fill(mask, float("-inf"))


def draw_padding_mask(batch, length, as_bool=True):
    mask = torch.rand(batch, length) < 0.3
    mask[:, 0] = False
    return mask if as_bool else torch.zeros(batch, length).masked_fill(mask, float("-inf"))


def draw_attention():
    heads = random.choice([1, 2, 3, 4])
    dim = heads * random.randint(1, 4)
    args = {"embed_dim": dim, "num_heads": heads}
    args = maybe(maybe(args, 0.3, bias=False), 0.5, batch_first=True)
    args = maybe(maybe(args, 0.12, add_bias_kv=True), 0.12, add_zero_attn=True)
    if chance(0.3):
        args |= {"kdim": random.randint(1, 6), "vdim": random.randint(1, 6)}
    batch, rows, columns = random.randint(1, 3), random.randint(1, 5), random.randint(1, 6)
    first = args.get("batch_first", False)
    lead = lambda n: [batch, n] if first else [n, batch]
    inputs = [floats([*lead(rows), dim]), floats([*lead(columns), args.get("kdim", dim)]),
              floats([*lead(columns), args.get("vdim", dim)])]
    keywords, settings = {}, {}
    as_bool = chance(0.6)
    if chance(0.3):
        keywords["key_padding_mask"] = draw_padding_mask(batch, columns, as_bool)
    if chance(0.3):
        keywords["attn_mask"] = (causal_mask(rows, columns, as_bool) if chance(0.6) else
                                 floats([batch * heads, rows, columns]))
        if keywords["attn_mask"].dim() == 3 and "key_padding_mask" in keywords:
            keywords["key_padding_mask"] = draw_padding_mask(batch, columns, False)
    if chance(0.4):
        settings["need_weights"] = chance(0.5)
    if settings.get("need_weights", True) and chance(0.4):
        settings["average_attn_weights"] = False
    return "MultiheadAttention", args, inputs, keywords, settings


def transformer_args():
    heads = random.choice([1, 2, 4])
    args = {"d_model": heads * random.randint(1, 4), "nhead": heads,
            "dim_feedforward": random.randint(1, 20), "dropout": 0.0}
    args = maybe(maybe(args, 0.4, activation="gelu"), 0.4, batch_first=True)
    args = maybe(maybe(args, 0.4, norm_first=True), 0.2, bias=False)
    return maybe(args, 0.2, layer_norm_eps=1e-3)


def draw_encoder_layer():
    args = transformer_args()
    batch, length = random.randint(1, 3), random.randint(1, 5)
    lead = [batch, length] if args.get("batch_first") else [length, batch]
    keywords, as_bool = {}, chance(0.5)
    if chance(0.4):
        keywords["src_mask"] = causal_mask(length, length, as_bool)
    if chance(0.3):
        keywords["src_key_padding_mask"] = draw_padding_mask(batch, length, as_bool)
    return "TransformerEncoderLayer", args, [floats([*lead, args["d_model"]])], keywords, {}


def draw_decoder_layer():
    args = transformer_args()
    batch, rows, columns = random.randint(1, 3), random.randint(1, 4), random.randint(1, 5)
    lead = lambda n: [batch, n] if args.get("batch_first") else [n, batch]
    inputs = [floats([*lead(rows), args["d_model"]]), floats([*lead(columns), args["d_model"]])]
    keywords, as_bool = {}, chance(0.5)
    if chance(0.4):
        keywords["tgt_mask"] = causal_mask(rows, rows, as_bool)
    if chance(0.2):
        keywords["memory_key_padding_mask"] = draw_padding_mask(batch, columns, as_bool)
    if chance(0.2):
        keywords["tgt_key_padding_mask"] = draw_padding_mask(batch, rows, as_bool)
    return "TransformerDecoderLayer", args, inputs, keywords, {}


def draw_class_loss():
    kind = random.choice(["CrossEntropyLoss", "CrossEntropyLoss", "NLLLoss"])
    classes, batch = random.randint(1, 7), random.randint(1, 7)
    args = {"reduction": random.choice(["mean", "sum", "none"])}
    more = random.choice([[], [], [], [3], [2, 3]])
    x = floats([batch, classes, *more])
    target = torch.randint(classes, [batch, *more])
    if kind == "CrossEntropyLoss":
        args = maybe(args, 0.5, label_smoothing=random.choice([0.0, 0.1, 0.35]))
        if chance(0.1):
            return kind, args, [x, torch.softmax(floats(x.shape), 1)]
    else:
        x = torch.log_softmax(x, 1)
    if chance(0.3):
        args["ignore_index"] = random.choice([-100, 0, classes - 1])
        if args["ignore_index"] < 0:
            target.view(-1)[0] = -100
    return kind, args, [x, target]


def draw_loss():
    kind = random.choice(["MSELoss", "L1Loss", "SmoothL1Loss", "BCEWithLogitsLoss"])
    args = {} if chance(0.15) else {"reduction": random.choice(["mean", "sum", "none"])}
    if kind == "SmoothL1Loss":
        args = maybe(args, 0.6, beta=random.choice([0.5, 1.0, 2.0, 0.0]))
    shape = random.choice([[3, 4], [7], [1], [2, 3, 2], []])
    x, target = floats(shape), floats(shape)
    if kind == "BCEWithLogitsLoss":
        target, x = torch.rand(shape) if chance(0.5) else (torch.rand(shape) > 0.5).float(), x * 5
    elif chance(0.2):
        target = x.clone()
    return kind, args, [x, target]


DRAWS = [(2, draw_linear), (6, draw_conv), (4, draw_conv_transpose), (4, draw_batch_norm),
         (2, draw_instance_norm), (2, draw_layer_norm), (2, draw_group_norm), (6, draw_pool),
         (4, draw_adaptive), (1.5, draw_embedding), (3, draw_embedding_bag), (5, draw_activation),
         (1, draw_prelu), (1, draw_reshape), (4, draw_upsample), (5, draw_recurrent), (2, draw_cell),
         (4, draw_attention), (3, draw_encoder_layer), (2, draw_decoder_layer),
         (3, draw_class_loss), (3, draw_loss)]


# Running ------------------------------------------------------------------------------------------

def randomize(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn_like(buffer) * 0.3)
            if name.endswith("running_var"):
                buffer.copy_(torch.rand_like(buffer) + 0.4)


def flatten(results):
    if isinstance(results, torch.Tensor):
        return [results]
    return [tensor for part in results if part is not None for tensor in flatten(part)]


def mapped(value, function):
    if isinstance(value, list):
        return [mapped(v, function) for v in value]
    return function(value)


def leaf(tensor):
    return tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor


def has_grad(value):
    tensors = value if isinstance(value, list) else [value]
    return all(t.grad is not None for t in tensors)


def run(module, inputs, keywords, settings, grads_out):
    """Outputs in the suite's form. `grads_out` is filled when it is empty."""
    inputs = mapped(inputs, leaf)
    given = [tuple(v) if isinstance(v, list) else v for v in inputs]
    results = flatten(module(*given, **keywords, **settings))
    if not grads_out:
        grads_out += [torch.randn(result.shape) for result in results]
    outputs = {f"out{i or ''}": r.detach().clone() for i, r in enumerate(results)}
    with_grad = [(r, g.to(r.dtype)) for r, g in zip(results, grads_out) if r.requires_grad]
    if with_grad:
        torch.autograd.backward(*zip(*with_grad))
    for i, value in enumerate(inputs):
        if has_grad(value):
            outputs[f"grad_x{i or ''}"] = mapped(value, lambda t: t.grad)
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    if grads:
        outputs["grads"] = grads
    state = dict(module.named_buffers())
    if state:
        outputs["state"] = {name: buffer.clone() for name, buffer in state.items()}
    return outputs


def leaves_of(value):
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves_of(v)]
    if isinstance(value, list):
        return [leaf for v in value for leaf in leaves_of(v)]
    return [value]


def agrees_with_double(single, double):
    """Whether float32 is within a third of the tolerance, so that noise cannot decide."""
    for a, b in zip(leaves_of(single), leaves_of(double)):
        near = torch.isclose(a.double(), b.double(), rtol=COMPARE["rtol"] / 3,
                             atol=COMPARE["atol"] / 3, equal_nan=True)
        if not near.all():
            return False
    return True


def to_double(value):
    if isinstance(value, dict):
        return {k: to_double(v) for k, v in value.items()}
    return mapped(value, lambda t: t.double() if t.is_floating_point() else t)


def add_module(suite):
    drawn = random.choices([d for _, d in DRAWS], [w for w, _ in DRAWS])[0]()
    name, args, inputs = drawn[:3]
    keywords, settings = drawn[3:] if len(drawn) == 5 else ({}, {})
    module = getattr(nn, name)(**args)
    randomize(module)
    train = chance(0.7)
    module.train(train)
    twin = copy.deepcopy(module).double()
    initial = {key: value.clone() for key, value in module.state_dict().items()}
    grads_out = []
    outputs = run(module, inputs, keywords, settings, grads_out)
    double = run(twin, to_double(inputs), to_double(keywords), settings, grads_out)
    if not agrees_with_double(outputs, double):
        return
    given = {"state_dict": initial}
    given |= {f"x{i or ''}": value for i, value in enumerate(inputs)} | keywords
    given |= {f"grad_out{i or ''}": g for i, g in enumerate(grads_out)}
    suite.add("module", {"class": name, "args": args, "train": train} | settings, given, outputs,
              COMPARE)


OPTIMIZERS = {
    "SGD": lambda: random.choice([
        {"lr": 0.1}, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.05, "momentum": 0.8, "nesterov": True}, {"lr": 0.3, "weight_decay": 0.1},
        {"lr": 0.05, "momentum": 0.9, "dampening": 0.3},
        {"lr": 0.02, "momentum": 0.5, "nesterov": True, "weight_decay": 0.05}]),
    "Adam": lambda: maybe(maybe(maybe({"lr": random.choice([0.01, 0.3, 1e-3])}, 0.4,
                                      betas=[0.8, 0.99]), 0.4, weight_decay=0.1), 0.4, amsgrad=True),
    "AdamW": lambda: maybe(maybe(maybe({"lr": 0.01}, 0.4, weight_decay=0.2), 0.3, amsgrad=True),
                           0.3, eps=1e-4),
}


def add_optimizer(suite):
    kind = random.choice(list(OPTIMIZERS))
    args = OPTIMIZERS[kind]()
    shapes = random.choice([[[3, 4], [5]], [[1]], [[2, 3, 4], [], [7]]])
    start = [torch.randn(shape) for shape in shapes]
    parameters = [nn.Parameter(p.clone()) for p in start]
    optimizer = getattr(torch.optim, kind)(parameters, **args)
    grads, after = [], []
    for _ in range(5):
        grads.append([torch.randn(shape) * random.choice([1, 1, 0, 10]) for shape in shapes])
        for parameter, grad in zip(parameters, grads[-1]):
            parameter.grad = grad.clone()
        optimizer.step()
        after.append([p.detach().clone() for p in parameters])
    suite.add("optimizer", {"class": kind, "args": args}, {"params": start, "grads": grads},
              {"params": after}, within(1e-5, 1e-6))


def main():
    given = arguments(1200)
    suite = Suite("float_modules", given.seed, "PyTorch torch.nn modules")
    while not suite.is_full(given):
        try:
            (add_optimizer if chance(0.04) else add_module)(suite)
        except (RuntimeError, AssertionError, ValueError, TypeError, NotImplementedError) as error:
            print("refused by torch:", type(error).__name__, str(error).split("\n")[0][:110])
    suite.save(given.out)


if __name__ == "__main__":
    main()
