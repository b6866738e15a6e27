#include "data_folder.h"

#include <system_error>

namespace quanta::cli {

std::filesystem::path demo_data_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path installed =
        (program.parent_path() / QUANTA_DATA_FROM_BIN).lexically_normal();
    if (std::filesystem::exists(installed / "fashion_resnet.safetensors", error)) return installed;
  }
  return QUANTA_DEMO_DATA_DIR;
}

}  // namespace quanta::cli
