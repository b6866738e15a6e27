#include "quanta/ops/shape.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/factory.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;
using Codes = std::vector<std::int64_t>;

QTensor per_channel() {
  return QTensor::from_int_repr(Tensor::arange(24, DType::Int8).view({4, 3, 2}),
                                Quantizer::per_channel({0.1, 0.2, 0.3, 0.4}, {0, 1, 2, 3}, 0));
}

Codes lengths(const std::vector<Tensor>& parts, std::int64_t dim) {
  Codes result;
  for (const Tensor& part : parts) result.push_back(part.size(dim));
  return result;
}

}  // namespace

TEST_CASE("chunk and split: the examples of torch's documentation") {
  CHECK(lengths(chunk(Tensor::arange(11), 6), 0) == Codes{2, 2, 2, 2, 2, 1});
  CHECK(lengths(chunk(Tensor::arange(12), 6), 0) == Codes{2, 2, 2, 2, 2, 2});
  CHECK(lengths(chunk(Tensor::arange(13), 6), 0) == Codes{3, 3, 3, 3, 1});
  const Tensor x = Tensor::arange(10).view({5, 2});
  CHECK(lengths(split(x, 2), 0) == Codes{2, 2, 1});
  CHECK(split_with_sizes(x, {1, 4})[1].equal(x.slice(0, 1, 5)));
  CHECK(unbind(x, 1)[1].equal(x.select(1, 1)));
  CHECK(chunk(Tensor::empty({0, 2}), 3).size() == 3);
  CHECK_THROWS_WITH_AS(chunk(Tensor::empty({0, 2}), std::int64_t{1} << 40U),
                       doctest::Contains("chunks: expected at most"), ArgumentError);
  CHECK(split(Tensor::empty({0, 2}), 3).size() == 1);
  CHECK(unbind(Tensor::empty({0, 2})).empty());
}

TEST_CASE("chunk and split: views that share memory and follow the channel axis") {
  const QTensor x = per_channel();
  const std::vector<Tensor> halves = chunk(x, 2);
  CHECK(halves[1].storage() == x.storage());
  CHECK(QTensor(halves[1]).q_per_channel_scales().to_float_vector() ==
        std::vector<float>{0.3F, 0.4F});
  CHECK(QTensor(split(x, 1)[2]).q_zero_point() == 2);
  CHECK(QTensor(unbind(x)[3]).q_scale() == 0.4);
  CHECK(QTensor(unbind(x, 2)[1]).q_per_channel_axis() == 0);
  CHECK(split_with_sizes(x, {3, 0, 1})[1].numel() == 0);
}

TEST_CASE("stack: a new dimension with the parameters of the first") {
  Generator generator(51);
  for (const Layout layout : kLayouts) {
    const QTensor a(in_layout(layout, 3, 2, 4, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QUInt8, 0.1, 128, generator));
    }));
    const QTensor b = random_codes({2, 3, 2, 4}, DType::QUInt8, 0.15, 120, generator);
    for (const std::int64_t dim : {0, 2, -1}) {
      const Tensor both[] = {a, b};
      const QTensor result(stack(both, dim));
      CHECK(result.quantizer() == a.quantizer());
      CHECK(result.dim() == 5);
      CHECK(result.select(dim, 0).equal(a));
      CHECK(
          result.select(dim, 1).equal(quantize_per_tensor(dequantize(b), 0.1, 128, DType::QUInt8)));
    }
  }
  const Tensor floats[] = {Tensor::ones({2}), Tensor::zeros({2})};
  CHECK(stack(floats, 1).to_float_vector() == std::vector<float>{1, 0, 1, 0});
}

