#!/usr/bin/env python3
"""Checks ONNX files that Quanta wrote: onnx.checker passes, and ONNX Runtime gives Quanta's results.

    python3 -m venv VENV
    VENV/bin/pip install -r tools/onnx-check-requirements.txt
    VENV/bin/python tools/onnx_check.py FOLDER...

A FOLDER is laid out as ONNX's own test cases: model.onnx, and test_data_set_0 with input_0.pb ...
and output_0.pb ... (write_onnx and write_onnx_tensor write them). Folders of such folders are searched.

The largest difference is given relative to the largest magnitude of the result. What is allowed:
  float models                       1e-5
  with QuantizeLinear (static int8)  codes may differ by one where a value lies in the middle between
                                     two, which later layers carry on: --int8 (0.1)
  dynamic layers                     ONNX chooses scale and zero point by another rule: --dynamic (0.1)
What ONNX Runtime has no kernels for (float4) is run by onnx's reference evaluator; files that it
cannot run either are named, and are no failure with --allow-unsupported. Ends with status 1 when something failed.
"""

import argparse
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def tensors(folder, kind):
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    result = []
    for path in paths:
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        result.append(numpy_helper.to_array(tensor))
    return result


def kind_of(model):
    ops = {node.op_type for node in model.graph.node}
    if ops & {"DynamicQuantizeLinear", "DynamicQuantizeLSTM"}:
        return "dynamic"
    if any(key.key.startswith("quanta.layer.") and "Dynamic" in key.value for key in model.metadata_props):
        return "dynamic"
    return "int8" if ops & {"QuantizeLinear", "QLinearConv"} else "float"


def difference(got, wanted):
    if got.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(wanted)):
        return float("inf")
    scale = np.nanmax(np.abs(wanted)) or 1.0
    return float(np.nanmax(np.abs(got - wanted)) / scale)


def check(folder):
    """(kind, difference, share of elements off, who ran it) of a folder; raises what onnx raises."""
    path = folder / "model.onnx"
    model = onnx.load(str(path))
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Weights of 4 and 8 bits times floats, in float arithmetic: by default it rounds activations.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    data = folder / "test_data_set_0"
    inputs = dict(zip((value.name for value in model.graph.input), tensors(data, "input")))
    by = ""
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        if any(node.domain not in ("", "ai.onnx") for node in model.graph.node):
            raise
        results = ReferenceEvaluator(model).run(None, inputs)
        by = "by the reference evaluator"
    worst, off = 0.0, 0.0
    for got, wanted in zip(results, tensors(data, "output"), strict=True):
        worst = max(worst, difference(got, wanted))
        if got.shape == wanted.shape and got.size:
            scale = np.max(np.abs(wanted)) or 1.0
            off = max(off, float(np.mean(np.abs(got.astype(np.float64) - wanted) > 1e-5 * scale)))
    return kind_of(model), worst, off, by


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--float", dest="float_limit", type=float, default=1e-5)
    parser.add_argument("--int8", dest="int8_limit", type=float, default=0.1)
    parser.add_argument("--dynamic", dest="dynamic_limit", type=float, default=0.1)
    parser.add_argument("--allow-unsupported", action="store_true")
    args = parser.parse_args()
    limits = {"float": args.float_limit, "int8": args.int8_limit, "dynamic": args.dynamic_limit}
    models = sorted(path.parent for folder in args.folders for path in folder.rglob("model.onnx"))
    if not models:
        parser.error("no model.onnx in these folders")
    failed = 0
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    for folder in models:
        name = folder.name
        try:
            kind, worst, off, by = check(folder)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
            print(f"{name:32} no kernel: {str(error).splitlines()[0][:120]}")
            failed += not args.allow_unsupported
            continue
        except Exception as error:  # noqa: BLE001: each file is one line of the table
            print(f"{name:32} FAILED: {type(error).__name__}: {str(error).splitlines()[0][:300]}")
            failed += 1
            continue
        good = worst <= limits[kind]
        failed += not good
        print(f"{name:32} {kind:8} {worst:9.2e}  {off:6.1%} of elements off {by}{'' if good else ' FAILED'}")
    print(f"{len(models)} files, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
