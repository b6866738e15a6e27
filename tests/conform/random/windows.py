"""Random cases like those of the golden suite of pooling, interpolation, padding and shuffling."""

import random

import torch
import torch.nn.functional as F

from codes import coin, quantized
from common import Suite, arguments
from operations import NEAR, case

LAST = {1: "contiguous", 2: "channels_last", 3: "channels_last_3d"}
MOST = {1: 60, 2: 15, 3: 8}


def image(spatial):
    """Codes of `spatial` dimensions and the order in which they lie."""
    memory = random.choice(["contiguous", LAST[spatial]])
    shape = [random.randint(1, 4), random.choice([1, 3, 8, 16, 32, 64, random.randint(1, 70)])]
    shape += [random.randint(3, MOST[spatial]) for _ in range(spatial)]
    if memory == "contiguous" and random.random() < 0.2:
        shape = shape[1:]
    return quantized(shape, memory_format=memory), {"memory_format": memory}


def each(spatial, low, high):
    """A number for all dimensions, or one for each."""
    if coin():
        return random.randint(low, high)
    return [random.randint(low, high) for _ in range(spatial)]


def window(spatial):
    kernel = each(spatial, 1, 5)
    least = kernel if isinstance(kernel, int) else min(kernel)
    return {"kernel_size": kernel, "stride": each(spatial, 1, 4),
            "padding": random.randint(0, least // 2), "ceil_mode": coin()}


def not_empty(call):
    """torch's kernels for codes give empty results where those for floats refuse the window."""
    def checked():
        y = call()
        if y.numel() == 0:
            raise ValueError("empty")
        return y
    return checked


def add_pools(suite, spatial):
    x, memory = image(spatial)
    attrs = window(spatial) | {"dilation": random.choice([1, 1, 2])}
    case(suite, f"max_pool{spatial}d", attrs | memory, {"x": x},
         not_empty(lambda: getattr(F, f"max_pool{spatial}d")(x, **attrs)))
    mean = window(spatial) | {"count_include_pad": coin()}
    if spatial > 1:
        mean["divisor_override"] = random.choice([None, None, random.randint(1, 9)])
    case(suite, f"avg_pool{spatial}d", mean | memory, {"x": x},
         not_empty(lambda: getattr(F, f"avg_pool{spatial}d")(x, **mean)), NEAR)
    size = each(spatial, 1, 6) if spatial > 1 else random.randint(1, 9)
    case(suite, f"adaptive_avg_pool{spatial}d", {"output_size": size} | memory, {"x": x},
         lambda: getattr(F, f"adaptive_avg_pool{spatial}d")(x, size), NEAR)


def add_interpolation(suite, spatial):
    x, memory = image(spatial)
    modes = ["nearest", "nearest-exact"] + (["bilinear"] if spatial == 2 else [])
    attrs = {"mode": random.choice(modes)}
    if coin():
        attrs["scale_factor"] = random.choice([2, 3, random.uniform(0.4, 3)])
    else:
        attrs["size"] = [random.randint(1, 20) for _ in range(spatial)]
    if attrs["mode"] == "bilinear":
        attrs["align_corners"] = coin()

    def call():
        y = F.interpolate(x, **attrs)
        # A result of the same size is a copy of the bytes, in whichever order they lay.
        if spatial == 3 and y.shape == x.shape:
            raise ValueError("copied")
        return y
    case(suite, "interpolate", attrs | memory, {"x": x}, call, NEAR)


def add_padding(suite, spatial):
    x, memory = image(spatial)
    pad = [random.randint(0, min(3, x.shape[-1 - i // 2] - 1)) for i in range(2 * spatial)]
    attrs = {"pad": pad, "mode": random.choice(["reflect", "constant"])}
    if attrs["mode"] == "constant":
        attrs["value"] = random.uniform(-2, 2)
    case(suite, "pad", attrs | memory, {"x": x},
         lambda: F.pad(x, pad, attrs["mode"], attrs.get("value", 0.0)))


def add_shuffles(suite, _):
    memory = {"memory_format": random.choice(["contiguous", "channels_last"])}
    n, c, h, w = (random.randint(1, 8) for _ in range(4))
    r = random.randint(1, 3)
    # torch shuffles the channels of quint8 alone.
    x = quantized([n, r * c, h, w], torch.quint8, **memory)
    case(suite, "channel_shuffle", {"groups": r} | memory, {"x": x},
         lambda: torch.channel_shuffle(x, r))
    x = quantized([n, r * r * c, h, w], **memory)
    case(suite, "pixel_shuffle", {"upscale_factor": r} | memory, {"x": x},
         lambda: F.pixel_shuffle(x, r))
    x = quantized([n, c, r * h, r * w], **memory)
    case(suite, "pixel_unshuffle", {"downscale_factor": r} | memory, {"x": x},
         lambda: F.pixel_unshuffle(x, r))


MAKERS = [add_pools, add_pools, add_interpolation, add_padding, add_shuffles]


def main():
    given = arguments(900)
    suite = Suite("windows", given.seed, "PyTorch pooling")
    while not suite.is_full(given):
        random.choice(MAKERS)(suite, random.choice([1, 2, 2, 3]))
    suite.save(given.out)


if __name__ == "__main__":
    main()
