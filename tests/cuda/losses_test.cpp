// Losses on a CUDA device and their gradients, compared with the CPU's.

#include "quanta/ops/loss.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using test::check_devices;
using test::library_bound;
using Tensors = std::vector<Tensor>;

constexpr Reduction kReductions[] = {Reduction::None, Reduction::Mean, Reduction::Sum};

Tensor random_classes(const Dims& sizes, std::int64_t classes, std::int64_t ignored,
                      Generator& generator, DType dtype = DType::Int64) {
  Tensor target = Tensor::empty(sizes, DType::Int64);
  auto* values = target.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < target.numel(); ++i) {
    values[i] = generator.integer(0, 4) == 0 ? ignored : generator.integer(0, classes - 1);
  }
  return target.to(dtype);
}

}  // namespace

TEST_CASE("cuda losses: elements and both gradients with every reduction") {
  Generator generator(1);
  for (const Dims& sizes : {Dims{3, 7}, Dims{}, Dims{0, 4}, Dims{5, 1, 11}, Dims{40000}}) {
    CAPTURE(sizes);
    Tensor input = randn(sizes, generator);
    Tensor target = randn(sizes, generator);
    if (input.numel() > 8) {
      auto* values = input.mutable_data<float>();
      values[1] = std::numeric_limits<float>::infinity();
      values[2] = std::numeric_limits<float>::quiet_NaN();
      values[3] = target.data<float>()[3];
    }
    for (const Reduction reduction : kReductions) {
      CAPTURE(static_cast<int>(reduction));
      check_devices({input, target}, 0b11,
                    [&](const Tensors& in) { return mse_loss(in[0], in[1], reduction); });
      check_devices({input, target}, 0b11,
                    [&](const Tensors& in) { return l1_loss(in[0], in[1], reduction); });
      for (const double beta : {0.0, 0.7, 1.0}) {
        check_devices({input, target}, 0b11, [&](const Tensors& in) {
          return smooth_l1_loss(in[0], in[1], reduction, beta);
        });
      }
      const auto cross_entropy = [&](const Tensors& in) {
        return binary_cross_entropy_with_logits(in[0], in[1], {.reduction = reduction});
      };
      check_devices({input, target}, 0b11, cross_entropy, library_bound());
    }
  }
}

TEST_CASE("cuda losses: sums of many terms do not depend on the device") {
  Generator generator(2);
  for (const std::int64_t count : {255, 16384, 16385, 50001}) {
    CAPTURE(count);
    const Tensor input = randn({count}, generator);
    const Tensor target = randn({count}, generator);
    check_devices({input, target}, 0b01,
                  [&](const Tensors& in) { return mse_loss(in[0], in[1], Reduction::Sum); });
  }
}

TEST_CASE("cuda losses: weights of elements and of positive answers broadcast") {
  Generator generator(3);
  const Tensor input = randn({4, 6}, generator).t();
  const Tensor target = sigmoid(randn({6, 4}, generator));
  const Tensor weight = randn({4}, generator);
  const Tensor positive = randn({6, 1}, generator);
  for (const Reduction reduction : kReductions) {
    const auto cross_entropy = [&](const Tensors& in) {
      return binary_cross_entropy_with_logits(
          in[0], in[1], {.weight = in[2], .pos_weight = in[3], .reduction = reduction});
    };
    check_devices({input, target, weight, positive}, 0b11, cross_entropy, library_bound());
  }
}

