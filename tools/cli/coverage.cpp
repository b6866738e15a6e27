#include "coverage.h"

#include <fmt/core.h>

#include <cstdio>

#include "../coverage/report.h"

namespace quanta::cli {

int run_coverage(const CoverageOptions& options) {
  if (options.check_root.empty()) {
    fmt::print("{}", coverage::to_markdown());
    return 0;
  }
  const std::vector<std::string> problems = coverage::problems(options.check_root);
  for (const std::string& problem : problems) fmt::print(stderr, "coverage: {}\n", problem);
  return problems.empty() ? 0 : 1;
}

}  // namespace quanta::cli
