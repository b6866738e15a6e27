// quanta-coverage: prints what Quanta has of torch.ao.quantization as docs/coverage.md holds it, or
// checks that list against the sources of a repository: quanta-coverage [--check REPOSITORY].

#include <fmt/core.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report.h"

namespace {

int run(std::span<char*> arguments) {
  if (arguments.empty()) {
    fmt::print("{}", quanta::coverage::to_markdown(QUANTA_REPOSITORY));
    return 0;
  }
  if (arguments.size() != 2 || std::string_view(arguments[0]) != "--check") {
    fmt::print(stderr, "usage: quanta-coverage [--check REPOSITORY]\n");
    return 2;
  }
  const std::vector<std::string> problems = quanta::coverage::problems(arguments[1]);
  for (const std::string& problem : problems) fmt::print(stderr, "coverage: {}\n", problem);
  return problems.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (const std::exception& error) {
    fmt::print(stderr, "coverage: {}\n", error.what());
    return 1;
  }
}
