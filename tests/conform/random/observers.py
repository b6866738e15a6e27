"""Random cases like those of the golden suite `observers`."""

import random

import torch
from torch.ao.quantization import observer as ao

from common import (DISTRIBUTIONS, EXACT, Suite, arguments, draw, dtype_name, random_shape,
                             within)

AFFINE, SYMMETRIC = torch.per_tensor_affine, torch.per_tensor_symmetric
TENSOR_SETTINGS = [  # dtype, qscheme, reduce_range, quant_min, quant_max
    (torch.quint8, AFFINE, False, None, None), (torch.quint8, AFFINE, True, None, None),
    (torch.qint8, AFFINE, True, None, None), (torch.qint8, AFFINE, False, None, None),
    (torch.qint8, AFFINE, False, -8, 7), (torch.quint8, SYMMETRIC, False, None, None),
    (torch.quint8, SYMMETRIC, True, None, None), (torch.qint8, SYMMETRIC, True, None, None),
    (torch.qint8, SYMMETRIC, False, None, None), (torch.qint8, SYMMETRIC, False, -127, 127),
    (torch.uint8, AFFINE, False, 0, 255), (torch.int8, SYMMETRIC, False, -128, 127),
    (torch.quint8, AFFINE, False, 0, 127), (torch.quint8, AFFINE, False, 0, 15),
    (torch.quint8, SYMMETRIC, False, 0, 15), (torch.qint8, SYMMETRIC, False, -8, 7),
    (torch.qint8, AFFINE, False, -64, 63), (torch.uint8, AFFINE, False, None, None),
    (torch.int8, AFFINE, True, None, None), (torch.qint32, SYMMETRIC, False, None, None),
    (torch.quint8, AFFINE, False, 0, 1),
    (torch.int16, AFFINE, False, None, None), (torch.int32, SYMMETRIC, False, None, None),
    (torch.uint16, AFFINE, False, None, None), (torch.quint4x2, AFFINE, False, None, None),
    (torch.quint8, AFFINE, True, 0, 127),
]
CH_AFFINE, CH_SYMMETRIC = torch.per_channel_affine, torch.per_channel_symmetric
CH_FLOAT = torch.per_channel_affine_float_qparams
CHANNEL_SETTINGS = [
    (torch.qint8, CH_SYMMETRIC, False, None, None), (torch.quint8, CH_AFFINE, False, None, None),
    (torch.quint8, CH_AFFINE, True, None, None), (torch.qint8, CH_AFFINE, False, None, None),
    (torch.quint8, CH_SYMMETRIC, False, None, None), (torch.qint8, CH_SYMMETRIC, False, -127, 127),
    (torch.quint8, CH_FLOAT, False, None, None), (torch.quint4x2, CH_FLOAT, False, None, None),
    (torch.qint8, CH_SYMMETRIC, True, None, None), (torch.qint8, CH_SYMMETRIC, False, -8, 7),
    (torch.qint8, CH_AFFINE, True, None, None), (torch.quint8, CH_AFFINE, False, 0, 15),
    (torch.quint8, CH_FLOAT, False, 0, 15), (torch.qint8, CH_FLOAT, False, None, None),
    (torch.uint8, CH_AFFINE, False, None, None), (torch.int8, CH_SYMMETRIC, False, None, None),
    (torch.quint8, CH_SYMMETRIC, True, None, None),
    (torch.quint4x2, CH_AFFINE, False, None, None), (torch.quint8, CH_AFFINE, False, 0, 127),
]
HISTOGRAM_SETTINGS = TENSOR_SETTINGS[:19] + TENSOR_SETTINGS[24:]
EPS = [torch.finfo(torch.float32).eps] * 4 + [2.0**-12, 1e-3, 1e-5]


def batches_of(kind, shape):
    """Batches of one distribution, now and then with infinities, an empty one or other shapes."""
    count = random.randint(1, 5)
    batches = [draw(kind, shape, i) for i in range(count)]
    return batches


