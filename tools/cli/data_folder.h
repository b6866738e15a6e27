#pragma once

#include <filesystem>

namespace quanta::cli {

/// Where the demo's weights are: what the package installed beside this program, wherever it was
/// moved to; else the source tree's examples/data.
std::filesystem::path demo_data_folder();

}  // namespace quanta::cli
