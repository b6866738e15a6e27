#pragma once

// Where the tests' files are.

#include <filesystem>

namespace quanta::test {

/// The repository.
std::filesystem::path source_folder();

/// The golden cases: tests/golden, with the folders torch and seeds.
std::filesystem::path golden_cases();

}  // namespace quanta::test