TEST_CASE("flip and repeat: agree with index arithmetic in any layout") {
  Generator generator(52);
  CHECK(flip(Tensor::arange(8).view({2, 2, 2}), {0, 1}).to_float_vector() ==
        std::vector<float>{6, 7, 4, 5, 2, 3, 0, 1});
  CHECK(repeat(Tensor::from_values({1, 2, 3}), {2, 2}).to_float_vector() ==
        std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  CHECK(repeat(Tensor::scalar(5), {}).item() == 5.0);
  for (const Layout layout : kLayouts) {
    const QTensor x(in_layout(layout, 5, 3, 4, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QInt8, 0.1, 1, generator));
    }));
    const Tensor flipped = flip(x, {1, -1});
    CHECK(QTensor(flipped).quantizer() == x.quantizer());
    const Tensor repeated = repeat(x, {2, 1, 3, 1, 2});
    CHECK(repeated.sizes() == Dims{2, 2, 15, 3, 8});
    CHECK(QTensor(repeated).quantizer() == x.quantizer());
    for (std::int64_t c = 0; c < 5; ++c) {
      for (std::int64_t w = 0; w < 4; ++w) {
        CHECK(flipped.select(1, c).select(2, w).equal(x.select(1, 4 - c).select(2, 3 - w)));
        CHECK(repeated.select(0, 1).select(1, c + 10).select(2, w + 4).equal(
            x.select(1, c).select(2, w)));
      }
    }
  }
  CHECK(repeat(Tensor::ones({2}), {0}).sizes() == Dims{0});
  CHECK(flip(Tensor::empty({0, 2}), {0}).sizes() == Dims{0, 2});
}

TEST_CASE("unfold: the windows of torch's documentation share memory") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5, 6, 7});
  const Tensor windows = unfold(x, 0, 2, 1);
  CHECK(windows.sizes() == Dims{6, 2});
  CHECK(windows.select(0, 4).to_float_vector() == std::vector<float>{5, 6});
  CHECK(windows.storage() == x.storage());
  CHECK(unfold(x, 0, 2, 2).to_float_vector() == std::vector<float>{1, 2, 3, 4, 5, 6});
  const Tensor y = Tensor::arange(24).view({2, 3, 4}).permute({2, 0, 1});
  CHECK(unfold(y, 0, 3, 1).select(3, 2).equal(y.slice(0, 2, 4)));
}

TEST_CASE("resize_: keeps the first elements of memory and grows where needed") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(resize_(x, {2, 2}).to_float_vector() == std::vector<float>{1, 2, 3, 4});
  const Tensor view = x.select(0, 0);
  CHECK(resize_(x, {4, 3}).numel() == 12);
  CHECK(x.slice(0, 0, 2).to_float_vector() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(view.to_float_vector() == std::vector<float>{1, 2});
  const QTensor q = QTensor::empty({4}, 0.5, 1, DType::QInt32);
  q.fill_(2.0);
  resize_(q, {2, 1});
  CHECK(q.sizes() == Dims{2, 1});
  CHECK(codes_of(q) == Codes{5, 5});
  CHECK(resize_(Tensor::ones({3, 2}).t(), {2, 3}).strides() == Dims{1, 2});
}

TEST_CASE("detach: a handle of its own for the same elements") {
  const Tensor x = Tensor::ones({2, 3});
  const Tensor y = x.detach();
  CHECK(y.data_ptr() == x.data_ptr());
  resize_(y, {6});
  CHECK(x.sizes() == Dims{2, 3});
  CHECK(QTensor(per_channel().detach()).quantizer() == per_channel().quantizer());
}

