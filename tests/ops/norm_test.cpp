#include "quanta/ops/norm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/norm/cpu_kernels.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;

QTensor spec_codes(std::initializer_list<float> values, const Dims& sizes, double scale,
                   std::int64_t zero_point) {
  return QTensor::from_int_repr(Tensor::from_values(values, sizes).to(DType::UInt8),
                                Quantizer::per_tensor(scale, zero_point));
}

// Group norm of real numbers in double: y[i] for the elements of x [N, C, spatial...].
std::vector<double> naive_groups(const std::vector<float>& x, const Dims& sizes,
                                 std::int64_t groups, const std::vector<float>& weight,
                                 const std::vector<float>& bias, double eps) {
  const std::int64_t channels = sizes[1];
  const std::int64_t volume = product(sizes) / (sizes[0] * channels);
  const std::int64_t count = channels / groups * volume;
  std::vector<double> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(count)) {
    const std::size_t last = first + static_cast<std::size_t>(count);
    double mean = 0.0;
    for (std::size_t i = first; i < last; ++i) mean += static_cast<double>(x[i]);
    mean /= static_cast<double>(count);
    double variance = 0.0;
    for (std::size_t i = first; i < last; ++i) {
      variance += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
    }
    variance /= static_cast<double>(count);
    for (std::size_t i = first; i < last; ++i) {
      const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / volume % channels);
      y[i] = (static_cast<double>(x[i]) - mean) / std::sqrt(variance + eps) *
                 static_cast<double>(weight[c]) +
             static_cast<double>(bias[c]);
    }
  }
  return y;
}

// Codes may differ by one where the exact value is this close to a tie.
constexpr double kTieWidth = 1e-3;

void check_codes(const QTensor& got, const std::vector<double>& want) {
  const std::vector<std::int64_t> codes = codes_of(got);
  const IntRange range = quant_range(got.dtype());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const double exact = want[i] / got.q_scale() + static_cast<double>(got.q_zero_point());
    const double clamped =
        std::clamp(exact, static_cast<double>(range.min), static_cast<double>(range.max));
    if (std::abs(clamped - static_cast<double>(codes[i])) > 0.5 + kTieWidth) ++wrong;
  }
  CHECK(wrong == 0);
}

void check_floats(const Tensor& got, const std::vector<double>& want) {
  const std::vector<float> values = got.to_float_vector();
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(values[i]) - want[i]));
  }
  CHECK(worst < 1e-4);
}

}  // namespace

TEST_CASE("quantized::batch_norm: the specification's example comes out") {
  const QTensor x = spec_codes({0, 1, 3, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 28, 30, 32},
                               {1, 1, 4, 4}, 0.05, 11);
  const auto scalar = [](float value) { return Tensor::from_values({value}); };
  const QTensor y = quantized::batch_norm(x, scalar(1.5F), scalar(0.2F), scalar(0.1F), scalar(0.8F),
                                          1e-5, 0.04, 60);
  const std::vector<std::int64_t> want{38, 40, 44, 50, 55, 59, 63,  67,
                                       73, 78, 82, 86, 90, 96, 101, 105};
  CHECK(codes_of(y) == want);
  CHECK(y.q_scale() == 0.04);
  CHECK(y.q_zero_point() == 60);
  std::vector<std::int64_t> positive = want;
  for (std::int64_t& code : positive) code = std::max<std::int64_t>(code, 60);
  CHECK(codes_of(quantized::batch_norm_relu(x, scalar(1.5F), scalar(0.2F), scalar(0.1F),
                                            scalar(0.8F), 1e-5, 0.04, 60)) == positive);
}

TEST_CASE("quantized::layer_norm: the specification's example comes out") {
  const QTensor x = spec_codes({3, 6, 10, 13, 16, 20}, {2, 3}, 0.1, 10);
  const QTensor y = quantized::layer_norm(x, {3}, Tensor::from_values({1, 2, 0.5F}),
                                          Tensor::from_values({0, 0.1F, -0.1F}), 1e-5, 0.02, 128);
  CHECK(codes_of(y) == std::vector<std::int64_t>{70, 121, 155, 70, 121, 155});
}