TEST_CASE("cuda losses: classes with weights and ignored rows and smoothing") {
  Generator generator(4);
  for (int round = 0; round < 24; ++round) {
    const std::int64_t classes = generator.integer(1, 70);
    Dims sizes{generator.integer(1, 9), classes};
    Dims rows{sizes[0]};
    if (round % 3 == 1) {
      sizes = {2, classes, 3, 5};
      rows = {2, 3, 5};
    }
    if (round % 8 == 7) {
      sizes = {classes};
      rows = {};
    }
    const std::int64_t ignored = round % 2 == 0 ? -100 : 0;
    const DType dtype = round % 4 < 2 ? DType::Int64 : DType::Int32;
    const Tensor scores = randn(sizes, generator);
    const Tensor target = random_classes(rows, classes, ignored, generator, dtype);
    const Tensor weight = round % 3 == 0 ? Tensor() : randn({classes}, generator).abs();
    CAPTURE(sizes);
    for (const Reduction reduction : kReductions) {
      const auto options = [&](const Tensors& in, double smoothing) {
        return ClassLossOptions{.weight = in[2],
                                .ignore_index = ignored,
                                .reduction = reduction,
                                .label_smoothing = smoothing};
      };
      for (const double smoothing : {0.0, 0.1}) {
        check_devices({scores, target, weight}, 0b001, [&](const Tensors& in) {
          return cross_entropy(in[0], in[1], options(in, smoothing));
        });
      }
      check_devices({log_softmax(scores, sizes.size() == 1 ? 0 : 1), target, weight}, 0b001,
                    [&](const Tensors& in) { return nll_loss(in[0], in[1], options(in, 0.0)); });
    }
  }
}

TEST_CASE("cuda losses: targets that are probabilities have a gradient") {
  Generator generator(5);
  for (const Dims& sizes : {Dims{3, 5}, Dims{2, 40, 3}, Dims{7}}) {
    const std::int64_t axis = sizes.size() == 1 ? 0 : 1;
    const Tensor scores = randn(sizes, generator);
    const Tensor target = softmax(randn(sizes, generator), axis);
    const Tensor weight = randn({sizes[static_cast<std::size_t>(axis)]}, generator);
    for (const Reduction reduction : kReductions) {
      for (const double smoothing : {0.0, 0.3}) {
        check_devices({scores, target, weight}, 0b011, [&](const Tensors& in) {
          return cross_entropy(
              in[0], in[1],
              {.weight = in[2], .reduction = reduction, .label_smoothing = smoothing});
        });
      }
    }
  }
}

TEST_CASE("cuda losses: many rows and no rows and nothing but ignored ones") {
  Generator generator(6);
  const Tensor scores = randn({20000, 3}, generator);
  const Tensor target = random_classes({20000}, 3, -100, generator);
  const Tensor weight = randn({3}, generator).abs();
  check_devices({scores, target, weight}, 0b001,
                [](const Tensors& in) { return cross_entropy(in[0], in[1], {.weight = in[2]}); });
  for (const std::int64_t rows : {0, 4}) {
    const Tensor none = Tensor::full({rows}, -100.0, DType::Int64);
    check_devices({randn({rows, 3}, generator), none}, 0b001,
                  [](const Tensors& in) { return cross_entropy(in[0], in[1]); });
  }
}

TEST_CASE("cuda losses: a class out of range is refused with its number as on the CPU") {
  const Device device = test::test_device();
  const Tensor scores = Tensor::zeros({3, 4}).to(device);
  for (const std::int64_t bad : {4, -1, -100}) {
    const Tensor target = Tensor::from_int64(std::vector<std::int64_t>{0, bad, 3}).to(device);
    const std::string text =
        "target: expected classes in 0..3 or ignore_index 7, got " + std::to_string(bad);
    CHECK_THROWS_WITH_AS(cross_entropy(scores, target, {.ignore_index = 7}),
                         doctest::Contains(text.c_str()), ArgumentError);
    CHECK_THROWS_WITH_AS(nll_loss(scores, target, {.ignore_index = 7}),
                         doctest::Contains(text.c_str()), ArgumentError);
  }
}

TEST_CASE("cuda losses: what has no kernel and what is elsewhere is refused by name") {
  const Device device = test::test_device();
  const Tensor wide = Tensor::zeros({2, 3}, DType::Float64).to(device);
  CHECK_THROWS_WITH_AS(mse_loss(wide, wide), doctest::Contains("mse_loss"), UnsupportedError);
  const Tensor scores = Tensor::zeros({2, 3}).to(device);
  const Tensor target = Tensor::zeros({2}, DType::Int64);
  CHECK_THROWS_WITH_AS(cross_entropy(scores, target), doctest::Contains("all on one device"),
                       ArgumentError);
}

}  // namespace quanta
