"""Random cases like those of the golden suite `pipeline`."""

import copy
import random

import torch
from torch import nn
import torch.ao.nn.quantized as nnq
from torch.ao.quantization import (convert, fuse_modules, get_default_qat_qconfig,
                                   get_default_qconfig, prepare, prepare_qat, quantize_dynamic)
from torch.ao.quantization import qconfig as qc
from torch.ao.quantization.fake_quantize import FakeQuantizeBase
from torch.ao.quantization.fuse_modules import fuse_modules_qat

import networks as nets
from common import Suite, arguments, within

STATIC = within(1e-4, 2e-6, 1, 0.98)
DYNAMIC = within(1e-4, 2e-5)
QAT = within(1e-3, 1e-4, 2, 0.9)
STATIC_NETS = [nets.cnn_stack, nets.cnn_stack, nets.conv1d_net, nets.conv3d_net, nets.residual,
               nets.mobilenet_block, nets.se_block, nets.concat, nets.mlp, nets.norms_acts,
               nets.norms_acts, nets.upconv, nets.resize_net, nets.pooled_acts]
QAT_NETS = [nets.cnn_stack, nets.residual, nets.mlp, nets.conv1d_net, nets.concat,
            nets.mobilenet_block, nets.norms_head, nets.norms_head, nets.se_block]


def qconfig_named(name):
    is_backend = name in ("fbgemm", "x86", "qnnpack", "onednn")
    return get_default_qconfig(name) if is_backend else getattr(qc, name)


# Comparing two runs of torch ----------------------------------------------------------------------

