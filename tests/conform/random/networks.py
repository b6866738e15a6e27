"""Networks of the pipeline suite: descriptions as JSON, and torch modules made from them."""

import random

import torch
from torch import nn
from torch.ao.nn.quantized import FloatFunctional
from torch.ao.quantization import DeQuantStub, QuantStub

SPECIAL = {"QuantStub": QuantStub, "DeQuantStub": DeQuantStub}


# Modules ------------------------------------------------------------------------------------------

class LastStep(nn.Module):
    def forward(self, output):
        return output[0][:, -1]


class Block(nn.Module):
    """Children in named lists, and the functional that joins them."""

    def __init__(self, description):
        super().__init__()
        self.functional_name = description.get("functional", "functional")
        self.add_module(self.functional_name, FloatFunctional())

    def add(self, parts):
        for part in parts:
            self.add_module(part["name"], make_module(part))
        return [part["name"] for part in parts]

    def run(self, names, x):
        for name in names:
            x = getattr(self, name)(x)
        return x

    @property
    def f(self):
        return getattr(self, self.functional_name)


class Residual(Block):
    def __init__(self, description):
        super().__init__(description)
        self.main = self.add(description["children"])
        self.skip = self.add(description.get("shortcut", []))
        self.relu = description.get("relu", False)

    def forward(self, x):
        join = self.f.add_relu if self.relu else self.f.add
        return join(self.run(self.main, x), self.run(self.skip, x))


class SqueezeExcite(Block):
    def __init__(self, description):
        super().__init__(description)
        self.main = self.add(description["children"])

    def forward(self, x):
        return self.f.mul(x, self.run(self.main, x))


class Concat(Block):
    def __init__(self, description):
        super().__init__(description)
        self.branches = [self.add(branch) for branch in description["branches"]]
        self.dim = description.get("dim", 1)

    def forward(self, x):
        return self.f.cat([self.run(branch, x) for branch in self.branches], self.dim)


BLOCKS = {"Residual": Residual, "SqueezeExcite": SqueezeExcite, "Concat": Concat}


def make_module(description):
    kind = description["type"]
    if kind in BLOCKS:
        return BLOCKS[kind](description)
    if kind == "LastStep":
        return LastStep()
    cls = SPECIAL.get(kind) or getattr(nn, kind)
    return cls(**description.get("args", {}))


