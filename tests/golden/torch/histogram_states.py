"""Writes histogram_states.json and .safetensors beside this file: what PyTorch makes of histograms.

The states are those of HistogramObservers in torchvision's quantizable networks with random
weights, prepared with the default QConfigs, and of random data with other settings. Kept are
those whose range moves when torch's sums are taken in double, and a few of the others.

    python histogram_states.py        needs torch and torchvision; half a minute
"""

import json
import pathlib
import struct
import warnings

import torch
import torch.ao.quantization as aq

NETWORKS = [
    # network, engine, images, seed, size
    ("inception_v3", "fbgemm", "noise", 11, 192),
    ("mobilenet_v2", "fbgemm", "waves", 5, 160),
    ("mobilenet_v3_large", "fbgemm", "waves", 3, 160),
    ("resnet18", "x86", "waves", 4, 160),
    ("resnet50", "x86", "noise", 7, 160),
    ("googlenet", "x86", "waves", 10, 160),
]
OTHER_STATES = 2  # of each network, that do not move
SYNTHETIC = [
    # settings, how many
    ({}, 6),
    ({"reduce_range": True, "qscheme": torch.per_tensor_symmetric, "dtype": torch.qint8}, 2),
    ({"bins": 4096}, 1),
    ({"bins": 513}, 2),
    ({"bins": 100, "dtype": torch.qint8}, 2),
    ({"bins": 16}, 1),
    ({"bins": 7}, 1),
    ({"bins": 1}, 1),
]
DTYPES = {
    torch.float32: ("F32", "float32"),
    torch.int64: ("I64", "int64"),
    torch.int32: ("I32", "int32"),
    torch.uint8: ("U8", "uint8"),
    torch.int8: ("I8", "int8"),
}


def images(kind, batch, size):
    if kind == "noise":
        return torch.randn(2, 3, size, size)
    side = torch.linspace(-3, 3, size)
    y, x = torch.meshgrid(side, side, indexing="ij")
    waves = [
        [torch.sin(x * (1 + batch + i) + c) * torch.cos(y * (c + 1)) + 0.3 * (x * y > c - 1).float() for c in range(3)]
        for i in range(2)
    ]
    return torch.stack([torch.stack(image) for image in waves]) + 0.02 * torch.randn(2, 3, size, size)


def observers_of(name, engine, kind, seed, size):
    import torchvision

    torch.manual_seed(seed)
    torch.backends.quantized.engine = engine
    more = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    network = getattr(torchvision.models.quantization, name)(weights=None, quantize=False, **more).eval()
    network.fuse_model()
    network.qconfig = aq.get_default_qconfig(engine)
    aq.prepare(network, inplace=True)
    with torch.no_grad():
        for batch in range(3):
            network(images(kind, batch, size))
    found = [(path, m) for path, m in network.named_modules() if isinstance(m, aq.HistogramObserver)]
    return [(f"{name}.{path}", m) for path, m in found if m.max_val > m.min_val]


def random_observer(settings, seed):
    generator = torch.Generator().manual_seed(seed)
    observer = aq.HistogramObserver(**settings)
    for batch in range(1 + seed % 4):
        x = torch.randn([3000, 100000, 1000000][seed % 3], generator=generator) * (1 + 0.3 * batch)
        observer([x, x.relu(), x.exp(), x.clamp(0, 1.5) * x.abs()][seed % 4])
    return observer


def moves_in_double(observer):
    """Whether the search gives another range when its sums are taken in double."""
    in_float = observer._non_linear_param_search()
    sum_of, method = torch.sum, torch.Tensor.sum
    torch.sum = lambda x: sum_of(x.double())
    torch.Tensor.sum = lambda x: sum_of(x.double()).float()
    try:
        in_double = observer._non_linear_param_search()
    finally:
        torch.sum, torch.Tensor.sum = sum_of, method
    return any(a.item() != b.item() for a, b in zip(in_float, in_double))


class Suite:
    def __init__(self):
        self.cases, self.tensors = [], {}

    def reference(self, name, tensor):
        tensor = tensor.detach().clone().contiguous()
        self.tensors[name] = tensor
        return {"tensor": name, "dtype": DTYPES[tensor.dtype][1], "shape": list(tensor.shape)}

    def add(self, observer, note):
        name = f"histogram-state-{len(self.cases)}"
        scale, zero_point = observer.calculate_qparams()
        low, high = observer._non_linear_param_search()
        state = {key: getattr(observer, key) for key in ("eps", "histogram", "min_val", "max_val")}
        outputs = {"scale": scale, "zero_point": zero_point, "search_min": low.reshape(()), "search_max": high.reshape(())}
        self.cases.append({
            "id": name,
            "op": "observer_state",
            "attrs": {
                "class": "HistogramObserver",
                "dtype": str(observer.dtype).removeprefix("torch."),
                "qscheme": str(observer.qscheme).removeprefix("torch."),
                "reduce_range": observer.reduce_range,
                "bins": observer.bins,
            },
            "inputs": {"state_dict": {k: self.reference(f"{name}/in.{k}", v) for k, v in state.items()}},
            "outputs": {k: self.reference(f"{name}/out.{k}", v) for k, v in outputs.items()},
            "compare": {"max_int_diff": 0, "min_exact": 1.0, "rtol": 0.0, "atol": 0.0},
            "note": note,
        })

    def write(self, stem):
        source = f"PyTorch {torch.__version__}, CPU; {stem.name}.py"
        cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in self.cases)
        head = json.dumps({"suite": stem.name, "source": source}, separators=(",", ":"))[:-1]
        stem.with_suffix(".json").write_text(f'{head},"cases":[\n{cases}\n]}}\n')
        header, data = {}, b""
        for name, tensor in self.tensors.items():
            raw = tensor.numpy().tobytes()
            header[name] = {
                "dtype": DTYPES[tensor.dtype][0],
                "shape": list(tensor.shape),
                "data_offsets": [len(data), len(data) + len(raw)],
            }
            data += raw
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        stem.with_suffix(".safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    suite = Suite()
    for network in NETWORKS:
        others = 0
        for path, observer in observers_of(*network):
            if moves_in_double(observer):
                suite.add(observer, f"{path}: sums in double give another range")
            elif others < OTHER_STATES:
                others += 1
                suite.add(observer, path)
    for settings, wanted in SYNTHETIC:
        seed, taken = 0, 0
        while taken < wanted:
            observer = random_observer(settings, seed)
            seed += 1
            moves = moves_in_double(observer)
            # Few bins hardly ever move: there any state will do after some tries.
            if moves or (settings.get("bins", 2048) < 2048 and seed > 20):
                suite.add(observer, "random: sums in double give another range" if moves else "random")
                taken += 1
    suite.write(pathlib.Path(__file__).with_suffix(""))


if __name__ == "__main__":
    main()
