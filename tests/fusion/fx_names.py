"""Writes fx_names.txt: python fx_names.py (PyTorch 2.15, torchvision 0.29).

The names of the tensors in the states of torchvision's networks after convert_fx, as
read_pt_state_dict gives them. Lines as in prepared_names.txt, names alone.
"""

import os
import pathlib

import torch
import torchvision
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

NETWORKS = ["mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50"]


def names(name):
    x = torch.rand(2, 3, 64, 64)
    model = getattr(torchvision.models, name)(weights=None).eval()
    prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (x,))
    prepared(x)
    for entry, value in convert_fx(prepared).state_dict().items():
        if isinstance(value, torch.Tensor):
            yield entry
        elif isinstance(value, tuple):
            yield from (f"{entry}/{i}" for i, part in enumerate(value) if part is not None)


if __name__ == "__main__":
    lines = []
    for name in NETWORKS:
        lines.append(f"# {name}")
        before = ""
        for entry in names(name):
            shared = len(os.path.commonprefix([before, entry]))
            before = entry
            lines.append(f"{shared} {entry[shared:]}")
    path = pathlib.Path(__file__).with_name("fx_names.txt")
    path.write_text("\n".join(lines) + "\n")
