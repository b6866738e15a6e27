#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "quanta/nn/data/dataset.h"
#include "quanta/nn/data/image.h"

// What each function throws is said below. A data set is immutable once it is made: many threads
// may read it at once.

namespace quanta::data {

/// Images in one folder a class, as torchvision's ImageFolder: `root/dog/1.png`,
/// `root/cat/a/2.jpg`. Classes are numbered by the folders' names in order. Input UInt8 [C, H, W]
/// of the file's size (transforms: resize), target a 0-d Int64. Files are read when an item is
/// asked for.
class ImageFolder : public Dataset {
 public:
  /// Throws FileError when `root` is no folder, has no folders in it, or one of them holds no
  /// file named .png, .jpg, .jpeg, .ppm or .pgm.
  explicit ImageFolder(const std::filesystem::path& root, ImageMode mode = ImageMode::Rgb);

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  /// Reads an item. Throws FileError for a file that is no image.
  Example item(std::int64_t index) const override;
  /// The folders' names, by class number.
  const std::vector<std::string>& classes() const noexcept { return classes_; }
  /// Throws ArgumentError for an index outside.
  const std::filesystem::path& path(std::int64_t index) const;

 private:
  struct File {
    std::filesystem::path path;
    std::int64_t label;
  };
  const File& file(std::int64_t index) const;

  ImageMode mode_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace quanta::data
