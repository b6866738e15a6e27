#!/usr/bin/env python3
"""Writes benchmark networks for tools/bench/peers.py: the same weights for Quanta and for its peers.

    peer_models.py FOLDER [--model NAME...]

Needs a Python with torch, torchvision and safetensors. Below FOLDER/NAME, of random weights of a fixed
seed whose signal neither dies out nor grows: float.safetensors (the names of Quanta's network of that
name), float.onnx (opset 17, any batch), calib.safetensors (x, inputs to calibrate with) and
eval.safetensors (x and float_out, to compare with). tools/bench/peer_files.py quantizes them for the
peers; Quanta quantizes float.safetensors itself.

The networks are those of tools/cli/networks.cpp that the side-by-side harness does not have.
"""

import argparse
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = 20261123
EVALUATED = 16


def conv_norm_silu(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, (size - 1) // 2, bias=False), nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class Bottleneck(nn.Module):
    def __init__(self, channels, adds):
        super().__init__()
        self.cv1, self.cv2, self.adds = conv_norm_silu(channels, channels, 1), conv_norm_silu(channels, channels, 3), adds

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.adds else y


class CspBlock(nn.Module):
    def __init__(self, inputs, outputs, count, adds):
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2, self.cv3 = conv_norm_silu(inputs, half, 1), conv_norm_silu(inputs, half, 1), conv_norm_silu(2 * half, outputs, 1)
        self.m = nn.Sequential(*(Bottleneck(half, adds) for _ in range(count)))

    def forward(self, x):
        return self.cv3(torch.cat([self.m(self.cv1(x)), self.cv2(x)], 1))


class PoolPyramid(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.cv1, self.cv2, self.pool = conv_norm_silu(inputs, inputs // 2, 1), conv_norm_silu(2 * inputs, outputs, 1), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        y0 = self.cv1(x)
        y1 = self.pool(y0)
        y2 = self.pool(y1)
        return self.cv2(torch.cat([y0, y1, y2, self.pool(y2)], 1))


class Detector(nn.Module):
    """tools/networks/detector.h."""

    def __init__(self, outputs=255):
        super().__init__()
        self.stem, self.down2 = conv_norm_silu(3, 16, 6, 2), conv_norm_silu(16, 32, 3, 2)
        self.down3, self.down4, self.down5 = conv_norm_silu(32, 64, 3, 2), conv_norm_silu(64, 128, 3, 2), conv_norm_silu(128, 256, 3, 2)
        self.csp2, self.csp3 = CspBlock(32, 32, 1, True), CspBlock(64, 64, 2, True)
        self.csp4, self.csp5 = CspBlock(128, 128, 3, True), CspBlock(256, 256, 1, True)
        self.pyramid = PoolPyramid(256, 256)
        self.narrow5, self.narrow4 = conv_norm_silu(256, 128, 1), conv_norm_silu(128, 64, 1)
        self.up4, self.up3 = CspBlock(256, 128, 1, False), CspBlock(128, 64, 1, False)
        self.reduce3, self.reduce4 = conv_norm_silu(64, 64, 3, 2), conv_norm_silu(128, 128, 3, 2)
        self.out4, self.out5 = CspBlock(128, 128, 1, False), CspBlock(256, 256, 1, False)
        self.head3, self.head4, self.head5 = nn.Conv2d(64, outputs, 1), nn.Conv2d(128, outputs, 1), nn.Conv2d(256, outputs, 1)

    def forward(self, image):
        def enlarge(x):
            return F.interpolate(x, scale_factor=2.0)

        x3 = self.csp3(self.down3(self.csp2(self.down2(self.stem(image)))))
        x4 = self.csp4(self.down4(x3))
        y5 = self.narrow5(self.pyramid(self.csp5(self.down5(x4))))
        y4 = self.narrow4(self.up4(torch.cat([enlarge(y5), x4], 1)))
        z3 = self.up3(torch.cat([enlarge(y4), x3], 1))
        z4 = self.out4(torch.cat([self.reduce3(z3), y4], 1))
        z5 = self.out5(torch.cat([self.reduce4(z4), y5], 1))
        return torch.cat([self.head3(z3).flatten(2), self.head4(z4).flatten(2), self.head5(z5).flatten(2)], 2)


class Crnn(nn.Module):
    """tools/networks/crnn.h."""

    def __init__(self, classes=37):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 64, 3, 1, 1), nn.Conv2d(64, 128, 3, 1, 1)
        self.conv3, self.conv4 = nn.Conv2d(128, 256, 3, 1, 1, bias=False), nn.Conv2d(256, 256, 3, 1, 1)
        self.conv5, self.conv6 = nn.Conv2d(256, 512, 3, 1, 1, bias=False), nn.Conv2d(512, 512, 3, 1, 1)
        self.conv7 = nn.Conv2d(512, 512, 2, bias=False)
        self.bn3, self.bn5, self.bn7 = nn.BatchNorm2d(256), nn.BatchNorm2d(512), nn.BatchNorm2d(512)
        self.lstm, self.fc = nn.LSTM(512, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, classes)

    def forward(self, image):
        low = F.max_pool2d(F.relu(self.conv2(F.max_pool2d(F.relu(self.conv1(image)), 2))), 2)
        middle = F.max_pool2d(F.relu(self.conv4(F.relu(self.bn3(self.conv3(low))))), (2, 1))
        high = F.max_pool2d(F.relu(self.conv6(F.relu(self.bn5(self.conv5(middle))))), (2, 1))
        columns = F.relu(self.bn7(self.conv7(high)))
        return self.fc(self.lstm(columns.permute(0, 3, 1, 2).flatten(2))[0])


def attend(query, key, value, heads):
    def split(x):
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    return F.scaled_dot_product_attention(split(query), split(key), split(value)).transpose(1, 2).flatten(2)


class VisionAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        return self.proj(attend(*self.qkv(x).chunk(3, -1), self.heads))


class VisionMlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class VisionBlock(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = VisionAttention(width, heads), VisionMlp(width, inner)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    def __init__(self, width, patch):
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class VisionTransformer(nn.Module):
    """nn/models/vision_transformer.h."""

    def __init__(self, width=192, heads=3, inner=768, layers=12, patches=196):
        super().__init__()
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, patches + 1, width))
        self.patch_embed = PatchEmbedding(width, 16)
        self.blocks = nn.ModuleList([VisionBlock(width, heads, inner) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x):
        patches = self.patch_embed(x)
        y = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], 1) + self.pos_embed
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)[:, 0])


