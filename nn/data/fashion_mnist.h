#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "quanta/nn/data/dataset.h"
#include "quanta/nn/data/transforms.h"
#include "quanta/runtime/tensor.h"

// What each function throws is said below. A data set is immutable once it is made: many threads
// may read it at once.

namespace quanta::data {

/// Photographs of ten kinds of clothes, 28 x 28 grey pixels, as Debian's package
/// dataset-fashion-mnist installs them (four gzipped idx files).
class FashionMnist {
 public:
  enum class Split { Train, Test };
  static constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";

  /// Reads a split from `folder`. Throws FileError: missing (with the package to install),
  /// truncated, or not an idx file of 28 x 28 images.
  FashionMnist(const std::filesystem::path& folder, Split split);

  std::int64_t size() const noexcept { return dataset_->size(); }
  /// Images begin .. begin + count - 1 as the networks want them: Float32 [count, 1, 28, 28],
  /// normalized.
  Tensor images(std::int64_t begin, std::int64_t count) const;
  /// 0..9.
  int label(std::int64_t index) const;
  /// For a data loader: UInt8 [1, 28, 28] and a 0-d Int64.
  const std::shared_ptr<const TensorDataset>& dataset() const noexcept { return dataset_; }
  /// (pixel / 255 - 0.2860) / 0.3530.
  static Transform normalization();

 private:
  std::shared_ptr<const TensorDataset> dataset_;
};

}  // namespace quanta::data
