#include "quanta/nn/data/image_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <system_error>

#include "quanta/runtime/check.h"

namespace quanta::data {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& path) {
  constexpr std::array<std::string_view, 5> kExtensions = {".png", ".jpg", ".jpeg", ".ppm", ".pgm"};
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

template <typename Iterator, typename Accept>
std::vector<fs::path> sorted_entries(const fs::path& folder, Accept accept) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (Iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (accept(*it)) paths.push_back(it->path());
  }
  if (error) {
    throw FileError(fmt::format("ImageFolder: {}: {}", folder.string(), error.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

ImageFolder::ImageFolder(const fs::path& root, ImageMode mode) : mode_(mode) {
  std::error_code error;
  const std::vector<fs::path> folders = sorted_entries<fs::directory_iterator>(
      root, [&](const fs::directory_entry& entry) { return entry.is_directory(error); });
  if (folders.empty()) {
    throw FileError(
        fmt::format("ImageFolder: {}: expected a folder for each class, got none", root.string()));
  }
  for (const fs::path& folder : folders) {
    const std::vector<fs::path> images = sorted_entries<fs::recursive_directory_iterator>(
        folder, [&](const fs::directory_entry& entry) {
          return entry.is_regular_file(error) && is_image_name(entry.path());
        });
    if (images.empty()) {
      throw FileError(fmt::format(
          "ImageFolder: {}: expected .png, .jpg, .jpeg, .ppm or .pgm files of the class, got none",
          folder.string()));
    }
    for (const fs::path& image : images) {
      files_.push_back({image, static_cast<std::int64_t>(classes_.size())});
    }
    classes_.push_back(folder.filename().string());
  }
}

const ImageFolder::File& ImageFolder::file(std::int64_t index) const {
  QUANTA_CHECK(index >= 0 && index < size(), "ImageFolder: index: expected 0..{}, got {}",
               size() - 1, index);
  return files_[static_cast<std::size_t>(index)];
}

const fs::path& ImageFolder::path(std::int64_t index) const { return file(index).path; }

Example ImageFolder::item(std::int64_t index) const {
  const File& entry = file(index);
  return {read_image(entry.path, mode_),
          Tensor::scalar(static_cast<double>(entry.label), DType::Int64)};
}

}  // namespace quanta::data
