"""Random quantized tensors."""

import random

import torch

CODES = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
RANGES = {torch.quint8: (0, 255), torch.qint8: (-128, 127),
          torch.qint32: (-2000, 2000)}  # products stay exact in float32
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last,
           "channels_last_3d": torch.channels_last_3d}


def coin():
    return random.random() < 0.5


def scale(low=-7, high=1):
    return 2.0 ** random.uniform(low, high)


def zero_point(dtype):
    """Any, and often an end or the middle."""
    low, high = RANGES[dtype]
    return random.choice([low, high, (low + high + 1) // 2, random.randint(low, high),
                          random.randint(low, high)])


def codes(shape, dtype):
    low, high = RANGES[dtype]
    return torch.randint(low, high + 1, shape).to(CODES[dtype])


def quantized(shape, dtype=None, x_scale=None, zero=None, memory_format=None):
    dtype = dtype or random.choice([torch.quint8, torch.quint8, torch.qint8])
    x = torch._make_per_tensor_quantized_tensor(
        codes(shape, dtype), scale() if x_scale is None else x_scale,
        zero_point(dtype) if zero is None else zero)
    return x.contiguous(memory_format=FORMATS[memory_format]) if memory_format else x


def quantized_by_channel(shape, axis, dtype, zero=False):
    scales = torch.tensor([scale(-7, 0) for _ in range(shape[axis])], dtype=torch.float64)
    zeros = torch.tensor([0 if zero else zero_point(dtype) for _ in range(shape[axis])])
    return torch._make_per_channel_quantized_tensor(codes(shape, dtype), scales, zeros, axis)