TEST_CASE("norm kernels: sums of codes are exact on every instruction set") {
  // The largest squares, and enough of them to fill 32 bits in every lane of a vector.
  const std::int64_t many = 8192 * 32 * 2 + 77;
  for_each_target([&] {
    for (const DType dtype : {DType::QInt8, DType::QUInt8}) {
      const double extreme = dtype == DType::QInt8 ? -128.0 : 255.0;
      const QTensor codes = QTensor::from_int_repr(
          Tensor::full({many}, extreme, dtype == DType::QInt8 ? DType::Int8 : DType::UInt8),
          Quantizer::per_tensor(1.0, 0));
      const cpu::NormSums all = cpu::norm_sums(dtype, codes.data_ptr(), many);
      CHECK(all.sum == extreme * static_cast<double>(many));
      CHECK(all.squares == extreme * extreme * static_cast<double>(many));
      Generator generator(42);
      for (const std::int64_t channels : {1, 3, 4, 7, 16, 21, 45}) {
        const std::int64_t rows = channels == 3 ? 30000 : 50;
        const Tensor x(random_codes({rows, channels}, dtype, 1.0, 0, generator));
        const std::vector<std::int64_t> values = codes_of(x);
        std::vector<cpu::NormSums> got(static_cast<std::size_t>(channels));
        cpu::norm_channel_sums(dtype, x.data_ptr(), rows, channels, got.data());
        std::vector<cpu::NormSums> want(got.size());
        cpu::NormSums total;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto value = static_cast<double>(values[i]);
          cpu::NormSums& channel = want[i % want.size()];
          channel.sum += value;
          channel.squares += value * value;
          total.sum += value;
          total.squares += value * value;
        }
        for (std::size_t c = 0; c < want.size(); ++c) {
          CHECK(got[c].sum == want[c].sum);
          CHECK(got[c].squares == want[c].squares);
        }
        const cpu::NormSums run = cpu::norm_sums(dtype, x.data_ptr(), rows * channels);
        CHECK(run.sum == total.sum);
        CHECK(run.squares == total.squares);
      }
    }
  });
}

TEST_CASE("norm kernels: every instruction set agrees with the scalar code bit by bit") {
  Generator generator(41);
  for_each_target([&] {
    for (const std::int64_t count : {1, 3, 4, 7, 16, 31, 65, 200}) {
      const Tensor center = randn({count}, generator);
      const Tensor scale = randn({count}, generator);
      const Tensor shift = randn({count}, generator);
      if (count > 20) shift.slice(0, 11, 12).fill_(std::numeric_limits<double>::quiet_NaN());
      if (count > 20) shift.slice(0, 12, 13).fill_(-1e30);
      for (const DType dtype : {DType::QInt8, DType::QUInt8, DType::Float32}) {
        const cpu::NormOutput output = dtype == DType::QUInt8
                                           ? cpu::NormOutput{1.0F / 0.037F, 130, 0, 255}
                                           : cpu::NormOutput{1.0F / 0.037F, 5, -128, 127};
        const Tensor x = dtype == DType::Float32
                             ? randn({count}, generator)
                             : Tensor(random_codes({count}, dtype, 1.0, 0, generator));
        const auto check = [&](std::int64_t center_step, std::int64_t scale_step) {
          const cpu::NormParameters parameters{center.data<float>(), scale.data<float>(),
                                               shift.data<float>(), center_step, scale_step};
          const Tensor want = x.clone();
          const Tensor got = x.clone();
          cpu::norm_reference(dtype, x.data_ptr(), parameters, count, output, want.data_ptr());
          if (center_step == 1) {
            cpu::norm_channels(dtype, x.data_ptr(), parameters.center, parameters.scale,
                               parameters.shift, count, output, got.data_ptr());
          } else if (scale_step == 1) {
            cpu::norm_row(dtype, x.data_ptr(), *parameters.center, parameters.scale,
                          parameters.shift, count, output, got.data_ptr());
          } else {
            cpu::norm_run(dtype, x.data_ptr(), *parameters.center, *parameters.scale,
                          *parameters.shift, count, output, got.data_ptr());
          }
          CAPTURE(count);
          CAPTURE(to_string(dtype));
          CAPTURE(center_step);
          CAPTURE(scale_step);
          const auto* want_bytes = static_cast<const std::uint8_t*>(want.data_ptr());
          const auto* got_bytes = static_cast<const std::uint8_t*>(got.data_ptr());
          CHECK(std::equal(want_bytes, want_bytes + want.nbytes(), got_bytes));
        };
        check(0, 0);
        check(0, 1);
        check(1, 1);
      }
    }
  });
}

