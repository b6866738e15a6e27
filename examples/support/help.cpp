#include "support/help.h"

#include <cstdio>

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

}  // namespace quanta::examples
