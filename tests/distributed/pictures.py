"""Random pictures in the files of Fashion-MNIST, so that tests need no data set."""

import gzip
import os
import random
import struct

SIDE = 28
CLASSES = 10


def _write(path, sizes, values):
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes))
        file.write(values)


def write_pictures(folder, count, seed=1):
    """`count` pictures of noise, one class after the other brighter; both splits. The folder."""
    chance = random.Random(seed)
    os.makedirs(folder)
    labels = bytes(chance.randrange(CLASSES) for _ in range(count))
    pixels = b"".join(
        bytes(value // 4 + label * 19 for value in chance.randbytes(SIDE * SIDE))
        for label in labels)  # fmt: skip
    for split in ("train", "t10k"):
        _write(os.path.join(folder, split + "-images-idx3-ubyte.gz"), (count, SIDE, SIDE), pixels)
        _write(os.path.join(folder, split + "-labels-idx1-ubyte.gz"), (count,), labels)
    return folder