class Network(nn.Module):
    def __init__(self, descriptions):
        super().__init__()
        self.order = [d["name"] for d in descriptions]
        for description in descriptions:
            self.add_module(description["name"], make_module(description))

    def forward(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return x


def randomize(network):
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.copy_(torch.randn_like(module.running_mean) * 0.2)
                module.running_var.copy_(torch.rand_like(module.running_var) + 0.5)
            if isinstance(module, (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)):
                if module.weight is not None:
                    module.weight.copy_(torch.rand_like(module.weight) + 0.5)
                    module.bias.copy_(torch.randn_like(module.bias) * 0.2)


# Descriptions -------------------------------------------------------------------------------------

def chance(probability):
    return random.random() < probability


class Chain:
    """A list of modules in the making: the shape of what comes out so far, and what to fuse."""

    def __init__(self, shape, prefix=""):
        self.modules, self.fuse, self.shape, self.prefix = [], [], list(shape), prefix
        self.counts = {}

    @property
    def rank(self):
        return len(self.shape) - 2

    def add(self, kind, stem=None, **args):
        stem = stem or kind.lower()
        number = self.counts.get(stem, 0)
        self.counts[stem] = number + 1
        name = f"{stem}{number}" if number or stem in ("conv", "fc", "bn", "relu") else stem
        entry = {"name": name, "type": kind}
        if args:
            entry["args"] = args
        self.modules.append(entry)
        return self.prefix + name

    def measure(self):
        """The shape after the last module, from running it."""
        with torch.no_grad():
            self.shape = list(make_module(self.modules[-1]).eval()(torch.zeros(self.shape)).shape)

    def conv(self, out=None, kernel=None, stride=None, padding=None, groups=1, act="maybe",
             norm=None, bias=None, fused=True):
        rank, channels = self.rank, self.shape[1]
        kernel = kernel or random.randint(1, 3)
        while kernel > min(self.shape[2:]):
            kernel -= 1
        args = {"in_channels": channels, "out_channels": out or random.randint(2, 10),
                "kernel_size": kernel}
        stride = stride if stride is not None else random.choice([1, 1, 2])
        padding = padding if padding is not None else random.randint(0, kernel // 2)
        args |= {k: v for k, v in (("stride", stride), ("padding", padding), ("groups", groups))
                 if v != (0 if k == "padding" else 1)}
        if bias is False or (bias is None and chance(0.4)):
            args["bias"] = False
        names = [self.add(f"Conv{rank}d", "conv", **args)]
        self.measure()
        self.norm_and_act(names, norm, act, fused)

    def norm_and_act(self, names, norm, act, fused, features=None):
        if norm or (norm is None and chance(0.7)):
            kind = f"BatchNorm{max(self.rank, 1)}d"
            names.append(self.add(kind, "bn", num_features=features or self.shape[1]))
        if act == "relu" or (act == "maybe" and chance(0.7)):
            names.append(self.add("ReLU", "relu"))
        if len(names) > 1 and fused:
            self.fuse.append(names)

    def linear(self, out, act="maybe", norm=False):
        args = {"in_features": self.shape[-1], "out_features": out}
        if chance(0.3):
            args["bias"] = False
        names = [self.add("Linear", "fc", **args)]
        self.measure()
        if norm:  # torch fuses linear and batch norm, but not all three, outside of training
            act = "none"
        self.norm_and_act(names, norm, act, True, features=out)

    def plain(self, kind, stem=None, **args):
        self.add(kind, stem, **args)
        self.measure()

    def block(self, kind, name, functional, **parts):
        self.modules.append({"name": name, "type": kind, "functional": functional} | parts)
        self.measure()

    def head(self, classes):
        self.plain(f"AdaptiveAvgPool{self.rank}d", "pool", output_size=random.choice([1, 1, 2]))
        self.plain("Flatten", "flat")
        self.linear(classes, act="none")


def start(shape):
    chain = Chain(shape)
    chain.input_shape = list(shape)
    chain.add("QuantStub", "quant")
    return chain


def finish(chain):
    chain.add("DeQuantStub", "dequant")
    return chain


def sizes(rank, low=7, high=13):
    return [random.randint(low if rank < 3 else 4, high if rank < 3 else 7) for _ in range(rank)]


def cnn_stack(rank=2):
    chain = start([random.randint(1, 4), random.randint(1, 5), *sizes(rank)])
    for _ in range(random.randint(1, 3)):
        chain.conv(fused=chance(0.85))
        if chance(0.35) and min(chain.shape[2:]) >= 2:
            chain.plain(f"{random.choice(['Max', 'Avg'])}Pool{rank}d", "mp", kernel_size=2,
                        **random.choice([{}, {"stride": 1}, {"ceil_mode": True}]))
    chain.head(random.randint(2, 6))
    return "cnn_stack", finish(chain)


def conv1d_net():
    return "conv1d_net", cnn_stack(1)[1]


def conv3d_net():
    return "conv3d_net", cnn_stack(3)[1]


def inner(chain, name):
    return Chain(chain.shape, name + ".")


def residual_block(chain, name):
    part, channels = inner(chain, name), chain.shape[1]
    with_shortcut = chance(0.5)
    out = random.randint(2, 10) if with_shortcut else channels
    stride = random.choice([1, 2]) if with_shortcut else 1
    part.conv(channels, 3, stride, 1, act="relu", norm=True)
    part.conv(out, 3, 1, 1, act="none", norm=chance(0.8))
    parts = {"children": part.modules}
    if chance(0.5):
        parts["relu"] = True
    if with_shortcut:
        skip = inner(chain, name)
        skip.counts = {"conv": 7, "bn": 7}
        skip.conv(out, 1, stride, 0, act="none", norm=chance(0.7))
        parts["shortcut"] = skip.modules
        part.fuse += skip.fuse
    chain.fuse += part.fuse
    chain.block("Residual", name, "skip_add", **parts)


def residual():
    chain = start([random.randint(1, 3), random.randint(1, 4), *sizes(2)])
    chain.conv(act="relu", norm=True)
    for i in range(random.randint(1, 2)):
        residual_block(chain, f"block{i + 1}")
    chain.head(random.randint(2, 6))
    return "residual", finish(chain)


def mobilenet_block():
    chain = start([random.randint(1, 3), 3, *sizes(2, 9, 13)])
    chain.conv(stride=2, act="relu", norm=True)
    part, channels = inner(chain, "ir"), chain.shape[1]
    middle = channels * random.randint(1, 3)
    part.conv(middle, 1, 1, 0, act="relu", norm=True, bias=False)
    part.conv(middle, 3, 1, 1, groups=middle, act="relu", norm=True, bias=False)
    part.conv(channels, 1, 1, 0, act="none", norm=True, bias=False)
    chain.fuse += part.fuse
    chain.block("Residual", "ir", "skip_add", children=part.modules)
    chain.conv(channels, 3, 1, 1, groups=channels, act="none")
    chain.plain("ReLU6", "r6")
    chain.head(random.randint(2, 6))
    return "mobilenet_block", finish(chain)


def se_block():
    chain = start([random.randint(1, 3), random.randint(1, 4), *sizes(2)])
    chain.conv(act="none", norm=True, padding=1, kernel=3)
    chain.plain("Hardswish", "hs")
    part, channels = inner(chain, "se"), chain.shape[1]
    part.plain("AdaptiveAvgPool2d", "pool", output_size=1)
    part.conv(random.randint(2, 5), 1, 1, 0, act="relu", norm=False)
    part.conv(channels, 1, 1, 0, act="none", norm=False)
    part.plain(random.choice(["Sigmoid", "Sigmoid", "Hardsigmoid"]), "gate")
    chain.fuse += part.fuse
    chain.block("SqueezeExcite", "se", "mul", children=part.modules)
    chain.conv(act="none")
    chain.plain("Hardswish", "hs")
    chain.head(random.randint(2, 6))
    return "se_block", finish(chain)


def concat():
    chain = start([random.randint(1, 3), random.randint(1, 4), *sizes(2)])
    chain.conv(act="relu", norm=True)
    branches, counts = [], {}
    for i in range(random.randint(2, 3)):
        part = inner(chain, "mix")
        part.counts = counts
        counts.setdefault("conv", 1), counts.setdefault("bn", 1), counts.setdefault("relu", 1)
        if chance(0.3):
            part.plain(f"{random.choice(['Avg', 'Max'])}Pool2d", "ap", kernel_size=3, stride=1,
                       padding=1)
        kernel = random.choice([1, 3])
        part.conv(kernel=kernel, stride=1, padding=kernel // 2, act="relu")
        chain.fuse += part.fuse
        branches.append(part.modules)
    chain.block("Concat", "mix", "cat", branches=branches)
    chain.head(random.randint(2, 6))
    return "concat", finish(chain)


def mlp():
    chain = start([random.randint(2, 9), random.randint(2, 40)])
    for _ in range(random.randint(1, 3)):
        chain.linear(random.randint(2, 40), norm=chance(0.25))
    if chance(0.3):
        chain.plain("Dropout", "drop", p=0.5)
    chain.linear(random.randint(2, 6), act="none")
    return "mlp", finish(chain)


def random_activation(chain):
    kind, args = random.choice([
        ("ELU", {"alpha": 1.0}), ("ELU", {"alpha": 0.6}), ("LeakyReLU", {"negative_slope": 0.1}),
        ("Hardswish", {}), ("ReLU6", {}), ("Sigmoid", {}), ("Tanh", {}), ("ReLU", {}),
        ("Hardtanh", {}), ("Hardsigmoid", {}), ("PReLU", {}),
        ("PReLU", {"num_parameters": chain.shape[1]})])
    chain.plain(kind, "act", **args)


def random_norm(chain):
    channels, rank = chain.shape[1], chain.rank
    options = [("GroupNorm", {"num_groups": 2 if channels % 2 == 0 else 1, "num_channels": channels}),
               ("LayerNorm", {"normalized_shape": chain.shape[2:]}),
               ("LayerNorm", {"normalized_shape": chain.shape[-1:]})]
    if rank in (2, 3):
        options.append((f"BatchNorm{rank}d", {"num_features": channels}))
    options.append((f"InstanceNorm{rank}d", {"num_features": channels, "affine": True}))
    kind, args = random.choice(options)
    chain.plain(kind, "norm", **args)


def norms_acts():
    rank = random.choice([1, 2, 2, 2, 3])
    chain = start([random.randint(1, 3), 2 * random.randint(1, 3), *sizes(rank, 6, 9)])
    if rank > 1 and chance(0.4):
        chain.fuse.append([chain.add(f"BatchNorm{rank}d", "bn", num_features=chain.shape[1]),
                           chain.add("ReLU", "relu")])
    for _ in range(random.randint(1, 2)):
        chain.conv(norm=False, act="none", stride=1)
        steps = [random_norm, random_activation]
        random.shuffle(steps)
        for step in steps[:random.randint(1, 2)]:
            step(chain)
    if chance(0.3):
        chain.plain("Flatten", "flat", start_dim=random.choice([1, 2]))
    return "norms_acts", finish(chain)


def pooled_acts():
    """What averages round depends on the memory order that operations before them give."""
    rank = random.choice([1, 2, 2, 3])
    chain = start([random.randint(1, 3), 2 * random.randint(1, 3), *sizes(rank, 7, 11)])
    chain.conv(norm=chance(0.3), act="none", stride=1)
    if rank == 2 and chance(0.3):
        parts = []
        for name in ("a", "b"):
            part = inner(chain, "mix")
            part.plain("MaxPool2d", name, kernel_size=3, stride=1,
                       padding=1)
            if chance(0.5):
                part.plain("ELU", name + "_elu")
            parts.append(part.modules)
        chain.block("Concat", "mix", "cat", branches=parts)
    for step in random.choices([random_norm, random_activation], k=random.randint(0, 2)):
        step(chain)
    kind = random.choice(["AvgPool", "AvgPool", "AdaptiveAvgPool"])
    if min(chain.shape[2:]) >= 2:
        args = {"kernel_size": 2} if kind == "AvgPool" else {"output_size": random.choice([1, 2, 3])}
        chain.plain(f"{kind}{rank}d", "avg", **args)
    if chance(0.5):
        chain.plain("Flatten", "flat")
    return "pooled_acts", finish(chain)


def norms_head():
    """For training: what norms_acts has, and classes at the end."""
    chain = start([random.randint(2, 4), 2 * random.randint(1, 3), *sizes(2, 6, 9)])
    if chance(0.4):
        chain.fuse.append([chain.add("BatchNorm2d", "bn", num_features=chain.shape[1]),
                           chain.add("ReLU", "relu")])
    chain.conv(act="none", stride=1, kernel=random.choice([2, 3]))
    random_norm(chain)
    random_activation(chain)
    chain.head(random.randint(2, 6))
    return "norms_head", finish(chain)


def upconv():
    chain = start([random.randint(1, 3), random.randint(1, 4), *sizes(2, 6, 10)])
    chain.conv(act="relu")
    out = random.choice([2, 3, 5, 6, 7])
    args = {"in_channels": chain.shape[1], "out_channels": out, "kernel_size": random.choice([2, 3]),
            "stride": random.choice([1, 2])}
    chain.plain("ConvTranspose2d", "up", **args)
    chain.conv(kernel=1, act="none", norm=False)
    return "upconv", finish(chain)


def resize_net():
    chain = start([random.randint(1, 3), random.randint(1, 4), *sizes(2, 5, 8)])
    chain.conv(out=4 * random.randint(1, 2), act="relu")
    if chance(0.5):
        chain.plain("PixelShuffle", "shuffle", upscale_factor=2)
    else:
        chain.plain("Upsample", "upsample", **random.choice(
            [{"scale_factor": 2}, {"scale_factor": 2, "mode": "bilinear", "align_corners": False},
             {"size": [7, 9], "mode": "bilinear", "align_corners": True}]))
    chain.conv(act="none", norm=False)
    return "resize_net", finish(chain)