def same(a, b, rule):
    """Whether two results are alike by the rule of a case."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], rule) for k in a)
    if isinstance(a, str):
        return a == b
    if not isinstance(a, torch.Tensor):
        return abs(a - b) <= rule["atol"] + rule["rtol"] * abs(b) if isinstance(a, float) else a == b
    if a.is_quantized:
        return same_codes(a.int_repr(), b.int_repr(), rule)
    if not a.is_floating_point():
        return bool((a == b).all())
    return bool(torch.isclose(a, b, rtol=rule["rtol"] / 2, atol=rule["atol"] / 2).all())


def same_codes(a, b, rule):
    if a.numel() == 0:
        return True
    off = (a.int() - b.int()).abs()
    return off.max() <= rule["max_int_diff"] and (off == 0).float().mean() >= rule["min_exact"]


def noisy_state(network):
    """A copy whose parameters are off in their last bits."""
    copied = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(1 + 2e-7 * torch.randn_like(parameter))
    return copied


def noisy(tensors):
    return [t if not t.is_floating_point() else t * (1 + 2e-7 * torch.randn_like(t))
            for t in tensors]


# Static -------------------------------------------------------------------------------------------

def observer_entry(observer):
    scale, zero_point = observer.calculate_qparams()
    entry = {"type": type(observer).__name__, "scale": scale, "zero_point": zero_point}
    for name in ("min_val", "max_val"):
        if hasattr(observer, name):
            entry[name] = getattr(observer, name).clone()
    return entry


def observers_of(prepared):
    return {path: observer_entry(module.activation_post_process)
            for path, module in prepared.named_modules()
            if hasattr(module, "activation_post_process")
            and not isinstance(module, FakeQuantizeBase)}


def module_entry(module):
    entry = {"type": type(module).__name__, "scale": float(module.scale),
             "zero_point": int(module.zero_point)}
    for name in ("weight", "bias"):
        value = getattr(module, name, None)
        value = value() if callable(value) else value
        if value is not None:
            entry[name] = value.detach()
    return entry


def quantized_modules_of(converted):
    return {path: module_entry(module) for path, module in converted.named_modules()
            if hasattr(module, "scale") and hasattr(module, "zero_point")}


def is_leaf(module):
    """Linear keeps its weight in a child."""
    return not list(module.children()) or isinstance(module, nnq.Linear)


class Recorder:
    """What quantized modules give, and what enters the last DeQuantize."""

    def __init__(self, converted):
        self.net, self.activations, self.y = converted, {}, None
        for path, module in converted.named_modules():
            if isinstance(module, nnq.QFunctional):
                module.activation_post_process.register_forward_hook(self.noting(path))
            elif isinstance(module, nnq.DeQuantize):
                module.register_forward_pre_hook(self.note_y)
            elif is_leaf(module) and not isinstance(module, nn.Identity):
                module.register_forward_hook(self.noting(path))

    def noting(self, path):
        def note(module, inputs, output):
            if isinstance(output, torch.Tensor) and output.is_quantized:
                self.activations[path] = output.clone()
        return note

    def note_y(self, module, inputs):
        self.y = inputs[0]

    def __call__(self, x):
        result = self.net(x)
        return result if self.y is None else self.y


def run_static(network, fuse, qconfig, calibration, x):
    outputs = {"float_y": network(x)}
    fused = fuse_modules(copy.deepcopy(network), fuse) if fuse else copy.deepcopy(network)
    fused.qconfig = qconfig_named(qconfig)
    prepared = prepare(fused)
    for batch in calibration:
        prepared(batch)
    outputs["observers"] = observers_of(prepared)
    converted = convert(prepared)
    outputs["modules"] = quantized_modules_of(converted)
    recorder = Recorder(converted)
    y = recorder(x)
    return outputs | {"activations": recorder.activations, "y": y}


def add_static(suite):
    name, chain = random.choice(suite.nets)()
    qconfig, engine = ("default_qconfig", "fbgemm") if suite.only_min_max else random.choice([
        ("fbgemm", "fbgemm"), ("x86", "x86"), ("qnnpack", "fbgemm"), ("default_qconfig", "fbgemm")])
    if name == "upconv":
        qconfig, engine = "default_qconfig", "fbgemm"
    torch.backends.quantized.engine = engine
    network = nets.Network(chain.modules).eval()
    nets.randomize(network)
    with torch.no_grad():
        check_static(suite, name, chain, network, qconfig, engine)


def check_static(suite, name, chain, network, qconfig, engine):
    shape = chain.input_shape
    calibration = [torch.randn(shape) for _ in range(random.randint(1, 3))]
    x = torch.randn(shape)
    outputs = run_static(network, chain.fuse, qconfig, calibration, x)
    for _ in range(3):
        again = run_static(noisy_state(network), chain.fuse, qconfig, noisy(calibration),
                           noisy([x])[0])
        if not same(again, outputs, STATIC):
            suite.unstable += 1
            return
    suite.add("static_pipeline",
              {"name": name, "modules": chain.modules, "fuse": chain.fuse, "qconfig": qconfig,
               "engine": engine},
              {"state_dict": dict(network.state_dict()), "calibration": calibration, "x": x},
              outputs, STATIC)


# Dynamic ------------------------------------------------------------------------------------------

def recurrent_net():
    kind = random.choice(["LSTM", "GRU"])
    args = {"batch_first": True, "input_size": random.randint(1, 12),
            "hidden_size": random.randint(1, 12)}
    if nets.chance(0.4):
        args["num_layers"] = 2
    if nets.chance(0.4):
        args["bidirectional"] = True
    width = args["hidden_size"] * (2 if args.get("bidirectional") else 1)
    modules = [{"name": "rnn", "type": kind, "args": args}, {"name": "last", "type": "LastStep"},
               {"name": "fc", "type": "Linear",
                "args": {"in_features": width, "out_features": random.randint(1, 6)}}]
    x = torch.randn(random.randint(1, 4), random.randint(1, 6), args["input_size"])
    qconfig = random.choice(["default_dynamic_qconfig", "float16_dynamic_qconfig",
                             "per_channel_dynamic_qconfig"])
    spec = random.choice([{kind: qconfig, "Linear": qconfig}, {kind: qconfig}, {"Linear": qconfig},
                          {"rnn": qconfig}, {"rnn": qconfig, "fc": "default_dynamic_qconfig"}])
    return f"{kind.lower()}_classifier", modules, x, spec


def mlp_net():
    sizes = [random.randint(1, 40) for _ in range(3)]
    modules = [{"name": "fc1", "type": "Linear",
                "args": {"in_features": sizes[0], "out_features": sizes[1]}},
               {"name": "act", "type": random.choice(["ReLU", "Tanh", "GELU"])},
               {"name": "fc2", "type": "Linear",
                "args": {"in_features": sizes[1], "out_features": sizes[2], "bias": False}}]
    x = torch.randn(random.choice([[6, sizes[0]], [1, sizes[0]], [2, 3, sizes[0]]]))
    qconfig = random.choice(["default_dynamic_qconfig", "float16_dynamic_qconfig",
                             "per_channel_dynamic_qconfig"])
    return "mlp_dynamic", modules, x, random.choice([{"Linear": qconfig}, {"fc2": qconfig},
                                                     {"fc1": qconfig}])


def bag_net():
    count, dim = random.randint(2, 20), 2 * random.randint(1, 8)
    args = {"num_embeddings": count, "embedding_dim": dim, "mode": "sum"}
    modules = [{"name": "emb", "type": "EmbeddingBag", "args": args},
               {"name": "fc", "type": "Linear", "args": {"in_features": dim, "out_features": 3}}]
    x = torch.randint(count, [random.randint(1, 5), random.randint(1, 6)])
    qconfig = random.choice(["float_qparams_weight_only_qconfig",
                             "float_qparams_weight_only_qconfig_4bit"])
    spec = {"EmbeddingBag": qconfig}
    if nets.chance(0.7):
        spec["Linear"] = "default_dynamic_qconfig"
    return "bag_classifier", modules, x, spec


def weight_and_bias(module):
    entry = {"weight": module.weight()}
    bias = module.bias() if hasattr(module, "bias") else None
    return entry if bias is None else entry | {"bias": bias.detach()}


def dynamic_entry(module):
    kind = type(module)
    if "dynamic" not in kind.__module__ and kind is not nnq.EmbeddingBag:
        return None
    if kind.__name__ == "Linear":
        return {"type": "Linear"} | weight_and_bias(module) if module.weight().is_quantized else None
    if kind is nnq.EmbeddingBag:
        return {"type": "EmbeddingBag", "weight": module.weight()}
    if kind.__name__ not in ("LSTM", "GRU"):
        return None
    weights = module.get_weight()
    if not all(w.is_quantized for w in weights.values()):
        return None
    return {"type": kind.__name__, "weights": weights, "biases": module.get_bias()}


ALIVE = []  # the scales of embedding weights lie in the modules that they come from


def run_dynamic(network, spec, x):
    by_type = {getattr(nn, key, key): getattr(qc, value) for key, value in spec.items()}
    dynamic = quantize_dynamic(copy.deepcopy(network), by_type)
    ALIVE.append(dynamic)
    entries = {path: dynamic_entry(module) for path, module in dynamic.named_modules()}
    return {"float_y": network(x), "y": dynamic(x),
            "modules": {path: entry for path, entry in entries.items() if entry}}


def add_dynamic(suite):
    torch.backends.quantized.engine = "x86"
    name, modules, x, spec = random.choice([recurrent_net, mlp_net, bag_net])()
    network = nets.Network(modules).eval()
    with torch.no_grad():
        outputs = run_dynamic(network, spec, x)
        for _ in range(3):
            again = run_dynamic(network, spec, noisy([x])[0])
            if not same(again, outputs, DYNAMIC):
                suite.unstable += 1
                return
        suite.add("dynamic_pipeline",
                  {"name": name, "modules": modules, "engine": "x86", "qconfig_spec": spec},
                  {"state_dict": dict(network.state_dict()), "x": x}, outputs, DYNAMIC)


# QAT ----------------------------------------------------------------------------------------------

def fake_quantizers_of(prepared):
    found = {}
    for path, module in prepared.named_modules():
        observer = getattr(module, "activation_post_process", None)
        if observer is None or ".weight_fake_quant" in f".{path}":
            continue
        found[path] = observer_entry(observer)
    return found


def run_qat(network, case):
    net = copy.deepcopy(network).train()
    if case["fuse"]:
        net = fuse_modules_qat(net, case["fuse"])
    net.qconfig = get_default_qat_qconfig(case["qconfig"])
    prepared = prepare_qat(net)
    settings = {k: v for k, v in case["optimizer"].items() if k != "class"}
    optimizer = torch.optim.SGD(prepared.parameters(), **settings)
    losses = []
    for batch, target in zip(case["batches"], case["targets"]):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(prepared(batch), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    outputs = {"losses": torch.stack(losses),
               "state_dict": {k: v.detach().clone() for k, v in prepared.state_dict().items()},
               "observers": fake_quantizers_of(prepared)}
    converted = convert(prepared.eval())
    with torch.no_grad():
        return outputs | {"modules": quantized_modules_of(converted),
                          "y": Recorder(converted)(case["x"])}


def add_qat(suite):
    name, chain = random.choice(QAT_NETS)()
    if chain.input_shape[0] < 2 or "mp" in chain.counts:
        return
    engine = random.choice(["fbgemm", "x86"])
    torch.backends.quantized.engine = engine
    network = nets.Network(chain.modules)
    nets.randomize(network)
    count, classes = random.randint(1, 5), chain.shape[-1]
    shape = chain.input_shape
    case = {"fuse": chain.fuse, "qconfig": engine,
            "optimizer": {"class": "SGD", "lr": random.choice([0.05, 0.02]),
                          "momentum": random.choice([0.0, 0.9]),
                          "weight_decay": random.choice([0.0, 1e-4])},
            "batches": [torch.randn(shape) for _ in range(count)],
            "targets": [torch.randint(classes, shape[:1]) for _ in range(count)],
            "x": torch.randn(shape)}
    outputs = run_qat(network, case)
    for i in range(6):
        with torch.backends.mkldnn.flags(enabled=i % 2 == 0):
            again = run_qat(noisy_state(network), case | {"batches": noisy(case["batches"])})
        if not same(again, outputs, QAT):
            suite.unstable += 1
            return
    suite.add("qat_pipeline",
              {"name": name, "modules": chain.modules, "fuse": chain.fuse, "qconfig": engine,
               "engine": engine, "loss": "CrossEntropyLoss", "optimizer": case["optimizer"]},
              {"state_dict": dict(network.state_dict()), "batches": case["batches"],
               "targets": case["targets"], "x": case["x"]}, outputs, QAT)


def main():
    given = arguments(300, weights=[6, 3, 1.5])
    suite = Suite("pipeline", given.seed, "PyTorch eager workflow")
    suite.unstable, suite.nets = 0, STATIC_NETS
    suite.only_min_max = given.net is not None
    if given.net:
        suite.nets = [getattr(nets, given.net)]
    while not suite.is_full(given):
        maker = random.choices([add_static, add_dynamic, add_qat], given.weights)[0]
        try:
            maker(suite)
        except (RuntimeError, AssertionError, ValueError, TypeError, AttributeError,
                NotImplementedError, IndexError) as error:
            print("refused by torch:", maker.__name__, type(error).__name__,
                  str(error).split("\n")[0][:150])
    suite.save(given.out)
    print("unstable draws left out:", suite.unstable)


if __name__ == "__main__":
    main()
