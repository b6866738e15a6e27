"""Writes prepared_names.txt: python prepared_names.py (PyTorch 2.15, torchvision 0.29).

The names, dtypes and sizes in the states of torchvision's prepared networks. A line is the number of
characters that a name shares with the one before, the rest of the name, dtype and sizes.
"""

import os
import pathlib

import torch
import torch.ao.quantization as quantization
from torchvision.models import quantization as networks

NETWORKS = ["mobilenet_v2", "mobilenet_v3_large", "resnet18", "resnet50"]


def prepared(name, qat):
    model = getattr(networks, name)(weights=None, quantize=False)
    model.train(qat)
    model.fuse_model(is_qat=qat)
    if qat:
        model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        model = quantization.prepare_qat(model)
    else:
        model.qconfig = quantization.get_default_qconfig("fbgemm")
        model = quantization.prepare(model)
    model(torch.rand(2, 3, 64, 64))
    return model.state_dict()


if __name__ == "__main__":
    lines = []
    for name in NETWORKS:
        for kind in ["ptq", "qat"]:
            lines.append(f"# {name} {kind}")
            before = ""
            for entry, value in prepared(name, kind == "qat").items():
                shared = len(os.path.commonprefix([before, entry]))
                before = entry
                dtype = str(value.dtype).removeprefix("torch.")
                sizes = "x".join(str(size) for size in value.shape) or "-"
                lines.append(f"{shared} {entry[shared:]} {dtype} {sizes}")
    path = pathlib.Path(__file__).with_name("prepared_names.txt")
    path.write_text("\n".join(lines) + "\n")
