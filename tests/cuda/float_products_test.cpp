#include <cmath>
#include <limits>
#include <utility>

#include "cuda/float_bounds.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/catalogue.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/support.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using namespace test;

void check_matmul(const Tensor& lhs, const Tensor& rhs) {
  CAPTURE(lhs.sizes());
  CAPTURE(rhs.sizes());
  const auto product = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  check_within(product(on_device(lhs), on_device(rhs)), product(doubles(lhs), doubles(rhs)),
               product(magnitudes(lhs), magnitudes(rhs)), lhs.sizes().back());
}

}  // namespace

TEST_CASE("cuda float products: matmul of vectors and matrices and broadcast batches") {
  Generator generator(1);
  const std::pair<Dims, Dims> cases[] = {
      {{7}, {7}},          {{7}, {7, 3}},         {{4, 7}, {7}},
      {{1, 1}, {1, 1}},    {{33, 17}, {17, 9}},   {{2, 3, 5, 4}, {3, 4, 2}},
      {{5, 4}, {3, 4, 2}}, {{6, 5, 4}, {4, 2}},   {{2, 1, 5, 4}, {1, 3, 4, 2}},
      {{3, 1, 4}, {4, 6}}, {{4, 1, 5}, {4, 5, 1}}};
  for (const auto& [left, right] : cases) {
    check_matmul(randn(left, generator), randn(right, generator));
  }
}

TEST_CASE("cuda float products: operands of any strides") {
  Generator generator(2);
  const Tensor a = randn({6, 9, 8}, generator);
  const Tensor b = randn({6, 8, 10}, generator);
  check_matmul(a, b.transpose(1, 2).contiguous().transpose(1, 2));
  check_matmul(a.transpose(1, 2).contiguous().transpose(1, 2), b);
  check_matmul(a.transpose(0, 1).contiguous().transpose(0, 1), b);
  check_matmul(a.slice(1, 1, 9, 3), b.slice(2, 0, 10, 2));
  check_matmul(a.slice(0, 0, 6, 2), b.slice(0, 1, 6, 2));
  check_matmul(a.select(0, 1).expand({6, 9, 8}), b.select(0, 0));
  check_matmul(a.slice(0, 3, 4), b);
  check_matmul(a.slice(2, 3, 4), b.slice(1, 2, 3));
  check_matmul(randn({2, 3, 5, 4}, generator).transpose(0, 1), randn({3, 2, 4, 6}, generator));
}

TEST_CASE("cuda float products: bmm and einsum") {
  Generator generator(3);
  const Tensor a = randn({5, 7, 3}, generator);
  const Tensor b = randn({5, 3, 2}, generator);
  check_within(bmm(on_device(a), on_device(b)), bmm(doubles(a), doubles(b)),
               bmm(magnitudes(a), magnitudes(b)), 3);
  const auto sum = [&](const auto& prepare) {
    const Tensor tensors[] = {prepare(a), prepare(b)};
    return einsum("bij,bjk->kbi", tensors);
  };
  check_within(sum(on_device), sum(doubles), sum(magnitudes), 3);
}

TEST_CASE("cuda float products: nothing to sum is zero and nothing to give is empty") {
  const Tensor empty = on_device(Tensor::zeros({3, 0}));
  CHECK(matmul(empty, on_device(Tensor::zeros({0, 4}))).cpu().equal(Tensor::zeros({3, 4})));
  CHECK(matmul(on_device(Tensor::zeros({0, 4})), on_device(Tensor::zeros({4, 2}))).sizes() ==
        Dims{0, 2});
  CHECK(linear(on_device(Tensor::zeros({0, 4})), on_device(Tensor::zeros({2, 4}))).sizes() ==
        Dims{0, 2});
}

TEST_CASE("cuda float products: NaN and infinity go where IEEE takes them") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values({1.0F, inf, -inf, nan}, {4, 1}).to(kDevice);
  const Tensor weight = Tensor::from_values({2.0F, 0.0F}, {2, 1}).to(kDevice);
  const std::vector<float> y = PackedLinear(weight, {}, Fusion::ReLU)(x).cpu().to_float_vector();
  CHECK(y[0] == 2.0F);
  CHECK(y[1] == 0.0F);
  CHECK(y[2] == inf);
  CHECK(std::isnan(y[3]));
  CHECK(y[4] == 0.0F);  // -inf behind relu
  CHECK(std::isnan(y[5]));
  CHECK(std::isnan(y[6]));
}