def note_infinities(batches):
    for batch in batches:
        for value in (float("inf"), float("-inf")):
            if batch.numel() > 2 and random.random() < 0.6:
                batch.view(-1)[random.randrange(batch.numel())] = value
    return batches


def settings_of(setting):
    dtype, qscheme, reduce_range, low, high = setting
    return {"dtype": dtype, "qscheme": qscheme, "reduce_range": reduce_range,
            "eps": random.choice(EPS), "quant_min": low, "quant_max": high}


def attrs_of(cls, settings, distribution):
    attrs = {"class": cls.__name__}
    for name, value in settings.items():
        attrs[name] = dtype_name(value) if isinstance(value, (torch.dtype, torch.qscheme)) else value
    return attrs | {"distribution": distribution}


def outputs_of(observer, batches):
    minima, maxima = [], []
    for batch in batches:
        observer(batch)
        minima.append(observer.min_val.clone())
        maxima.append(observer.max_val.clone())
    scale, zero_point = observer.calculate_qparams()
    outputs = {"min_val": observer.min_val, "max_val": observer.max_val, "scale": scale,
               "zero_point": zero_point, "quant_min": observer.quant_min,
               "quant_max": observer.quant_max}
    if batches and len({tuple(m.shape) for m in minima}) == 1:
        outputs |= {"min_after_batch": torch.stack(minima), "max_after_batch": torch.stack(maxima)}
    if isinstance(observer, ao.HistogramObserver):
        outputs["histogram"] = observer.histogram
        if batches and observer.min_val != float("inf"):
            low, high = observer._non_linear_param_search()
            outputs |= {"search_min": low, "search_max": high}
    return outputs


def add_tensor_case(suite, cls, rank_one=False):
    settings = settings_of(random.choice(TENSOR_SETTINGS))
    if cls is ao.MovingAverageMinMaxObserver:
        settings["averaging_constant"] = random.choice([0.01, 0.1, 0.5, 0.25, 0.9, 1.0, 0.003])
    kind = random.choice(DISTRIBUTIONS)
    add_case(suite, cls, settings, kind, batches_of(kind, random_shape()))


def add_channel_case(suite, cls):
    settings = settings_of(random.choice(CHANNEL_SETTINGS))
    if cls is ao.MovingAveragePerChannelMinMaxObserver:
        settings["averaging_constant"] = random.choice([0.01, 0.25, 0.5, 0.9])
    kind, shape = random.choice(DISTRIBUTIONS), random_shape()
    settings["ch_axis"] = random.randrange(len(shape))
    add_case(suite, cls, settings, kind, batches_of(kind, shape))


def add_case(suite, cls, settings, kind, batches):
    try:
        observer = cls(**settings)
        outputs = outputs_of(observer, batches)
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        print("refused by torch:", cls.__name__, attrs_of(cls, settings, kind), str(error)[:70])
        return
    suite.add("observer", attrs_of(cls, settings, kind), {"batches": batches}, outputs,
              within(1e-6, 0.0))


def search_in_double(observer):
    """The range that the search chooses when its sums are taken in float64."""
    twin = ao.HistogramObserver(bins=observer.bins, dtype=observer.dtype)
    twin.load_state_dict(observer.state_dict())
    twin.histogram, twin.min_val, twin.max_val = (
        observer.histogram.double(), observer.min_val, observer.max_val)
    twin.dst_nbins = observer.dst_nbins
    return twin._non_linear_param_search()


def same_search(observer):
    single, double = observer._non_linear_param_search(), search_in_double(observer)
    return all(float(a) == float(b) for a, b in zip(single, double))


