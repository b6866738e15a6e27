"""Writes cross_layer_equalization.safetensors beside this file: what AIMET makes of a small network.

A convolution, a depthwise one and two more, with batch norms and ReLUs; `folded.*` are the weights
with the batch norms folded in, `gamma.*` and `beta.*` those of the batch norms, `scaled.*` the
weights after AIMET's cross-layer scaling, `absorbed.*` those after its high bias folding as well.

    python cross_layer_equalization.py        needs aimet-torch (2.42.0), safetensors
"""

import pathlib

import torch
from aimet_torch.batch_norm_fold import fold_all_batch_norms
from aimet_torch.cross_layer_equalization import CrossLayerScaling, HighBiasFold
from safetensors.torch import save_file


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.conv3 = torch.nn.Conv2d(8, 12, 1)
        self.conv4 = torch.nn.Conv2d(12, 6, 3, padding=1)
        for i, channels in enumerate((8, 8, 12, 6), 1):
            setattr(self, f"bn{i}", torch.nn.BatchNorm2d(channels))
            setattr(self, f"relu{i}", torch.nn.ReLU())

    def forward(self, x):
        for i in range(1, 5):
            x = getattr(self, f"conv{i}")(x)
            x = getattr(self, f"bn{i}")(x)
            x = getattr(self, f"relu{i}")(x)
        return x


def main():
    torch.manual_seed(20)
    net = Net().eval()
    out = {}
    for i in range(1, 5):
        norm = getattr(net, f"bn{i}")
        channels = norm.num_features
        norm.weight.data = torch.rand(channels) * 0.4 + 0.1
        norm.bias.data = torch.randn(channels) * 2
        norm.running_mean = torch.randn(channels)
        norm.running_var = torch.rand(channels) + 0.1
        out[f"gamma.conv{i}"] = norm.weight.data.clone()
        out[f"beta.conv{i}"] = norm.bias.data.clone()
    example = torch.randn(2, 3, 9, 9)
    folded = fold_all_batch_norms(net, None, dummy_input=example)

    def note(kind):
        for i in range(1, 5):
            conv = getattr(net, f"conv{i}")
            out[f"{kind}.conv{i}.weight"] = conv.weight.data.clone()
            out[f"{kind}.conv{i}.bias"] = conv.bias.data.clone()

    note("folded")
    sets = CrossLayerScaling.scale_model(net, dummy_input=example)
    note("scaled")
    HighBiasFold.bias_fold(sets, dict(folded))
    note("absorbed")
    save_file(out, pathlib.Path(__file__).with_suffix(".safetensors"))


if __name__ == "__main__":
    main()
