#pragma once

#include <CLI/CLI.hpp>

#include "bench.h"
#include "compare_onnx.h"
#include "inspect.h"
#include "quantize_onnx.h"
#include "run_onnx.h"
#include "sensitivity_onnx.h"

namespace quanta::cli {

// The options of the commands that take ONNX files. What they fill has to outlive `app`.
void add_inspect_command(CLI::App& app, InspectOptions& options);
void add_run_command(CLI::App& app, RunOptions& options);
void add_quantize_command(CLI::App& app, QuantizeOptions& options);
void add_compare_command(CLI::App& app, CompareOptions& options);
void add_sensitivity_command(CLI::App& app, SensitivityCommand& options);
/// Those of `bench` that are about ONNX files.
void add_bench_onnx_options(CLI::App& command, BenchOptions& options);

}  // namespace quanta::cli
