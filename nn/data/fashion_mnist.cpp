#include "quanta/nn/data/fashion_mnist.h"

#include <string>

#include "quanta/nn/data/idx.h"
#include "quanta/runtime/error.h"

namespace quanta::data {
namespace {

constexpr std::int64_t kSide = 28;

Tensor read(const std::filesystem::path& path, const Dims& item_sizes) {
  if (!std::filesystem::exists(path)) {
    throw FileError("fashion_mnist: " + path.string() +
                    ": no such file (install Debian's package dataset-fashion-mnist, or give the "
                    "folder with the four .gz files)");
  }
  const Tensor x = read_idx(path);
  Dims expected = item_sizes;
  expected.insert(0, x.dim() > 0 ? x.size(0) : 0);
  if (x.dtype() != DType::UInt8 || x.sizes() != expected) {
    throw FileError("fashion_mnist: " + path.string() + ": expected UInt8 " + to_string(expected) +
                    ", got " + std::string(to_string(x.dtype())) + " " + to_string(x.sizes()));
  }
  return x;
}

}  // namespace

FashionMnist::FashionMnist(const std::filesystem::path& folder, Split split) {
  const std::string stem = split == Split::Train ? "train" : "t10k";
  const Tensor pixels = read(folder / (stem + "-images-idx3-ubyte.gz"), {kSide, kSide});
  const Tensor labels = read(folder / (stem + "-labels-idx1-ubyte.gz"), {});
  if (pixels.size(0) != labels.size(0)) {
    throw FileError("fashion_mnist: " + folder.string() + ": images and labels differ in number");
  }
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (labels.data<std::uint8_t>()[i] > 9) {
      throw FileError("fashion_mnist: " + folder.string() + ": a label above 9");
    }
  }
  dataset_ = std::make_shared<TensorDataset>(pixels.unsqueeze(1), labels.to(DType::Int64));
}

Transform FashionMnist::normalization() { return normalize({0.2860F}, {0.3530F}); }

Tensor FashionMnist::images(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin > size() - count) {
    throw ArgumentError("fashion_mnist: images: expected a range within " + std::to_string(size()) +
                        " images, got " + std::to_string(begin) + " + " + std::to_string(count));
  }
  // One tall picture: all pixels are normalized alike.
  Generator unused;
  const Tensor pixels = dataset_->inputs().narrow(0, begin, count);
  return normalization()(pixels.reshape({1, count * kSide, kSide}), unused)
      .view({count, 1, kSide, kSide});
}

int FashionMnist::label(std::int64_t index) const {
  return static_cast<int>(dataset_->targets().select(0, index).item());
}

}  // namespace quanta::data
