#include "support/paths.h"

#include <cstdlib>

namespace quanta::test {

// The only file that is compiled with the path of the repository: a compiler cache can share all
// others between checkouts.
std::filesystem::path source_folder() {
  const char* carried = std::getenv("QUANTA_TEST_SOURCES");
  return carried == nullptr || *carried == '\0' ? QUANTA_SOURCE_DIR : carried;
}

std::filesystem::path golden_cases() { return source_folder() / "tests" / "golden"; }

std::filesystem::path golden_folder() { return golden_cases() / "torch"; }

}  // namespace quanta::test
