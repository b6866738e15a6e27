"""Random cases of AIMET's encoding analyzers."""

import torch
from aimet_torch.quantization import encoding_analyzer as analyzers

SOURCE = "aimet-torch 2.42.0, CPU"
EXACT = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 1e-06, "atol": 0.0}
MINMAX = EXACT | {"atol": 1e-12}
HISTOGRAM = {"max_int_diff": 0, "min_exact": 1.0, "rtol": 2e-05, "atol": 2e-06}
CLASSES = {
    "minmax": analyzers.MinMaxEncodingAnalyzer,
    "percentile": analyzers.PercentileEncodingAnalyzer,
    "sqnr": analyzers.SqnrEncodingAnalyzer,
    "tf_enhanced": analyzers.TfEnhancedEncodingAnalyzer,
}
OWN = (
    "num_bins", "percentile", "gamma", "asymmetric_delta_candidates",
    "symmetric_delta_candidates", "offset_candidates", "histogram_growth_limit",
)  # fmt: skip


def run_analyzer(attrs, inputs):
    options = {n: attrs[n] for n in OWN if n in attrs}
    block = attrs.get("block_size")
    shape = tuple(attrs["shape"])
    analyzer = CLASSES[attrs["kind"]](shape, block_size=block and tuple(block), **options)
    for batch in inputs["batches"]:
        analyzer.update_stats(batch)
    low, high = analyzer.compute_encodings(attrs["num_steps"], attrs.get("symmetric", False))
    outputs = {"min": low, "max": high}
    statistics = analyzer.observer.get_stats()
    if isinstance(statistics, list):
        outputs["histogram"] = torch.stack([s.histogram for s in statistics])
        outputs["bin_edges"] = torch.stack([s.bin_edges for s in statistics])
    return outputs


OPS = {"aimet.analyzer": run_analyzer}


def layout(draw, most):
    """(tag, shape of a batch, shape of the statistics, block size, whether batches may differ)."""
    way = draw.choice(["tensor", "tensor", "channel0", "channel1", "block", "block_wild"])
    if way == "tensor":
        return way, draw.sizes(draw.integer(1, 3), 1, most), [], None, True
    if way == "channel0":
        shape = draw.sizes(draw.integer(2, 3), 1, most)
        shape[0] = min(shape[0], 6)
        return way, shape, [shape[0]] + [1] * (len(shape) - 1), None, True
    if way == "channel1":
        shape = [draw.integer(1, most), draw.integer(1, 6)]
        return way, shape, shape[1:], None, False
    rows, blocks, size = draw.integer(1, 4), draw.integer(1, 4), draw.integer(1, most)
    if way == "block":
        return way, [rows, blocks * size], [rows, blocks], [1, size], True
    tall = draw.integer(1, 8)
    return way, [tall, blocks * size], [1, blocks], [-1, size], False


def batches_of(draw, shape, may_differ):
    count = draw.choice([1, 1, 2, 3, 4]) if may_differ else 1
    batches = [draw.values(shape) for _ in range(count)]
    if draw.chance(0.3):
        batches = [batches[0] * draw.uniform(0.5, 4) + 0.01 * b for b in batches]
    if draw.chance(0.06):
        for batch in batches:
            batch.view(-1)[draw.integer(0, batch.numel() - 1)] = float(draw.choice(["inf", "-inf"]))
    return batches


def own_attrs(draw, kind):
    if kind == "percentile":
        percentile = draw.choice([50.0, 80.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0])
        return {"num_bins": draw.choice([16, 100, 128, 512, 2048]), "percentile": percentile}
    if kind == "sqnr":
        attrs = {"num_bins": draw.choice([128, 256, 512]), "gamma": draw.choice([1.0, 3.0, 2.0])}
        attrs["asymmetric_delta_candidates"] = draw.choice([17, 17, 9, 33])
        attrs["symmetric_delta_candidates"] = draw.choice([101, 101, 51, 21])
        attrs["offset_candidates"] = draw.choice([21, 21, 11, 5])
        if draw.chance(0.3):
            attrs["histogram_growth_limit"] = draw.choice([1.0, 1.5, 3.0, 10.0])
        return attrs
    return {}


def random_case(draw):
    kind = draw.choice(["minmax", "minmax", "percentile", "percentile", "sqnr", "tf_enhanced"])
    histogram = kind != "minmax"
    tag, shape, statistics, block, may_differ = layout(draw, 40 if histogram else 16)
    attrs = {"kind": kind, "shape": statistics, "block_size": block} | own_attrs(draw, kind)
    bits = draw.choice([2, 3, 4, 5, 6, 8, 8, 10, 12, 16])
    attrs["num_steps"] = 2**bits - 1 - draw.choice([0, 0, 1])
    attrs["symmetric"] = draw.chance(0.5)
    inputs = {"batches": batches_of(draw, shape, may_differ or not histogram)}
    if draw.chance(0.03):
        broken = draw.choice([{"num_steps": 0}, {"num_bins": 0}, {"shape": [3, 7, 2]}])
        attrs |= broken if histogram or "num_bins" not in broken else {"num_steps": -3}
    return tag, "aimet.analyzer", attrs, inputs, HISTOGRAM if histogram else MINMAX