class EncoderLayer(nn.Module):
    def __init__(self, width=768, heads=12, inner=3072):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.fc1, self.fc2, self.heads = nn.Linear(width, inner), nn.Linear(inner, width), heads

    def forward(self, x):
        x = self.ln1(x + self.out(attend(self.query(x), self.key(x), self.value(x), self.heads)))
        return self.ln2(x + self.fc2(F.gelu(self.fc1(x))))


class EncoderClassifier(nn.Module):
    """nn/models/encoder_classifier.h."""

    def __init__(self, layers, width=768):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(width) for _ in range(layers)])
        self.pooler, self.fc = nn.Linear(width, width), nn.Linear(width, 1000)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.fc(torch.tanh(self.pooler(x[:, 0])))


class TwoTower(nn.Module):
    """tools/networks/two_tower.h."""

    def __init__(self, features=512):
        super().__init__()
        self.user, self.item = (self.tower(features) for _ in range(2))
        self.score = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    @staticmethod
    def tower(features):
        widths = (features, 512, 512, 256, 128)
        layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in zip(widths, widths[1:])]
        return nn.Sequential(*(module for pair in layers for module in pair))

    def forward(self, x):
        user, item = x.chunk(2, 1)
        return self.score(torch.cat([self.user(user), self.item(item)], 1))


def efficientnet_b0():
    import torchvision

    return torchvision.models.efficientnet_b0(weights=None)


# name: how it is made, sizes of an input
MODELS = {
    "efficientnet_b0": (efficientnet_b0, (3, 224, 224)),
    "yolo_n": (Detector, (3, 320, 320)),
    "crnn": (Crnn, (1, 32, 160)),
    "vit_tiny": (VisionTransformer, (3, 224, 224)),
    "bert_base": (lambda: EncoderClassifier(12), (128, 768)),
    "distilbert_16": (lambda: EncoderClassifier(6), (16, 768)),
    "distilbert_512": (lambda: EncoderClassifier(6), (512, 768)),
    "two_tower": (TwoTower, (1024,)),
}


def make_inputs(sizes, count, seed):
    """With structure, so that results differ: pictures of several scales, tokens and features of unit variance."""
    generator = torch.Generator().manual_seed(seed)

    def random(*dims):
        return torch.randn(*dims, generator=generator)

    if len(sizes) == 1:
        return random(count, *sizes)
    if len(sizes) == 2:
        return F.layer_norm(random(count, *sizes) + random(count, 1, sizes[1]), (sizes[1],))
    x = 0.3 * random(count, *sizes)
    for parts in (1, 2, 4, 8, 16):
        x = x + 0.6 * F.interpolate(random(count, sizes[0], parts, parts), size=sizes[1:], mode="bilinear")
    return x.clamp(-2.5, 2.5)


@torch.no_grad()
def build(name):
    make, sizes = MODELS[name]
    torch.manual_seed(SEED)
    model = make()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 1 / math.sqrt(module.in_features))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.15)
            module.momentum = None  # the average of what follows
    for module in model.modules():
        # What a trained network adds to its trunk is small beside it; without this noise grows.
        last = module.cv2[1] if isinstance(module, Bottleneck) else module.block[-1][1] if type(module).__name__ == "MBConv" else None
        if last is not None:
            last.weight.mul_(0.3)
        if type(module).__name__ == "SqueezeExcitation":
            module.fc2.weight.mul_(0.2)
    for parameter in ("cls_token", "pos_embed"):
        if hasattr(model, parameter):
            getattr(model, parameter).normal_(0, 0.5)
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        model.train()
        for module in model.modules():
            if isinstance(module, nn.Dropout) or "StochasticDepth" in type(module).__name__:
                module.eval()
        for seed in range(4):
            model(make_inputs(sizes, 16, 100 + seed))
    return model.eval(), sizes


@torch.no_grad()
def write(name, folder):
    from safetensors.torch import save_file

    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    model, sizes = build(name)
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_file(state, os.path.join(path, "float.safetensors"))
    torch.onnx.export(model, (make_inputs(sizes, 1, 1),), os.path.join(path, "float.onnx"), dynamo=False, opset_version=17,
                      input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})  # fmt: skip
    save_file({"x": make_inputs(sizes, 16, 2)}, os.path.join(path, "calib.safetensors"))
    x = make_inputs(sizes, EVALUATED, 3)
    expected = torch.cat([model(part) for part in x.split(4)])
    save_file({"x": x, "float_out": expected}, os.path.join(path, "eval.safetensors"))
    print(f"{path}: written", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS), help="these networks (default: all)")
    options = parser.parse_args()
    for name in options.model:
        write(name, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
