"""Writes the files beside it: python make_files.py (PyTorch 2.15, torchao 0.18, numpy)."""

import argparse
import collections
import enum
import pathlib

import numpy as np
import torch


class Color(enum.Enum):
    RED = 1


def net():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def checkpoint():
    """What training scripts save: a state_dict beside everything else."""
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return {
        "epoch": 3,
        "model": model.state_dict(),
        "ddp": {"module." + name: value for name, value in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "args": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("/tmp/x"), color=Color.RED),
        "best": np.float64(0.5),
        "array": np.arange(4),
        "path": pathlib.PurePosixPath("/tmp"),
        "color": Color.RED,
        "class": torch.nn.Linear,
        "function": torch.nn.functional.relu,
        "counter": collections.Counter("aab"),
        "slice": slice(1, 2),
        "whole": model,
    }


def torchao_state():
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    x = torch.rand(2, 32)
    quantize_(model, Int8WeightOnlyConfig())
    return model.state_dict(), x, model(x).detach()


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    torch.save(checkpoint(), folder / "checkpoint.pt")
    torch.save(checkpoint(), folder / "checkpoint_protocol4.pt", pickle_protocol=4)
    torch.save(net(), folder / "whole_module.pt")
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save({"model": net().state_dict(), "args": argparse.Namespace(lr=0.1)},
               folder / "checkpoint_legacy.pt", **legacy)
    state, x, y = torchao_state()
    torch.save(state, folder / "torchao_int8.pt")
    from safetensors.torch import save_file
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    tensors, metadata = flatten_tensor_state_dict(state)
    save_file(tensors, folder / "torchao_int8.safetensors", metadata)
    save_file({"x": x, "y": y}, folder / "torchao_int8_expected.safetensors")
