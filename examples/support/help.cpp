#include "support/help.h"

#include <cstdio>
#include <exception>

namespace quanta::examples {

bool asked_for_help(int argc, char** argv, std::string_view usage) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument != "--help" && argument != "-h") continue;
    std::printf("usage: %.*s\n", static_cast<int>(usage.size()), usage.data());
    return true;
  }
  return false;
}

int run_main(int argc, char** argv, std::string_view usage, const std::function<int()>& run) {
  if (asked_for_help(argc, argv, usage)) return 0;
  try {
    return run();
  } catch (const std::exception& error) {
    const std::string_view name = usage.substr(0, usage.find_first_of(" \n"));
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(name.size()), name.data(), error.what());
    return 1;
  }
}

}  // namespace quanta::examples
