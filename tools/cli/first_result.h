#pragma once

#include "bench.h"

namespace quanta::cli {

/// Loads the saved model `options.weights`, runs it once, and prints one JSON object: when that began
/// (inputs are there, nothing of the model is), when the model could run and when the result was
/// there, in nanoseconds of the system's monotonic clock, by which whoever started the process tells
/// the rest; and how many weights were packed and how many found packed in the file. Returns the exit
/// status. Throws ArgumentError without --model and --weights, and what loading throws.
int run_first_result(const BenchOptions& options);

}  // namespace quanta::cli