def add_histogram_case(suite):
    settings = settings_of(random.choice(HISTOGRAM_SETTINGS))
    settings["bins"] = random.choice([128, 2048, 512, 100, 256, 64, 1000, 33])
    kind = random.choice(DISTRIBUTIONS)
    batches = batches_of(kind, random.choice([random_shape(2, 4), [3, 90], [2, 4, 5, 5], [700]]))
    if random.random() < 0.15:
        kind, batches = "with_inf", note_infinities(batches)
    if random.random() < 0.1:
        kind, batches = "with_empty", [torch.empty(0, 4)] + batches + [torch.empty(0)]
    try:
        observer = ao.HistogramObserver(**settings)
        for batch in batches:
            observer(batch)
        if observer.min_val != float("inf") and not same_search(observer):
            return
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError) as error:
        print("refused by torch: HistogramObserver", kind, [list(b.shape) for b in batches],
              str(error)[:90])
        return
    add_case(suite, ao.HistogramObserver, settings, kind, batches)


def add_special_case(suite):
    """Nothing fed, an empty batch first, batches of other shapes."""
    cls = random.choice([ao.MinMaxObserver, ao.MovingAverageMinMaxObserver])
    settings = settings_of(random.choice(TENSOR_SETTINGS))
    if cls is ao.MovingAverageMinMaxObserver:
        settings["averaging_constant"] = random.choice([0.01, 0.3])
    kind = random.choice(["never_fed", "with_empty", "normal"])
    batches = {"never_fed": [], "with_empty": [torch.empty(0, 4), torch.randn(6, 9)],
               "normal": [torch.randn(3, 4), torch.randn(7), torch.randn(1, 2, 3)]}[kind]
    add_case(suite, cls, settings, kind, batches)


def add_special_channel_case(suite):
    cls = random.choice([ao.PerChannelMinMaxObserver, ao.MovingAveragePerChannelMinMaxObserver])
    settings = settings_of(random.choice(CHANNEL_SETTINGS)) | {"ch_axis": 0}
    kind = random.choice(["never_fed", "normal"])
    batches = {"never_fed": [],
               "normal": [torch.randn(3, 4), torch.randn(3, 7, 2)]}[kind]
    add_case(suite, cls, settings, kind, batches)


def add_fixed_case(suite):
    dtype, qscheme, low, high = random.choice(
        [(torch.quint8, AFFINE, 0, 255), (torch.qint8, SYMMETRIC, -128, 127),
         (torch.qint8, AFFINE, -128, 127), (torch.quint8, AFFINE, 0, 127)])
    scale = torch.tensor(random.choice([1 / 256, 2 / 256, 0.05, 3.7, 1e-5])).item()
    zero_point = random.randint(low, high)
    observer = ao.FixedQParamsObserver(scale, zero_point, dtype, qscheme, low, high)
    batches = [torch.randn(3, 4)]
    for batch in batches:
        observer(batch)
    out_scale, out_zero = observer.calculate_qparams()
    attrs = {"class": "FixedQParamsObserver", "name": "custom", "dtype": dtype_name(dtype),
             "qscheme": dtype_name(qscheme), "quant_min": low, "quant_max": high, "scale": scale,
             "zero_point": zero_point}
    suite.add("observer", attrs, {"batches": batches},
              {"scale": out_scale, "zero_point": out_zero, "quant_min": low, "quant_max": high},
              EXACT)


MAKERS = [
    (4, lambda s: add_tensor_case(s, ao.MinMaxObserver)),
    (4, lambda s: add_tensor_case(s, ao.MovingAverageMinMaxObserver)),
    (3, lambda s: add_channel_case(s, ao.PerChannelMinMaxObserver)),
    (3, lambda s: add_channel_case(s, ao.MovingAveragePerChannelMinMaxObserver)),
    (6, add_histogram_case), (1, add_special_case), (1, add_special_channel_case),
    (0.3, add_fixed_case),
]


def main():
    given = arguments(900)
    suite = Suite("observers", given.seed, "PyTorch observers")
    weights, makers = zip(*MAKERS)
    while not suite.is_full(given):
        random.choices(makers, weights)[0](suite)
    suite.save(given.out)


if __name__ == "__main__":
    main()
