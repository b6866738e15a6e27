"""Golden suites: NAME.json beside NAME.safetensors, read, written and compared.

A case here is a dictionary with "id", "op", "attrs", "inputs", "outputs" and "compare"; its values
are tensors, plain JSON values, or lists of tensors. `Failure` stands for a call that has to fail.
"""

import json
import math
import pathlib
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file

VISIBLE = pathlib.Path(__file__).resolve().parents[3] / "golden" / "seeds"
FP8 = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
ERROR_KINDS = {
    "RuntimeError", "ValueError", "TypeError", "AssertionError", "ValidationError",
    "AttributeError", "EncodingError", "StatisticsNotFoundError", "NotImplementedError",
}  # fmt: skip


@dataclass
class Failure:
    """What a call fails with instead of giving a value."""

    kind: str
    about: str


class Skip(Exception):
    """The original cannot run this case, or gives nothing that could be compared."""


def dtype_name(tensor):
    return str(tensor.dtype).split(".")[1]


def attempt(function, *arguments):
    """The outputs of a case, or the failure that takes their place."""
    try:
        return function(*arguments)
    except Skip:
        raise
    except Exception as error:  # the originals raise all kinds
        kind = type(error).__name__
        if kind not in ERROR_KINDS:
            raise Skip(f"{kind}: {error}") from error
        return {"error": Failure(kind, str(error).split("\n")[0][:200])}


# Writing -----------------------------------------------------------------------------------------


class Writer:
    """Collects the cases of one suite."""

    def __init__(self, name, source):
        self.name = name
        self.source = source
        self.cases = []
        self.tensors = {}

    def add(self, tag, op, attrs, inputs, outputs, compare):
        ident = f"{self.name}.{len(self.cases) + 1:04d}" + (f".{tag}" if tag else "")
        self.cases.append(
            {
                "id": ident,
                "op": op,
                "attrs": attrs,
                "inputs": {k: self._put(f"{ident}.in.{k}", v) for k, v in inputs.items()},
                "outputs": {k: self._put(f"{ident}.out.{k}", v) for k, v in outputs.items()},
                "compare": compare,
            }
        )

    def _put(self, key, value):
        if value is None:
            return None
        if isinstance(value, Failure):
            return {"error": {"kind": value.kind, "about": value.about}}
        if isinstance(value, torch.Tensor):
            return self._put_tensor(key, value)
        if isinstance(value, list) and all(isinstance(v, torch.Tensor) for v in value):
            return [self._put_tensor(f"{key}.{i}", v) for i, v in enumerate(value)]
        return {"json": value}

    def _put_tensor(self, key, tensor):
        tensor = tensor.detach().as_subclass(torch.Tensor).contiguous().clone()
        reference = {"tensor": key, "dtype": dtype_name(tensor)}
        if tensor.dtype in FP8:
            reference = {"tensor": key, "dtype": "uint8", "logical_dtype": FP8[tensor.dtype]}
            tensor = tensor.view(torch.uint8)
        self.tensors[key] = tensor
        return reference

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = {"suite": self.name, "source": self.source, "cases": self.cases}
        (folder / f"{self.name}.json").write_text(json.dumps(text, indent=1))
        tensors = self.tensors or {"none": torch.zeros(0)}
        save_file(tensors, folder / f"{self.name}.safetensors")


# Reading -----------------------------------------------------------------------------------------


def load(name, folder=VISIBLE):
    """The cases of a suite with their tensors in place."""
    tensors = load_file(pathlib.Path(folder) / f"{name}.safetensors")
    cases = json.loads((pathlib.Path(folder) / f"{name}.json").read_text())["cases"]
    for case in cases:
        for part in ("inputs", "outputs"):
            case[part] = {k: _value(v, tensors) for k, v in case[part].items()}
    return cases


def _value(value, tensors):
    if isinstance(value, list):
        return [_value(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "error" in value:
        return Failure(**value["error"])
    if "json" in value:
        return value["json"]
    tensor = tensors[value["tensor"]]
    if "logical_dtype" in value:
        return tensor.view(getattr(torch, value["logical_dtype"]))
    return tensor


# Comparing ---------------------------------------------------------------------------------------


def differences(got, want, compare):
    """What of the wanted outputs a recomputation does not give."""
    found = []
    for name, expected in want.items():
        if name not in got:
            found.append(f"{name}: missing (got {list(got)})")
            continue
        problem = _difference(got[name], expected, compare)
        if problem:
            found.append(f"{name}: {problem}")
    return found


def _difference(got, want, compare):
    if isinstance(want, Failure):
        same = isinstance(got, Failure) and got.kind == want.kind
        return None if same else f"got {got}, expected {want}"
    if isinstance(want, torch.Tensor):
        return _tensor_difference(got, want, compare)
    return _json_difference(got, want, compare)


def _tensor_difference(got, want, compare):
    if not isinstance(got, torch.Tensor):
        return f"got {got}, expected a tensor"
    got = got.detach().as_subclass(torch.Tensor)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"got {got.dtype} {list(got.shape)}, expected {want.dtype} {list(want.shape)}"
    if not want.is_floating_point() or want.dtype in FP8:
        a, b = (t.view(torch.uint8) if t.dtype in FP8 else t for t in (got, want))
        close = (a.long() - b.long()).abs() <= compare["max_int_diff"]
    else:
        a, b = got.double(), want.double()
        close = ((a - b).abs() <= compare["atol"] + compare["rtol"] * b.abs()) | (a == b)
        close |= a.isnan() & b.isnan()
    if want.numel() == 0 or close.double().mean() >= compare["min_exact"]:
        return None
    return f"{(~close).sum().item()} of {close.numel()} differ"


def _json_difference(got, want, compare):
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            return f"got {got}, expected {want}"
        return next(filter(None, (_json_difference(got[k], want[k], compare) for k in want)), None)
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"got {got}, expected {want}"
        pairs = zip(got, want, strict=True)
        return next(filter(None, (_json_difference(a, b, compare) for a, b in pairs)), None)
    if isinstance(want, float) and isinstance(got, (int, float)):
        tolerance = compare["atol"] + compare["rtol"] * abs(want)
        same = math.isclose(got, want, rel_tol=0, abs_tol=tolerance) or got == want
        return None if same else f"got {got}, expected {want}"
    return None if got == want else f"got {got}, expected {want}"
