// The demo's job on a part of the real data: the trained networks, 500 test images.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/runtime/device.h"
#include "quanta/runtime/safetensors.h"
#include "support/files.h"
#include "support/paths.h"

namespace quanta::test {
namespace {

using data::FashionMnist;

constexpr std::int64_t kImages = 500;
constexpr std::int64_t kBatch = 50;

int right_answers(const nn::Module& model, const FashionMnist& data) {
  int right = 0;
  for (std::int64_t begin = 0; begin < kImages; begin += kBatch) {
    const std::vector<float> logits = model(data.images(begin, kBatch)).to_float_vector();
    for (std::int64_t i = 0; i < kBatch; ++i) {
      const auto row = logits.begin() + i * 10;
      right += std::max_element(row, row + 10) - row == data.label(begin + i) ? 1 : 0;
    }
  }
  return right;
}

// The networks' float accuracies on all 10,000 images are 93.5 % and 92.5 %; 90 % of the first 500
// and at most five answers lost or won by int8 leave room for the small sample.
template <typename Net>
void check_network(const std::string& name) {
  if (!std::filesystem::exists(FashionMnist::kDebianFolder)) {
    MESSAGE("skipped: install dataset-fashion-mnist to run this test");
    return;
  }
  const FashionMnist train(FashionMnist::kDebianFolder, FashionMnist::Split::Train);
  const FashionMnist test(FashionMnist::kDebianFolder, FashionMnist::Split::Test);
  Net net;
  net.load_state_dict(
      read_safetensors(source_folder() / "examples" / "data" / (name + ".safetensors")));
  net.eval();
  const int float_right = right_answers(net, test);
  CHECK(float_right >= 450);

  fuse_modules(net, fusion_groups(net));
  const Net prepared = prepare(net, get_default_qconfig());
  for (std::int64_t begin = 0; begin < 256; begin += 64) prepared(train.images(begin, 64));
  const Net int8 = convert(prepared);
  CHECK(std::abs(right_answers(int8, test) - float_right) <= 5);

  const TemporaryFile file;
  save_model(int8, file.path);
  Net loaded;
  loaded.eval();
  load_model(loaded, file.path);
  CHECK(loaded(test.images(0, kBatch)).equal(int8(test.images(0, kBatch))));
  CHECK(
      std::filesystem::file_size(file.path) * 10 <=
      std::filesystem::file_size(source_folder() / "examples" / "data" / (name + ".safetensors")) *
          3);

  // Real pictures give the same codes on another device.
  const Tensor expected = int8(test.images(0, 3));
  loaded.to(Device::cuda_emulated());
  CHECK(loaded(test.images(0, 3).to(Device::cuda_emulated())).cpu().equal(expected));
}

}  // namespace

TEST_CASE("fashion_resnet: int8 names the clothes as well as float") {
  check_network<nn::models::FashionResNet>("fashion_resnet");
}

TEST_CASE("fashion_mobilenet: int8 names the clothes as well as float") {
  check_network<nn::models::FashionMobileNet>("fashion_mobilenet");
}

}  // namespace quanta::test
