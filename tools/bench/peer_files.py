#!/usr/bin/env python3
"""Writes the int8 files that ONNX Runtime and OpenVINO run, for tools/bench/peers.py.

    peer_files.py FOLDER [--model NAME...] [--sizes x=1,3,640,640]

Needs a Python that has numpy, onnx, onnxruntime, openvino, nncf and safetensors. Each network is a
folder in FOLDER with float.onnx and, for the calibration, calib.safetensors (x [count, ...]); without
that eight random inputs are taken. Written are ort_u8s8.onnx, ort_s8s8.onnx (static, QDQ, a scale for
each output channel), ort_dyn.onnx (dynamic) and ov_int8.xml (nncf's post-training quantization; as a
transformer where there are no convolutions). What is there already stays. What a peer cannot quantize
is told, and there is no file then.
"""

import argparse
import logging
import os
import sys
import tempfile

from peer_worker import full_sizes, parse_sizes, random_array

CALIBRATION_INPUTS = 8


def calibration(path, sizes):
    """Inputs by name, one at a time."""
    import onnx

    model = onnx.load(os.path.join(path, "float.onnx"), load_external_data=False)
    constants = {value.name for value in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    file = os.path.join(path, "calib.safetensors")
    if os.path.exists(file):
        from safetensors.numpy import load_file

        x = load_file(file)["x"]
        return [{inputs[0].name: x[i : i + 1]} for i in range(len(x))]
    types = {1: "tensor(float)", 6: "tensor(int32)", 7: "tensor(int64)"}
    arrays = {}
    for value in inputs:
        tensor = value.type.tensor_type
        dims = full_sizes(value.name, [dim.dim_value or None for dim in tensor.shape.dim], 1, sizes)
        arrays[value.name] = random_array([CALIBRATION_INPUTS * dims[0], *dims[1:]], types[tensor.elem_type])
    return [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(CALIBRATION_INPUTS)]


def prepared(path, folder):
    """The float file as ONNX Runtime wants it before it quantizes."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, target = os.path.join(path, "float.onnx"), os.path.join(folder, "prepared.onnx")
    try:
        quant_pre_process(source, target)
    except Exception:
        quant_pre_process(source, target, skip_symbolic_shape=True)
    return target


def ort_static(path, target, inputs, activations):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(inputs)

        def get_next(self):
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        quantize_static(prepared(path, folder), target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=getattr(QuantType, activations), weight_type=QuantType.QInt8)  # fmt: skip


def ort_dynamic(path, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        quantize_dynamic(prepared(path, folder), target, per_channel=True, weight_type=QuantType.QInt8)


def openvino_int8(path, target, inputs):
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    model = openvino.Core().read_model(os.path.join(path, "float.onnx"))
    has_convolutions = any("Convolution" in op.get_type_name() for op in model.get_ops())
    kind = {} if has_convolutions else {"model_type": nncf.ModelType.TRANSFORMER}
    quantized = nncf.quantize(model, nncf.Dataset(inputs), subset_size=len(inputs), preset=nncf.QuantizationPreset.MIXED, **kind)
    openvino.save_model(quantized, target, compress_to_fp16=False)


def write(path, sizes):
    inputs = calibration(path, sizes)
    ways = {
        "ort_u8s8.onnx": lambda target: ort_static(path, target, inputs, "QUInt8"),
        "ort_s8s8.onnx": lambda target: ort_static(path, target, inputs, "QInt8"),
        "ort_dyn.onnx": lambda target: ort_dynamic(path, target),
        "ov_int8.xml": lambda target: openvino_int8(path, target, inputs),
    }
    for name, way in ways.items():
        target = os.path.join(path, name)
        if os.path.exists(target):
            continue
        try:
            way(target)
            print(f"{target}: written", flush=True)
        except Exception as error:
            if os.path.exists(target):
                os.remove(target)
            print(f"{target}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--model", nargs="+", help="these networks (default: all of FOLDER)")
    parser.add_argument("--sizes", action="append", default=[], help="of inputs whose sizes the file leaves open")
    options = parser.parse_args()
    sizes, root = parse_sizes(options.sizes), os.path.abspath(options.folder)
    here = os.getcwd()
    # ONNX Runtime leaves files of its own in the working folder.
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for model in options.model or sorted(os.listdir(root)):
            path = os.path.join(root, model)
            if os.path.exists(os.path.join(path, "float.onnx")):
                write(path, sizes)
        os.chdir(here)
    return 0


if __name__ == "__main__":
    sys.exit(main())
