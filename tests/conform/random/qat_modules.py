"""Random cases like those of the golden suite `qat_modules`."""

import random

import torch
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
from torch.ao.quantization import get_default_qat_qconfig
from torch.ao.quantization import qconfig as qc

from common import Suite, arguments, within

BACKENDS = ["fbgemm", "x86", "qnnpack", "default_qat_qconfig", "onednn"]
EXTRA_QCONFIGS = ["default_qat_qconfig_v2", "default_symmetric_qnnpack_qat_qconfig",
                  "default_per_channel_symmetric_qnnpack_qat_qconfig",
                  "default_weight_only_qconfig", "default_activation_only_qconfig"]
COMPARE = within(1e-4, 3e-5)
STATE_TAILS = ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked",
               "activation_post_process.min_val", "activation_post_process.max_val")
QPARAM_TAILS = ("weight_fake_quant.scale", "weight_fake_quant.zero_point")


def qconfig_named(name):
    is_backend = name in ("fbgemm", "x86", "qnnpack", "onednn")
    return get_default_qat_qconfig(name) if is_backend else getattr(qc, name)


def maybe_list(value_of, rank):
    """One number, or one for each dimension."""
    if random.random() < 0.7:
        return value_of()
    return [value_of() for _ in range(rank)]


def as_list(value, rank):
    return list(value) if isinstance(value, (list, tuple)) else [value] * rank


def conv_args(rank):
    groups = random.choice([1, 1, 2, 3, 4])
    args = {"in_channels": groups * random.randint(1, 3),
            "out_channels": groups * random.randint(1, 3),
            "kernel_size": maybe_list(lambda: random.randint(1, 3), rank)}
    if random.random() < 0.5:
        args["stride"] = maybe_list(lambda: random.randint(1, 3), rank)
    if random.random() < 0.6:
        args["padding"] = maybe_list(lambda: random.randint(0, 2), rank)
    if random.random() < 0.3:
        args["dilation"] = maybe_list(lambda: random.randint(1, 2), rank)
    if groups > 1 or random.random() < 0.1:
        args["groups"] = groups
    if random.random() < 0.12:
        args["padding_mode"] = random.choice(["circular", "replicate", "reflect"])
    return args


def conv_input(args, rank):
    spans = [d * (k - 1) + 1 for d, k in zip(as_list(args.get("dilation", 1), rank),
                                             as_list(args["kernel_size"], rank))]
    sizes = [max(s, 3) + random.randint(0, 4 if rank < 3 else 2) for s in spans]
    return torch.randn([random.randint(1, 4), args["in_channels"], *sizes]) * random.choice([1, 1, 5, 0.1])


def batch_norm_args():
    return {"eps": random.choice([1e-5, 1e-3, 1e-2]),
            "momentum": random.choice([0.1, 0.01, 0.4, 0.3, 0.9])}


def draw_linear(name):
    args = {"in_features": random.randint(1, 20), "out_features": random.randint(1, 12),
            "bias": random.random() < 0.5}
    with_bn = name == "intrinsic.qat.LinearBn1d"
    if with_bn:
        args |= batch_norm_args()
    shape = [random.randint(2, 6), args["in_features"]]
    if not with_bn and random.random() < 0.3:
        shape = [random.randint(1, 3), *shape]
    return args, lambda: torch.randn(shape)


def draw_conv(name):
    rank = int(name[-2])
    args = {"bias": random.random() < 0.5}
    if "Bn" in name:
        args |= batch_norm_args()
    args |= conv_args(rank)
    x = conv_input(args, rank)
    return args, lambda: torch.randn(x.shape) * x.std().clamp(min=0.1)


def draw_embedding(name):
    args = {"num_embeddings": random.randint(2, 15), "embedding_dim": random.randint(1, 9)}
    if name == "qat.EmbeddingBag":
        args["mode"] = random.choice(["sum", "mean"])
        shape = [random.randint(1, 4), random.randint(1, 5)]
    else:
        shape = random.choice([[3, 4], [7], [1, 1], [2, 2, 3]])
    if random.random() < 0.2:
        args["padding_idx"] = random.randrange(args["num_embeddings"])
    return args, lambda: torch.randint(args["num_embeddings"], shape)


