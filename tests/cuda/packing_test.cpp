// Tensors of codes that are made and packed on a CUDA device: the CPU's bytes.

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "quanta/ops/embedding.h"
#include "quanta/ops/factory.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/on_device.h"

namespace quanta {
namespace {

using quantized::NBitPrepackOptions;

const Device kDevice = test::test_device();

// Some rows constant, some with zeros of both signs at their ends, some very narrow or wide.
Tensor random_table(std::int64_t rows, std::int64_t columns, Generator& generator) {
  Tensor table = randn({rows, columns}, generator);
  auto* x = table.mutable_data<float>();
  for (std::int64_t r = 0; r < rows; ++r, x += columns) {
    const std::int64_t kind = generator.integer(0, 5);
    for (std::int64_t c = 0; c < columns; ++c) {
      if (kind == 0) x[c] = 0.3F;
      if (kind == 1) x[c] = c % 2 == 0 ? 0.0F : -0.0F;
      if (kind == 2) x[c] = x[c] < 0.0F ? -0.0F : (x[c] > 1.0F ? x[c] : 0.0F);
      if (kind == 3) x[c] = 7.0F + 1e-6F * x[c];
      if (kind == 4) x[c] *= 1e5F;
    }
  }
  return table;
}

}  // namespace

TEST_CASE("cuda packing: rows of 8 and of 4 and of 2 bits are those of the CPU") {
  Generator generator(91);
  for (int round = 0; round < 24; ++round) {
    const Tensor table =
        random_table(generator.integer(1, 9), 4 * generator.integer(1, 45), generator);
    const NBitPrepackOptions options{.optimized_qparams = round % 2 == 1,
                                     .nbins = generator.integer(1, 30),
                                     .ratio = 0.05 * static_cast<double>(generator.integer(0, 20))};
    CAPTURE(round);
    test::check_on_device([](const Tensor& x) { return quantized::embedding_bag_byte_prepack(x); },
                          table);
    test::check_on_device(
        [&](const Tensor& x) { return quantized::embedding_bag_4bit_prepack(x, options); }, table);
    test::check_on_device(
        [&](const Tensor& x) { return quantized::embedding_bag_2bit_prepack(x, options); }, table);
    test::check_on_device(
        [&](const Tensor& x) { return quantized::embedding_bag_4bit_prepack(x.transpose(0, 1)); },
        random_table(6, 5, generator));
  }
  // More columns than the losses of a warp, in another order of threads.
  const test::ScheduleScope greedy(cuda::emulation::Schedule::Greedy, 3);
  const NBitPrepackOptions narrowed{.optimized_qparams = true, .nbins = 40};
  test::check_on_device(
      [&](const Tensor& x) { return quantized::embedding_bag_4bit_prepack(x, narrowed); },
      random_table(5, 1030, generator));
  // What is lost at the end of a row decides as well.
  const Tensor two_parts = randn({3, 1030}, generator);
  for (std::int64_t i = 0; i < two_parts.numel(); ++i) {
    if (i % 1030 >= 512) two_parts.mutable_data<float>()[i] += 9.0F;
  }
  const NBitPrepackOptions wide{.optimized_qparams = true, .nbins = 40, .ratio = 1.0};
  test::check_on_device(
      [&](const Tensor& x) { return quantized::embedding_bag_2bit_prepack(x, wide); },
      two_parts.slice(1, 0, 1028));
  const auto pack = [](const Tensor& x) { return quantized::embedding_bag_byte_prepack(x); };
  test::check_on_device(pack, Tensor::empty({0, 4}));
}

TEST_CASE("cuda packing: rows that are not finite are refused as on the CPU") {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const Tensor table = Tensor::ones({3, 70});
    table.mutable_data<float>()[2 * 70 + 69] = odd;
    const Tensor there = table.to(kDevice);
    CHECK_THROWS_WITH_AS(
        quantized::embedding_bag_4bit_prepack(there),
        doctest::Contains("embedding_bag_4bit_prepack: weight: expected finite numbers, got"),
        ArgumentError);
    CHECK_THROWS_AS(quantized::embedding_bag_byte_prepack(there), ArgumentError);
  }
}

TEST_CASE("cuda packing: tensors are made of codes where these are") {
  for (const DType dtype : {DType::UInt8, DType::Int8, DType::Int32}) {
    const Tensor codes = sample_tensor({3, 4, 5}, dtype);
    test::check_on_device(
        [](const Tensor& x) -> Tensor { return make_per_tensor_quantized_tensor(x, 0.25, 3); },
        codes);
    const Tensor scales = Tensor::from_values({0.5F, 0.1F, 2.0F, 0.003F});
    const Tensor zero_points = Tensor::from_int64(std::vector<std::int64_t>{1, 0, 2, 5});
    const auto make = [](const Tensor& x, const Tensor& scale, const Tensor& zero_point) -> Tensor {
      return make_per_channel_quantized_tensor(x, scale, zero_point, 1);
    };
    test::check_on_device(make, codes, scales, zero_points);
    test::check_on_device(make, codes, scales.to(DType::Float64), zero_points.to(DType::Float32));
    // The numbers may have stayed on the CPU.
    test::check_same_on_device(make(codes.to(kDevice), scales, zero_points),
                               make(codes, scales, zero_points));
    // A copy: the codes may change.
    const Tensor there = codes.to(kDevice);
    const QTensor made = make_per_tensor_quantized_tensor(there, 0.25, 3);
    there.fill_(0.0);
    test::check_same_on_device(made, make_per_tensor_quantized_tensor(codes, 0.25, 3));
  }
}

TEST_CASE("cuda packing: empty tensors are where the tensor is that they are like") {
  for (const DType dtype :
       {DType::QUInt8, DType::QInt8, DType::QInt32, DType::QUInt4x2, DType::QUInt2x4}) {
    const QTensor x(sample_tensor({3, 5}, dtype).to(kDevice));
    const QTensor made = empty_quantized({4, 2, 3}, x);
    CHECK(made.device() == kDevice);
    CHECK(made.dtype() == dtype);
    CHECK(made.sizes() == Dims{4, 2, 3});
    CHECK(made.quantizer() == x.quantizer());
    // Memory enough for all of them.
    const QTensor codes(sample_tensor({4, 2, 3}, dtype));
    made.copy_(codes);
    CHECK(made.cpu().equal(codes));
  }
  const QTensor image(sample_tensor({2, 3, 4, 5}, DType::QUInt8).to(kDevice));
  const QTensor last = empty_quantized({2, 3, 4, 5}, image, MemoryFormat::ChannelsLast);
  CHECK(last.is_contiguous(MemoryFormat::ChannelsLast));

  const QTensor channels = empty_per_channel_affine_quantized(
      {2, 3}, Tensor::ones({3}).to(kDevice), Tensor::zeros({3}, DType::Int64), 1, DType::QInt8);
  CHECK(channels.device() == kDevice);
  CHECK(channels.qscheme() == QScheme::PerChannelAffine);
}

TEST_CASE("cuda packing: tensors of a value are where the tensor is that they are like") {
  for (const DType dtype : {DType::Float32, DType::Int64, DType::QUInt8}) {
    const Tensor turned = sample_tensor({2, 3, 4, 5}, dtype).contiguous(MemoryFormat::ChannelsLast);
    test::check_on_device([](const Tensor& like) { return zeros_like(like); }, turned);
    test::check_on_device([](const Tensor& like) { return ones_like(like); }, turned);
    test::check_on_device([](const Tensor& like) { return full_like(like, 2.5); }, turned);
    CHECK(empty_like(turned.to(kDevice)).device() == kDevice);
  }
}

}  // namespace quanta
