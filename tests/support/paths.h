#pragma once

// Where the tests' files are.

#include <filesystem>

namespace quanta::test {

/// The repository.
std::filesystem::path source_folder();

/// The golden cases: tests/golden, with the folders torch and seeds.
std::filesystem::path golden_cases();
/// Those of PyTorch: tests/golden/torch.
std::filesystem::path golden_folder();

}  // namespace quanta::test