TEST_CASE("cuda float products: linear layers with and without bias and relu") {
  Generator generator(4);
  for (int round = 0; round < 12; ++round) {
    const std::int64_t in = generator.integer(1, 40);
    const std::int64_t out = generator.integer(1, 40);
    const Tensor x = randn({generator.integer(1, 3), generator.integer(1, 6), in}, generator);
    const Tensor weight = randn({out, in}, generator);
    const Tensor bias = round % 2 == 0 ? randn({out}, generator) : Tensor();
    const auto call = [&](const auto& prepare) {
      return linear(prepare(x), prepare(weight), prepare(bias));
    };
    check_within(call(on_device), call(doubles), call(magnitudes), in + 1);
    const Tensor with_relu =
        PackedLinear(on_device(weight), on_device(bias), Fusion::ReLU)(on_device(x));
    CHECK(with_relu.cpu().equal(relu(call(on_device).cpu())));
  }
}

TEST_CASE("cuda float products: gradients of matmul and linear") {
  Generator generator(6);
  check_call([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); },
             {randn({3, 5, 4}, generator), randn({3, 4, 7}, generator)}, {4, 7, 5});
  check_call([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); },
             {randn({9}, generator), randn({9, 7}, generator)}, {9, 7, 1});
  check_call([](const std::vector<Tensor>& in) { return linear(in[0], in[1]); },
             {randn({6, 5}, generator), randn({4, 5}, generator)}, {5, 4, 6});
}

TEST_CASE("cuda float products: floats of 16 bits are summed in float and rounded once") {
  Generator generator(12);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    CAPTURE(to_string(dtype));
    const auto random = [&](const Dims& sizes) { return randn(sizes, generator).to(dtype); };
    const auto product = [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); };
    check_call(product, {random({3, 5, 4}), random({3, 4, 7})}, {4, 7, 5});
    check_call(product, {random({2, 3, 33, 130}), random({2, 3, 130, 9})}, {130, 9, 33});
    check_call(product, {random({9}), random({9, 7})}, {9, 7, 1});
    check_call(product, {random({7, 9}), random({9})}, {9, 1, 7});
    check_call([](const std::vector<Tensor>& in) { return bmm(in[0], in[1].transpose(1, 2)); },
               {random({3, 5, 4}), random({3, 7, 4})}, {4, 7, 5});
    check_call([](const std::vector<Tensor>& in) { return einsum("bij,kj->bik", in); },
               {random({3, 5, 17}), random({6, 17})}, {17, 6, 15});
    check_call([](const std::vector<Tensor>& in) { return linear(in[0], in[1]); },
               {random({2, 6, 5}), random({4, 5})}, {5, 4, 12});
    check_call([](const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2]); },
               {random({33, 65}), random({17, 65}), random({17})}, {66, 17, 33, 33}, true);
  }
}

TEST_CASE("cuda float products: a product of 16 bits holds more terms than its dtype can count") {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const Tensor ones = on_device(Tensor::ones({1, 4096}).to(dtype));
    CHECK(matmul(ones, ones.t()).cpu().to_float_vector() == std::vector<float>{4096.0F});
    CHECK(linear(ones, ones).cpu().to_float_vector() == std::vector<float>{4096.0F});
  }
}

TEST_CASE(
    "cuda float products: gradients of 16 bits go through relu where the result is positive") {
  Generator generator(13);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const auto leaf = [&](const Dims& sizes) {
      return on_device(randn(sizes, generator).to(dtype)).set_requires_grad();
    };
    const Tensor x = leaf({6, 5});
    const Tensor weight = leaf({4, 5});
    const Tensor bias = leaf({4});
    const Tensor y = PackedLinear(weight, bias, Fusion::ReLU)(x, weight, bias);
    CHECK(y.detach()
              .cpu()
              .to(DType::Float32)
              .equal(relu(linear(x, weight, bias).detach().cpu().to(DType::Float32))));
    const Tensor of_result = randn({6, 4}, generator).to(dtype);
    y.backward(on_device(of_result));
    std::vector<float> passed = of_result.to_float_vector();
    const std::vector<float> results = y.cpu().to_float_vector();
    for (std::size_t i = 0; i < passed.size(); ++i)
      passed[i] = results[i] > 0.0F ? passed[i] : 0.0F;
    const Tensor gated = on_device(Tensor::from_values(passed, {6, 4}).to(dtype));
    CHECK(x.grad().cpu().equal(matmul(gated, weight.detach()).cpu()));
    CHECK(weight.grad().cpu().equal(matmul(gated.t(), x.detach()).cpu()));
  }
}

