// What stands behind float products and convolutions, as the operations of today do not ask for it:
// dtypes of 16 bits, alpha and beta, leading dimensions.

#include "quanta/ops/cuda/library.h"

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/float_bounds.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/cuda/library_loops.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using namespace test;
using cuda::ConvPass;
using cuda::FloatProduct;
using cuda::MatrixLayout;

// Half a unit in the last place, relative.
double rounding(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return std::ldexp(1.0, -11);
    case DType::BFloat16:
      return std::ldexp(1.0, -8);
    default:
      return std::ldexp(1.0, -24);
  }
}

bool is_within(double got, double exact, double sum, std::int64_t terms, DType dtype,
               bool rounds_twice = false) {
  const double of_sum = static_cast<double>(terms + 2) * std::ldexp(1.0, -24) * sum;
  const double before_bias = rounds_twice ? rounding(dtype) * sum : 0.0;
  return std::abs(got - exact) <=
         of_sum + before_bias + rounding(dtype) * (std::abs(exact) + of_sum);
}

// Numbers of that dtype: as Float64, and on the device.
struct Numbers {
  Tensor exact, there;
  Numbers(std::int64_t count, DType dtype, Generator& generator) {
    const Tensor rounded = randn({count}, generator).to(dtype);
    exact = rounded.to(DType::Float64);
    there = rounded.to(kDevice);
  }
  double operator[](std::int64_t i) const { return exact.data<double>()[i]; }
};

// Room beyond each row and each matrix.
MatrixLayout layout(std::int64_t rows, std::int64_t columns, Generator& generator,
                    std::int64_t last_transposed = 1) {
  MatrixLayout result;
  result.transposed = generator.integer(0, last_transposed) == 1;
  result.stride = (result.transposed ? rows : columns) + generator.integer(0, 3);
  result.batch_stride =
      (result.transposed ? columns : rows) * result.stride + generator.integer(0, 5);
  return result;
}

std::int64_t place(const MatrixLayout& layout, std::int64_t matrix, std::int64_t row,
                   std::int64_t column) {
  return matrix * layout.batch_stride +
         (layout.transposed ? column * layout.stride + row : row * layout.stride + column);
}

}  // namespace

TEST_CASE("cuda library: products of any layout with alpha and beta and bias") {
  Generator generator(21);
  const DType dtypes[] = {DType::Float32, DType::Float16, DType::BFloat16};
  for (int round = 0; round < 60; ++round) {
    FloatProduct product;
    product.dtype = dtypes[round % 3];
    product.batch = generator.integer(1, 3);
    product.rows = generator.integer(1, 9);
    product.columns = generator.integer(1, 9);
    product.depth = generator.integer(1, 20);
    product.lhs = layout(product.rows, product.depth, generator);
    product.rhs = layout(product.depth, product.columns, generator);
    product.out = layout(product.rows, product.columns, generator, 0);
    if (generator.integer(0, 3) == 0) product.rhs.batch_stride = 0;
    product.alpha = round % 2 == 0 ? 1.0F : -0.75F;
    product.beta = round % 4 < 2 ? 0.0F : 0.5F;
    product.has_bias = generator.integer(0, 1) == 1;
    // The last element is read.
    const auto count = [&](const MatrixLayout& of, std::int64_t rows, std::int64_t columns) {
      return place(of, product.batch - 1, rows - 1, columns - 1) + 1;
    };
    const DType dtype = product.dtype;
    const Numbers lhs(count(product.lhs, product.rows, product.depth), dtype, generator);
    const Numbers rhs(count(product.rhs, product.depth, product.columns), dtype, generator);
    const Numbers bias(product.columns, dtype, generator);
    const Numbers out(count(product.out, product.rows, product.columns), dtype, generator);
    const std::string_view kernel = cuda::multiply_floats(
        kDevice, product,
        {lhs.there.device_ptr(), rhs.there.device_ptr(),
         product.has_bias ? bias.there.device_ptr() : nullptr, out.there.device_ptr()});
    CHECK((kernel == "loops") == kDevice.is_emulated());
    const Tensor after = out.there.cpu().to(DType::Float64);
    Tensor expected = out.exact.clone();  // what lies between rows is left alone
    std::int64_t beyond = 0;
    for (std::int64_t b = 0; b < product.batch; ++b) {
      for (std::int64_t r = 0; r < product.rows; ++r) {
        for (std::int64_t c = 0; c < product.columns; ++c) {
          const std::int64_t at = place(product.out, b, r, c);
          double sum = 0.0;
          double magnitude = 0.0;
          const auto add = [&](double term) {
            sum += term;
            magnitude += std::abs(term);
          };
          for (std::int64_t k = 0; k < product.depth; ++k) {
            add(static_cast<double>(product.alpha) * lhs[place(product.lhs, b, r, k)] *
                rhs[place(product.rhs, b, k, c)]);
          }
          add(static_cast<double>(product.beta) * out[at]);
          if (product.has_bias) add(bias[c]);
          const double got = after.data<double>()[at];
          if (!is_within(got, sum, magnitude, product.depth + 2, dtype,
                         product.has_bias && rounds_before_bias(dtype))) {
            ++beyond;
          }
          expected.mutable_data<double>()[at] = got;
        }
      }
    }
    CHECK(beyond == 0);
    CHECK(after.equal(expected));
  }
}