LINEAR = ["qat.Linear", "intrinsic.qat.LinearReLU", "intrinsic.qat.LinearBn1d"]
EMBEDDING = ["qat.Embedding", "qat.EmbeddingBag"]
CONV = [f"qat.Conv{d}d" for d in (1, 2, 3)] + [
    f"intrinsic.qat.{kind}{d}d" for kind in ("ConvReLU", "ConvBn", "ConvBnReLU") for d in (1, 2, 3)]


def class_named(name):
    if name in ("intrinsic.qat.ConvReLU1d",):
        return nniqat.ConvReLU1d
    return getattr(nniqat if name.startswith("intrinsic") else nnqat, name.rsplit(".", 1)[1])


def randomize(module):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name == "bn.weight":
                parameter.copy_(torch.rand_like(parameter) * 1.5 + 0.3)
            elif name.startswith("bn.") or name == "bias":
                parameter.copy_(torch.randn_like(parameter) * 0.5)
            else:
                parameter.copy_(torch.randn_like(parameter) * random.choice([0.3, 0.3, 1.0, 3.0]))
        for name, buffer in module.named_buffers():
            if name == "bn.running_mean":
                buffer.copy_(torch.randn_like(buffer) * 0.3)
            elif name == "bn.running_var":
                buffer.copy_(torch.rand_like(buffer) + 0.4)


def tracked_state(module, with_qparams):
    tails = STATE_TAILS + (QPARAM_TAILS if with_qparams else ())
    return {name: value.clone() for name, value in module.state_dict().items()
            if name.endswith(tails)}


def run_step(module, step, with_qparams):
    module.zero_grad()
    x = step["x"].clone()
    is_float = x.is_floating_point()
    if is_float:
        x.requires_grad_()
    out = module(x)
    step["grad_out"] = torch.randn(out.shape)
    out.backward(step["grad_out"])
    result = {"out": out.detach(),
              "grads": {name: p.grad.clone() for name, p in module.named_parameters()},
              "state": tracked_state(module, with_qparams)}
    return result | ({"grad_x": x.grad} if is_float else {})


def add_case(suite):
    name = random.choices([random.choice(LINEAR), random.choice(CONV), random.choice(EMBEDDING)],
                          [3, 8, 1.2])[0]
    draw = draw_linear if name in LINEAR else draw_embedding if name in EMBEDDING else draw_conv
    args, next_x = draw(name)
    if name in EMBEDDING:
        qconfig = random.choice(["default_embedding_qat_qconfig",
                                 "default_embedding_qat_qconfig_4bit"])
    else:
        qconfig = random.choice(BACKENDS + EXTRA_QCONFIGS[:1])
    attrs = {"class": name, "args": args, "qconfig": qconfig, "train": random.random() < 0.6,
             "frozen_bn": "Bn" in name and random.random() < 0.4,
             "fake_quant_enabled": int(random.random() < 0.9),
             "observer_enabled": int(random.random() < 0.9)}
    module = class_named(name)(**args, qconfig=qconfig_named(qconfig))
    randomize(module)
    if not attrs["observer_enabled"] or random.random() < 0.3:
        module(next_x())  # a state that has observed
    initial = {key: value.clone() for key, value in module.state_dict().items()}
    module.train(attrs["train"])
    if attrs["frozen_bn"]:
        module.freeze_bn_stats()
    module.weight_fake_quant.enable_fake_quant(bool(attrs["fake_quant_enabled"]))
    module.weight_fake_quant.enable_observer(bool(attrs["observer_enabled"]))
    steps = [{"x": next_x()} for _ in range(random.randint(1, 3))]
    results = [run_step(module, step, attrs["fake_quant_enabled"]) for step in steps]
    suite.add("qat_module", attrs, {"state_dict": initial, "steps": steps}, {"steps": results},
              COMPARE)


def main():
    given = arguments(500)
    suite = Suite("qat_modules", given.seed, "PyTorch qat modules")
    while not suite.is_full(given):
        try:
            add_case(suite)
        except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
            print("refused by torch:", type(error).__name__, str(error).split("\n")[0][:150])
    suite.save(given.out)


if __name__ == "__main__":
    main()
