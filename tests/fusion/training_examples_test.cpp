// What the examples share for training.

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "runtime/file_test_util.h"
#include "support/train.h"

namespace {

using namespace quanta;

struct Stop : std::exception {};

// Trains two epochs of five batches, or until `stop_at` steps are done; the final state.
StateDict train(const std::filesystem::path& checkpoint, std::int64_t stop_at) {
  Generator generator(2);
  const auto dataset = std::make_shared<data::TensorDataset>(
      randn({20, 3}, generator), randint(0, 4, {20}, DType::Int64, generator));
  data::DataLoader loader(dataset, {.batch_size = 4, .shuffle = true});
  nn::Sequential net{nn::Linear({.in_features = 3, .out_features = 8}),
                     nn::BatchNorm1d({.num_features = 8}),
                     nn::Linear({.in_features = 8, .out_features = 4})};
  for (const Tensor& parameter : net.parameters()) {
    parameter.copy_(randn(parameter.sizes(), generator));
  }
  net.requires_grad_();
  optim::AdamW optimizer(net.parameters());
  optim::TrainingLoop loop({.model = net, .optimizer = optimizer}, {.checkpoint = checkpoint});
  try {
    examples::train_epochs(net, loop, loader, 2, "test", [&](std::int64_t step) {
      if (step == stop_at) throw Stop();
    });
  } catch (const Stop&) {
  }
  return net.state_dict();
}

}  // namespace

TEST_CASE("train_epochs: a run that was stopped anywhere ends as one that was not") {
  const test::TemporaryFolder folder;
  manual_seed(3);
  const StateDict whole = train({}, -1);
  for (std::int64_t stop_at = 0; stop_at < 10; ++stop_at) {
    const auto checkpoint = folder / std::to_string(stop_at);
    manual_seed(3);
    train(checkpoint, stop_at);
    // Without a checkpoint yet the run begins anew, with what the user seeds.
    manual_seed(stop_at == 0 ? 3 : 77);
    const StateDict resumed = train(checkpoint, -1);
    for (const auto& [name, tensor] : whole) CHECK(resumed.at(name).equal(tensor));
  }
}

TEST_CASE("FashionMnist: a folder without the files says what to install") {
  CHECK_THROWS_WITH_AS(data::FashionMnist("/nonexistent", data::FashionMnist::Split::Test),
                       doctest::Contains("install Debian's package dataset-fashion-mnist"),
                       FileError);
}

TEST_CASE("FashionMnist: files that do not fit together are refused") {
  const test::TemporaryFolder folder;
  const auto images = folder / "t10k-images-idx3-ubyte.gz";
  const auto labels = folder / "t10k-labels-idx1-ubyte.gz";
  const std::string picture(784, 'x');
  const std::string one("\0\0\x08\x03\0\0\0\x01\0\0\0\x1C\0\0\0\x1C", 16);
  const auto refuse = [&](const char* text) {
    CHECK_THROWS_WITH_AS(data::FashionMnist(folder.path(), data::FashionMnist::Split::Test),
                         doctest::Contains(text), FileError);
  };
  test::write_bytes(images, std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01x", 17));
  test::write_bytes(labels, std::string("\0\0\x08\x01\0\0\0\x02\x01\x02", 10));
  refuse("expected UInt8 [1, 28, 28], got UInt8 [1, 1, 1]");
  test::write_bytes(images, one + picture);
  refuse("images and labels differ in number");
  test::write_bytes(labels, std::string("\0\0\x08\x01\0\0\0\x01\x0A", 9));
  refuse("a label above 9");
  test::write_bytes(labels, std::string("\0\0\x08\x01\0\0\0\x01\x09", 9));
  const data::FashionMnist data(folder.path(), data::FashionMnist::Split::Test);
  CHECK(data.size() == 1);
  CHECK(data.label(0) == 9);
  CHECK(data.images(0, 1).sizes() == Dims{1, 1, 28, 28});
  CHECK(data.images(0, 1).to_float_vector().front() ==
        doctest::Approx((120.0 / 255.0 - 0.2860) / 0.3530));
  CHECK_THROWS_AS(data.images(0, 2), ArgumentError);
}
