#pragma once

#include <string>

namespace quanta::cli {

struct CoverageOptions {
  std::string check_root;  ///< of the repository; empty: print
};

/// Prints what Quanta has of torch.ao.quantization as Markdown, or checks that list against the
/// sources and prints what is wrong. Returns the exit status.
int run_coverage(const CoverageOptions& options);

}  // namespace quanta::cli
