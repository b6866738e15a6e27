#pragma once

#include <string>

namespace quanta::cli {

struct InspectOptions {
  std::string path;
};

/// Prints name, dtype, sizes and quantization parameters of every tensor in the file. Returns the
/// exit status; throws what the readers throw.
int run_inspect(const InspectOptions& options);

/// Prints version, threads and instruction sets.
int run_info();

}  // namespace quanta::cli
