#include <doctest/doctest.h>

#include <limits>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

// The texts are those of torch 2.x; the first two stand in the documentation of
// torch.quantize_per_tensor and torch.quantize_per_channel.

TEST_CASE("to_string: a tensor quantized per tensor reads as in torch") {
  const Tensor x = Tensor::from_values({-1.0F, 0.0F, 1.0F, 2.0F});
  CHECK(to_string(quantize_per_tensor(x, 0.1, 10, DType::QUInt8)) ==
        "tensor([-1.,  0.,  1.,  2.], size=(4,), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=10)");
  CHECK(to_string(quantize_per_tensor(x, 1.0, 0, DType::QInt8)) ==
        "tensor([-1.,  0.,  1.,  2.], size=(4,), dtype=torch.qint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=1.0, zero_point=0)");
}

TEST_CASE("to_string: a tensor quantized per channel shows its scales, zero points and axis") {
  const Tensor x = Tensor::from_values({-1.0F, 0.0F, 1.0F, 2.0F}, {2, 2});
  const QTensor q =
      quantize_per_channel(x, Tensor::from_values({0.1F, 0.01F}),
                           Tensor::from_int64(std::vector<std::int64_t>{10, 0}), 0, DType::QUInt8);
  CHECK(to_string(q) ==
        "tensor([[-1.,  0.],\n"
        "        [ 1.,  2.]], size=(2, 2), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_channel_affine,\n"
        "       scale=tensor([0.1000, 0.0100], dtype=torch.float64),\n"
        "       zero_point=tensor([10,  0]), axis=0)");
}

TEST_CASE("to_string: numbers get the format that torch chooses") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(to_string(Tensor::from_values({1.0F, 2000.0F})) == "tensor([1.0000e+00, 2.0000e+03])");
  CHECK(to_string(Tensor::from_values({1.0F, 1000.0F})) == "tensor([   1., 1000.])");
  CHECK(to_string(Tensor::from_values({0.00001F, 1.0F})) == "tensor([1.0000e-05, 1.0000e+00])");
  CHECK(to_string(Tensor::from_values({kNan, 1.5F})) == "tensor([   nan, 1.5000])");
  CHECK(to_string(Tensor::from_values({1.0F, -kInf})) == "tensor([1., -inf])");
  CHECK(to_string(Tensor::zeros({2})) == "tensor([0., 0.])");
  CHECK(to_string(Tensor::scalar(3.0)) == "tensor(3.)");
  CHECK(to_string(Tensor::scalar(1e300, DType::Float64)) ==
        "tensor(1.0000e+300, dtype=torch.float64)");
}

TEST_CASE("to_string: integers are exact and bools are words") {
  CHECK(to_string(Tensor::from_int64(std::vector<std::int64_t>{123456789, -1})) ==
        "tensor([123456789,        -1])");
  Tensor bools = Tensor::zeros({2}, DType::Bool);
  bools.select(0, 0).fill_(1.0);
  CHECK(to_string(bools) == "tensor([ True, False])");
  CHECK(to_string(Tensor::arange(3, DType::Int8)) == "tensor([0, 1, 2], dtype=torch.int8)");
}

TEST_CASE("to_string: empty tensors tell their size and dtype where that is not plain") {
  CHECK(to_string(Tensor::empty({0})) == "tensor([])");
  CHECK(to_string(Tensor::empty({0, 3})) == "tensor([], size=(0, 3))");
  CHECK(to_string(Tensor::empty({0}, DType::Int64)) == "tensor([], dtype=torch.int64)");
}

TEST_CASE("to_string: long lines are broken and long tensors are summarised") {
  CHECK(to_string(Tensor::arange(20, DType::Int64)) ==
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19])");
  CHECK(to_string(Tensor::arange(1001, DType::Int64)) ==
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  CHECK(to_string(Tensor::arange(2000, DType::Int64).view({1000, 2}).t().contiguous().t()) ==
        "tensor([[   0,    1],\n"
        "        [   2,    3],\n"
        "        [   4,    5],\n"
        "        ...,\n"
        "        [1994, 1995],\n"
        "        [1996, 1997],\n"
        "        [1998, 1999]])");
  CHECK(to_string(Tensor::ones({2, 1, 2})) == "tensor([[[1., 1.]],\n\n        [[1., 1.]]])");
}

}  // namespace quanta