TEST_CASE("cuda float products: floats of 16 bits are for CUDA devices alone") {
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const Tensor x = Tensor::zeros({2, 2}).to(dtype);
    CHECK_THROWS_WITH_AS(matmul(x, x), doctest::Contains("which a CUDA device takes"),
                         UnsupportedError);
    CHECK_THROWS_WITH_AS(linear(x, x), doctest::Contains("which a CUDA device takes"),
                         UnsupportedError);
    CHECK_THROWS_AS(linear(on_device(x), on_device(x), on_device(Tensor::zeros({2}))),
                    ArgumentError);
    CHECK_THROWS_AS(matmul(on_device(x), on_device(Tensor::zeros({2, 2}))), ArgumentError);
    for (const std::string_view op : {"matmul", "bmm", "linear", "conv2d", "conv_transpose3d"}) {
      CHECK(supports(op, Device::cuda(), dtype));
      CHECK_FALSE(supports(op, Device::cpu(), dtype));
    }
  }
}

TEST_CASE("cuda float products: what is said to be for CUDA devices alone runs there") {
  std::int64_t calls = 0;
  for (const OperationEntry& row : operations().entries()) {
    for (const DType dtype : {DType::Float16, DType::BFloat16}) {
      if (row.takes(dtype) || !row.takes_on_cuda(dtype)) continue;
      CAPTURE(row.name);
      const Sample sample = row.sample(DType::Float32);
      std::vector<Tensor> inputs;
      for (const Tensor& x : sample.inputs) {
        const bool is_narrow = x.defined() && x.dtype() == DType::Float32;
        inputs.push_back(on_device(is_narrow ? x.to(dtype) : x));
      }
      CHECK(run(*sample.operation, inputs).device() == kDevice);
      ++calls;
    }
  }
  CHECK(calls >= 2 * 10);
}

TEST_CASE("cuda float products: gradients of relu and clamp are the CPU's") {
  Generator generator(11);
  const Tensor image = randn({2, 5, 4, 3}, generator);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor edges = Tensor::from_values({-inf, -1.0F, -0.0F, 0.0F, 1.0F, 6.0F, inf, nan}, {8});
  for (const Tensor& x : {image, image.contiguous(MemoryFormat::ChannelsLast), edges,
                          image.transpose(0, 2), Tensor::zeros({0, 3})}) {
    const Tensor of_result = randn(x.sizes(), generator);
    const auto gradient = [&](const auto& function, Device device) {
      const Tensor leaf = x.to(device).detach().set_requires_grad();
      function(leaf).backward(of_result.to(device));
      return leaf.grad();
    };
    const auto check = [&](const auto& function) {
      const Tensor got = gradient(function, kDevice);
      CHECK(got.device() == kDevice);
      CHECK(got.cpu().equal(gradient(function, Device::cpu())));
    };
    check([](const Tensor& t) { return relu(t); });
    check([](const Tensor& t) { return clamp(t, -1.0, 0.5); });
  }
}

TEST_CASE("cuda float products: what is not there is refused by name") {
  const Tensor x = on_device(Tensor::zeros({2, 3}, DType::Float64));
  CHECK_THROWS_WITH_AS(matmul(x, x.t()),
                       doctest::Contains("matmul: x: expected Float32, Float16, BFloat16 on cuda"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(linear(x, x),
                       doctest::Contains("linear: x: expected Float32, Float16, BFloat16 on cuda"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(linear(Tensor::zeros({2, 3}), on_device(Tensor::zeros({2, 3}))),
                       doctest::Contains("expected all on one device"), ArgumentError);
}

}  // namespace quanta