TEST_CASE("cuda library: convolutions and their gradients in 16 bits") {
  Generator generator(22);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const ConvOptions options{.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2};
    const auto last = [&](const Dims& sizes) {
      return randn(sizes, generator).to(dtype).contiguous(MemoryFormat::ChannelsLast);
    };
    const Tensor x = last({2, 6, 7, 8});
    const Tensor weight = last({4, 3, 3, 2});
    const auto forward = [&](const Tensor& a, const Tensor& b) {
      return conv2d(a, b, {}, options);
    };
    const auto differentiated = [&](const auto& prepare, const Tensor& of_result) {
      const Tensor a = prepare(x).detach().set_requires_grad();
      const Tensor b = prepare(weight).detach().set_requires_grad();
      const Tensor y = forward(a, b);
      y.backward(prepare(of_result));
      return std::vector<Tensor>{y.detach(), a.grad(), b.grad()};
    };
    const Tensor gradient = last(forward(doubles(x), doubles(weight)).sizes());
    const std::vector<Tensor> exact = differentiated(doubles, gradient);
    const std::vector<Tensor> sums = differentiated(magnitudes, gradient);
    cuda::FloatConvolution convolution;
    convolution.dtype = dtype;
    convolution.shape.batch = 2;
    convolution.shape.in_channels = 6;
    convolution.shape.out_channels = 4;
    convolution.shape.groups = 2;
    for (int d = 1; d < 3; ++d) {
      convolution.shape.in[d] = x.size(d + 1);
      convolution.shape.out[d] = gradient.size(d + 1);
      convolution.shape.kernel[d] = weight.size(d + 1);
      convolution.shape.stride[d] = options.stride[static_cast<std::size_t>(d - 1)];
      convolution.shape.padding[d] = options.padding[static_cast<std::size_t>(d - 1)];
      convolution.shape.dilation[d] = options.dilation[static_cast<std::size_t>(d - 1)];
    }
    const ConvPass passes[] = {ConvPass::Output, ConvPass::Input, ConvPass::Weight};
    for (std::size_t i = 0; i < 3; ++i) {
      convolution.pass = passes[i];
      Tensor tensors[] = {x.to(kDevice), weight.to(kDevice), gradient.to(kDevice)};
      const std::size_t result = i == 0 ? 2 : i - 1;
      tensors[result].fill_(7.0);
      const std::string_view kernel = cuda::convolve_floats(
          kDevice, convolution,
          {tensors[0].device_ptr(), tensors[1].device_ptr(), tensors[2].device_ptr()});
      CHECK((kernel == "loops") == kDevice.is_emulated());
      const Tensor got = tensors[result].cpu().to(DType::Float64).contiguous();
      const Tensor wanted = exact[i].contiguous();
      const Tensor magnitude = sums[i].contiguous();
      std::int64_t beyond = 0;
      for (std::int64_t k = 0; k < got.numel(); ++k) {
        if (!is_within(got.data<double>()[k], wanted.data<double>()[k], magnitude.data<double>()[k],
                       gradient.numel(), dtype)) {
          ++beyond;
        }
      }
      CAPTURE(i);
      CHECK(beyond == 0);
    }
  }
}

TEST_CASE("cuda library: a bias for each channel and relu") {
  Generator generator(23);
  for (int round = 0; round < 24; ++round) {
    const DType dtypes[] = {DType::Float32, DType::Float16, DType::BFloat16};
    const DType dtype = round < 12 ? DType::Float32 : dtypes[round % 3];
    const std::int64_t channels = generator.integer(1, 40) * (round % 2 == 0 ? 4 : 1);
    const std::int64_t rows = generator.integer(1, 30);
    const std::int64_t offset = generator.integer(0, 1);  // from where 16 bytes are one access
    const bool relu = generator.integer(0, 1) == 0;
    const bool has_bias = !relu || generator.integer(0, 1) == 0;
    const auto values = [&](std::int64_t count) {
      return randn({count}, generator).to(dtype).slice(0, offset, count);
    };
    const Tensor y = values(rows * channels + offset);
    const Tensor bias = values(channels + offset);
    const auto there = [&](const Tensor& x) {
      Tensor all = Tensor::empty({x.numel() + offset}, dtype, MemoryFormat::Contiguous, kDevice);
      const Tensor part = all.slice(0, offset, all.numel());
      part.copy_(x.to(kDevice));
      return part;
    };
    const Tensor result = there(y);
    const Tensor terms = there(bias);
    cuda::add_bias(kDevice, {.dtype = dtype,
                             .count = y.numel(),
                             .channels = channels,
                             .bias = has_bias ? terms.device_ptr() : nullptr,
                             .y = result.device_ptr(),
                             .relu = relu});
    Tensor expected = y.to(DType::Float32).view({rows, channels});
    if (has_bias) expected = expected + bias.to(DType::Float32);
    if (relu) expected = quanta::relu(expected);
    CHECK(result.cpu().equal(expected.to(dtype).flatten()));
  }
}

TEST_CASE("cuda library: a convolution that is turned around goes from output to input") {
  cpu::ConvShape shape;
  shape.transposed = true;
  shape.in_channels = 6;
  shape.out_channels = 4;
  shape.in[2] = 5;
  shape.out[2] = 11;
  const cpu::ConvShape turned = cuda::turned_around(shape);
  CHECK_FALSE(turned.transposed);
  CHECK(turned.in_channels == 4);
  CHECK(turned.out_channels == 6);
  CHECK(turned.in[2] == 11);
  CHECK(turned.out[2] == 5);
}

TEST_CASE("cuda library: a GPU that is not there is told before any library is asked for") {
  if (cuda_is_available()) {
    MESSAGE("skipped: there is a GPU");
    return;
  }
  CHECK_THROWS_WITH_AS(cuda::multiply_floats(Device::cuda(0), {}, {}),
                       doctest::Contains("cuda:0: expected "), BackendError);
  CHECK_THROWS_WITH_AS(cuda::convolve_floats(Device::cuda(0), {}, {}),
                       doctest::Contains("cuda:0: expected "), BackendError);
}

}  // namespace quanta