TEST_CASE("norm kernels: rows of any number of channels are rows one by one") {
  Generator generator(42);
  std::vector<std::int64_t> counts = {1024, 1025};
  for (std::int64_t channels = 1; channels <= 130; ++channels) counts.push_back(channels);
  for_each_target([&] {
    for (const std::int64_t channels : counts) {
      const std::int64_t rows = channels % 7 + 1;
      const Tensor center = randn({channels}, generator);
      const Tensor scale = randn({channels}, generator);
      const Tensor shift = randn({channels}, generator);
      if (channels > 20) shift.slice(0, 11, 12).fill_(std::numeric_limits<double>::quiet_NaN());
      for (const DType dtype : {DType::QInt8, DType::QUInt8, DType::Float32}) {
        const cpu::NormOutput output = dtype == DType::QUInt8
                                           ? cpu::NormOutput{1.0F / 0.037F, 130, 130, 255}
                                           : cpu::NormOutput{1.0F / 0.037F, 5, -128, 127};
        const Tensor x = dtype == DType::Float32
                             ? randn({rows, channels}, generator)
                             : Tensor(random_codes({rows, channels}, dtype, 1.0, 0, generator));
        const Tensor want = x.clone();
        const Tensor got = x.clone();
        const cpu::NormParameters parameters{center.data<float>(), scale.data<float>(),
                                             shift.data<float>(), 1, 1};
        for (std::int64_t row = 0; row < rows; ++row) {
          cpu::norm_reference(dtype, x.select(0, row).data_ptr(), parameters, channels, output,
                              want.select(0, row).data_ptr());
        }
        cpu::norm_rows(dtype, x.data_ptr(), parameters.center, parameters.scale, parameters.shift,
                       rows, channels, output, got.data_ptr());
        CAPTURE(channels);
        CAPTURE(to_string(dtype));
        const auto* want_bytes = static_cast<const std::uint8_t*>(want.data_ptr());
        const auto* got_bytes = static_cast<const std::uint8_t*>(got.data_ptr());
        CHECK(std::equal(want_bytes, want_bytes + want.nbytes(), got_bytes));
      }
    }
  });
}

TEST_CASE("norm: group and instance norm agree with plain loops in every layout") {
  Generator generator(42);
  for (const Layout layout : kLayouts) {
    const Tensor weight = randn({6}, generator);
    const Tensor bias = randn({6}, generator);
    const std::vector<float> w = weight.to_float_vector();
    const std::vector<float> b = bias.to_float_vector();
    const Tensor f =
        in_layout(layout, 6, 5, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
    for (const std::int64_t groups : {1, 2, 3, 6}) {
      check_floats(group_norm(f, groups, weight, bias),
                   naive_groups(f.to_float_vector(), f.sizes(), groups, w, b, 1e-5));
    }
    CHECK(group_norm(f, 2, weight, bias).suggested_format() == f.suggested_format());
    check_floats(instance_norm(f, Tensor(), Tensor(), 1e-3),
                 naive_groups(f.to_float_vector(), f.sizes(), 6, {1, 1, 1, 1, 1, 1},
                              {0, 0, 0, 0, 0, 0}, 1e-3));
    const QTensor q = in_layout(layout, 6, 5, 7, [&](const Dims& sizes) {
                        return Tensor(random_codes(sizes, DType::QUInt8, 0.05, 120, generator));
                      }).as_quantized();
    const std::vector<float> real = q.to_float_vector();
    check_codes(quantized::group_norm(q, 3, weight, bias, 1e-5, 0.03, 100),
                naive_groups(real, q.sizes(), 3, w, b, 1e-5));
    check_codes(quantized::instance_norm(q, weight, bias, 1e-5, 0.03, 100),
                naive_groups(real, q.sizes(), 6, w, b, 1e-5));
  }
}

TEST_CASE("norm: layer norm is group norm with one group for rows of one channel") {
  Generator generator(43);
  const Tensor x = randn({4, 9, 33}, generator);
  const Tensor weight = randn({33}, generator);
  const Tensor bias = randn({33}, generator);
  // [36, 33]: the channels are the row.
  check_floats(layer_norm(x, {33}, weight, bias),
               naive_groups(x.to_float_vector(), {36, 33}, 1, weight.to_float_vector(),
                            bias.to_float_vector(), 1e-5));
  const QTensor q = random_codes({4, 9, 33}, DType::QInt8, 0.07, -3, generator);
  check_codes(quantized::layer_norm(q, {33}, weight, bias, 1e-5, 0.04, 10),
              naive_groups(q.to_float_vector(), {36, 33}, 1, weight.to_float_vector(),
                           bias.to_float_vector(), 1e-5));
  CHECK(layer_norm(x.transpose(0, 1), {33}, weight, bias)
            .equal(layer_norm(x, {33}, weight, bias).transpose(0, 1)));
}

TEST_CASE("norm: batch norm agrees with its formula for every rank and layout") {
  Generator generator(44);
  const Tensor weight = randn({6}, generator);
  const Tensor bias = randn({6}, generator);
  const Tensor mean = randn({6}, generator);
  const Tensor var = rand({6}, generator);
  const auto want = [&](const Tensor& x) {
    const std::vector<float> values = x.to_float_vector();
    const std::int64_t volume = x.numel() / (x.size(0) * 6);
    std::vector<double> y;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t c = static_cast<std::int64_t>(i) / volume % 6;
      y.push_back((static_cast<double>(values[i]) - mean[c].item()) /
                      std::sqrt(var[c].item() + 1e-5) * weight[c].item() +
                  bias[c].item());
    }
    return y;
  };
  std::vector<Dims> shapes{{5, 6}, {2, 6, 7}, {2, 6, 3, 5}, {1, 6, 2, 3, 4}};
  for (const Dims& sizes : shapes) {
    for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      if (sizes.size() == 2 && format == MemoryFormat::ChannelsLast) continue;
      const Tensor f = randn(sizes, generator).contiguous(format);
      check_floats(batch_norm(f, mean, var, weight, bias), want(f));
      CHECK(batch_norm(f, mean, var, weight, bias).suggested_format() == f.suggested_format());
      const QTensor q(
          Tensor(random_codes(sizes, DType::QUInt8, 0.05, 110, generator)).contiguous(format));
      const QTensor y = quantized::batch_norm(q, weight, bias, mean, var, 1e-5, 0.05, 90);
      check_codes(y, want(q));
      if (sizes.size() >= 4) CHECK(y.is_contiguous(MemoryFormat::ChannelsLast));
    }
  }
  const Tensor plain = randn({2, 6, 3}, generator);
  check_floats(batch_norm(plain, Tensor::zeros({6}), Tensor::ones({6}), Tensor(), Tensor(), 0.0),
               [&] {
                 const std::vector<float> values = plain.to_float_vector();
                 return std::vector<double>(values.begin(), values.end());
               }());
}