TEST_CASE("factories: codes and parameters make quantized tensors") {
  const Tensor codes = Tensor::arange(6, DType::UInt8).view({2, 3});
  const QTensor x = make_per_tensor_quantized_tensor(codes, 0.1, 2);
  CHECK(x.dtype() == DType::QUInt8);
  CHECK(x.q_scale() == 0.1);
  codes.fill_(0.0);
  CHECK(codes_of(x) == Codes{0, 1, 2, 3, 4, 5});
  const std::int64_t zero_points[] = {1, -2};
  const QTensor y = make_per_channel_quantized_tensor(Tensor::zeros({2, 3}, DType::Int32),
                                                      Tensor::from_values({0.5F, 0.25F}),
                                                      Tensor::from_int64(zero_points), 0);
  CHECK(y.dtype() == DType::QInt32);
  CHECK(y.to_float_vector() == std::vector<float>{-0.5F, -0.5F, -0.5F, 0.5F, 0.5F, 0.5F});
  const QTensor z = make_per_channel_quantized_tensor(Tensor::zeros({2, 3}, DType::UInt8),
                                                      Tensor::from_values({0.5F, 0.25F}),
                                                      Tensor::from_values({0.5F, 1.5F}), 0);
  CHECK(z.qscheme() == QScheme::PerChannelAffineFloatQParams);
  CHECK(empty_quantized({5}, x).quantizer() == x.quantizer());
  CHECK(empty_quantized({2, 7}, y).quantizer() == y.quantizer());
  CHECK(empty_affine_quantized({2, 3, 4, 5}, 0.5, 1, DType::QInt8, MemoryFormat::ChannelsLast)
            .is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(empty_per_channel_affine_quantized({3, 2}, Tensor::from_values({0.5F, 0.25F}),
                                           Tensor::from_int64(zero_points), 1, DType::QInt8)
            .q_per_channel_axis() == 1);
  CHECK(ones_like(y).to_float_vector() == std::vector<float>(6, 1.0F));
  CHECK(empty_like(Tensor::ones({2}, DType::Int64)).dtype() == DType::Int64);
}

TEST_CASE("shape ops: what they cannot do is refused by name") {
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  const auto unsupported = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), UnsupportedError);
  };
  const Tensor x = Tensor::ones({2, 3});
  refused("chunk: chunks: expected > 0, got 0", [&] { chunk(x, 0); });
  refused("split: split_size: expected > 0, got 0", [&] { split(x, 0); });
  refused("split_with_sizes: split_sizes: expected sizes >= 0 that add up to 3, got 1, 1", [&] {
    split_with_sizes(x, {1, 1}, 1);
  });
  refused("unbind: x: expected a tensor with dimensions, got a 0-d one",
          [] { unbind(Tensor::scalar(1)); });
  const Tensor unequal[] = {x, Tensor::ones({3, 2})};
  refused("stack: tensors[1]: expected [2, 3] as the first has, got [3, 2]",
          [&] { stack(unequal); });
  const Tensor mixed[] = {x, x.to(DType::Int32)};
  refused("stack: tensors[1]: expected Float32 as the first has, got Int32", [&] { stack(mixed); });
  refused("unfold: size: expected 0..3, got 4", [&] { unfold(x, 1, 4, 1); });
  refused("unfold: step: expected > 0, got 0", [&] { unfold(x, 1, 2, 0); });
  refused("flip: dims: expected each dimension once, got [0, -2]", [&] { flip(x, {0, -2}); });
  refused("repeat: repeats: expected at least 2 numbers, got [2]", [&] { repeat(x, {2}); });
  refused("repeat: repeats: expected numbers >= 0, got [1, -1]", [&] { repeat(x, {1, -1}); });
  CHECK_THROWS_AS(repeat(x, {std::int64_t{1} << 62, 4}), ArgumentError);
  CHECK_THROWS_AS(resize_(x, {-1}), ArgumentError);
  const QTensor channels = per_channel();
  const Tensor two[] = {channels, channels};
  unsupported("stack: tensors[0]: expected one scale", [&] { stack(two); });
  unsupported("flip: x: expected one scale", [&] { flip(channels, {0}); });
  unsupported("repeat: x: expected one scale", [&] { repeat(channels, {1, 1, 1}); });
  unsupported("unfold: x: expected one scale", [&] { unfold(channels, 0, 1, 1); });
  unsupported("resize_: x: expected one scale", [&] { resize_(channels, {1}); });
  refused("make_per_tensor_quantized_tensor: codes: expected UInt8, Int8 or Int32, got Float32",
          [&] { make_per_tensor_quantized_tensor(x, 0.1, 0); });
  refused("make_per_tensor_quantized_tensor: zero_point: expected 0..255 for QUInt8, got -1",
          [&] { make_per_tensor_quantized_tensor(x.to(DType::UInt8), 0.1, -1); });
  refused("make_per_channel_quantized_tensor: scales: expected 2 for axis 0 of [2, 3], got 1", [&] {
    make_per_channel_quantized_tensor(x.to(DType::Int8), Tensor::ones({1}),
                                      Tensor::zeros({1}, DType::Int64), 0);
  });
  refused("empty_quantized: scales: expected 5 for axis 0 of [5], got 4",
          [&] { empty_quantized({5}, channels); });
}

TEST_CASE("resize_: what is new in a Bool tensor is false") {
  for (const std::int64_t size : {100, 4500, 70000}) {
    const Tensor x = Tensor::ones({3}, DType::Bool).clone();
    // Memory that was used before, which the allocator gives again.
    const auto use = [&] { return Tensor::full({size}, 171.0, DType::UInt8).numel(); };
    CHECK(use() == size);
    resize_(x, {size});
    const auto* bytes = static_cast<const std::uint8_t*>(x.data_ptr());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < size; ++i) wrong += bytes[i] == (i < 3 ? 1 : 0) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

}  // namespace quanta
