"""Random shapes and values, the same for every suite."""

import math

import torch


class Draw:
    """A seeded source of what the cases are made of."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low, high):
        """low..high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def chance(self, probability):
        return float(torch.rand((), generator=self.generator)) < probability

    def uniform(self, low, high):
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def choice(self, items):
        items = list(items)
        return items[self.integer(0, len(items) - 1)]

    def sizes(self, rank, low=1, high=9):
        return [self.integer(low, high) for _ in range(rank)]

    def normal(self, shape, std=1.0, mean=0.0):
        return torch.randn(list(shape), generator=self.generator) * std + mean

    def magnitude(self):
        """A spread: mostly ordinary, sometimes tiny or huge."""
        return self.choice([1.0, 1.0, 1.0, 0.02, 30.0, 1e-3, 1e3, 1e-6, 1e6])

    def values(self, shape, kind=None):
        """Values of one of the kinds that have gone wrong somewhere before."""
        kind = kind or self.choice(
            ["normal"] * 6
            + ["positive", "negative", "constant", "zeros", "outlier", "integers", "sparse"]
            + ["zero_row", "uniform", "lognormal", "shifted", "negative_zero"]
        )
        x = self.normal(shape) * self.magnitude()
        return getattr(self, f"_{kind}")(x)

    def _normal(self, x):
        return x

    def _positive(self, x):
        return x.abs()

    def _negative(self, x):
        return -x.abs()

    def _constant(self, x):
        return torch.full_like(x, self.uniform(-3, 3))

    def _zeros(self, x):
        return torch.zeros_like(x)

    def _outlier(self, x):
        x = x.clone()
        if x.numel():
            x.view(-1)[self.integer(0, x.numel() - 1)] = self.choice([-1, 1]) * 100.0
        return x

    def _integers(self, x):
        return (x * 4).clamp(-1e6, 1e6).round()

    def _sparse(self, x):
        return torch.where(torch.rand(x.shape, generator=self.generator) < 0.7, 0.0, x)

    def _zero_row(self, x):
        x = x.clone()
        if x.dim():
            x[0] = 0
        return x

    def _uniform(self, x):
        return torch.rand(x.shape, generator=self.generator) * 2 - 1

    def _lognormal(self, x):
        return torch.sign(x) * torch.exp(self.normal(x.shape, 2.0))

    def _shifted(self, x):
        return x + self.uniform(-5, 5)

    def _negative_zero(self, x):
        return torch.where(torch.rand(x.shape, generator=self.generator) < 0.3, -0.0, x)

    def ties(self, shape, step, lowest, highest):
        """Whole and half multiples of a step, beyond both ends too."""
        k = torch.randint(2 * lowest - 6, 2 * highest + 7, list(shape), generator=self.generator)
        return k.float() * (step / 2)

    def power_of_two(self, low, high):
        return math.ldexp(1.0, self.integer(low, high))