TEST_CASE("norm: empty tensors keep their shape") {
  CHECK(layer_norm(Tensor::ones({0, 4}), {4}, Tensor(), Tensor()).sizes() == Dims{0, 4});
  CHECK(group_norm(Tensor::ones({0, 4, 3}), 2, Tensor(), Tensor()).sizes() == Dims{0, 4, 3});
  const QTensor q = QTensor::empty({0, 3, 2, 2}, 0.1, 0, DType::QUInt8);
  const Tensor c = Tensor::ones({3});
  CHECK(quantized::batch_norm(q, c, c, c, c, 1e-5, 0.1, 0).sizes() == Dims{0, 3, 2, 2});
}

TEST_CASE("norm: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({2, 4, 3, 3});
  const QTensor q = QTensor::empty({2, 4, 3, 3}, 0.1, 0, DType::QUInt8);
  const Tensor four = Tensor::ones({4});
  const Tensor three = Tensor::ones({3});
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("batch_norm: mean: expected Float32 [4], got Float32 [3]",
          [&] { batch_norm(x, three, four, four, four); });
  refused("batch_norm: var: expected Float32 [4], got an undefined tensor",
          [&] { batch_norm(x, four, Tensor(), four, four); });
  refused("batch_norm: eps: expected a finite number >= 0",
          [&] { batch_norm(x, four, four, four, four, -1.0); });
  refused("batch_norm: weight: expected Float32 [4], got an undefined tensor",
          [&] { quantized::batch_norm(q, Tensor(), four, four, four, 1e-5, 0.1, 0); });
  refused("scale", [&] { quantized::batch_norm(q, four, four, four, four, 1e-5, 0.0, 0); });
  refused("zero_point", [&] { quantized::layer_norm(q, {3}, three, three, 1e-5, 0.1, 256); });
  refused("layer_norm: normalized_shape: expected the last sizes of x [2, 4, 3, 3], got [4]",
          [&] { layer_norm(x, {4}, four, four); });
  refused("group_norm: num_groups: expected a divisor of the 4 channels, got 3",
          [&] { group_norm(x, 3, four, four); });
  refused("instance_norm: x: expected at least 3 dimensions", [&] {
    instance_norm(Tensor::ones({2, 4}), four, four);
  });
  refused("layer_norm: weight: expected Float64 [3], got Float32 [3]",
          [&] { layer_norm(x.to(DType::Float64), {3}, three, three); });
  CHECK_THROWS_AS(layer_norm(x.to(DType::Int32), {3}, three, three), UnsupportedError);
  const QTensor wide = QTensor::empty({2, 4, 3}, 0.1, 0, DType::QInt32);
  CHECK_THROWS_AS(quantized::group_norm(wide, 2, four, four, 1e-5, 0.1, 0), UnsupportedError);
}

}  // namespace quanta
