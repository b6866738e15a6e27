#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "quanta/observers/modelopt/compressed_tensor.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::modelopt {
namespace {

using test::largest_difference;
using test::random_tensor;

using Compress = std::function<CompressedTensor(const Tensor&)>;
struct Kind {
  const char* name;
  Compress compress;
  double relative_error;  ///< of the largest magnitude
};
const Kind kKinds[] = {
    {"int8", [](const Tensor& x) { return quantize_int8(x); }, 0.51 / 127},
    {"int8 rows", [](const Tensor& x) { return quantize_int8(x, Dims{0}); }, 0.51 / 127},
    {"int8 blocks",
     [](const Tensor& x) {
       return quantize_int8(x, BlockSizes{{-1, 32}});
     },
     0.51 / 127},
    {"int8 tiles",
     [](const Tensor& x) {
       return quantize_int8(x, BlockSizes{{0, 3}, {1, 7}});
     },
     0.51 / 127},
    {"fp8", [](const Tensor& x) { return quantize_fp8(x); }, 1.0 / 16},
    {"fp8 blocks",
     [](const Tensor& x) {
       return quantize_fp8(x, BlockSizes{{-1, 5}});
     },
     1.0 / 16},
    {"int4", [](const Tensor& x) { return quantize_int4(x, 24); }, 0.51 / 7},
    {"nf4", [](const Tensor& x) { return quantize_nf4(x, 16, 4); }, 0.17},
    {"nvfp4", [](const Tensor& x) { return quantize_nvfp4(x, 16); }, 0.2},
    {"mxfp4", [](const Tensor& x) { return quantize_mxfp4(x, 32); }, 0.25},
    {"mxfp8", [](const Tensor& x) { return quantize_mxfp8(x); }, 1.0 / 16},
};

TEST_CASE("compressed tensors: what comes back lies within half a step") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    for (const Dims& sizes : {Dims{5, 64}, Dims{2, 3, 96}, Dims{64}}) {
      if (sizes.size() < 2 && std::string_view(kind.name) == "int8 tiles") continue;
      const Tensor x = random_tensor(sizes, 3);
      const CompressedTensor packed = kind.compress(x);
      const Tensor back = packed.dequantize();
      CHECK(back.sizes() == sizes);
      CHECK(back.dtype() == DType::Float32);
      CHECK(largest_difference(x, back) <= kind.relative_error * reduce_amax(x).item());
      for (const DType dtype : {DType::Float16, DType::BFloat16}) {
        CHECK(kind.compress(x.to(dtype)).dequantize().dtype() == dtype);
      }
    }
  }
}

TEST_CASE("compressed tensors: zeros come back as zeros") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const CompressedTensor packed = kind.compress(Tensor::zeros({2, 64}));
    for (const float value : packed.dequantize().to_float_vector()) CHECK(value == 0.0F);
    for (const float scale : packed.scale.to_float_vector()) CHECK(std::isfinite(scale));
    // A block of zeros beside others.
    Tensor x = Tensor::zeros({2, 64});
    x.mutable_data<float>()[127] = 3.0F;
    const Tensor back = kind.compress(x).dequantize();
    CHECK(back[0][0].item() == doctest::Approx(0.0));
    CHECK(back[1][63].item() == doctest::Approx(3.0).epsilon(0.05));
  }
}

TEST_CASE("compressed tensors: quantizing what came back changes nothing") {
  const Tensor x = random_tensor({4, 64}, 5);
  for (const Kind& kind : kKinds) {
    if (std::string_view(kind.name) == "nf4") continue;  // its scales are rounded themselves
    CAPTURE(kind.name);
    const Tensor once = kind.compress(x).dequantize();
    CHECK(largest_difference(kind.compress(once).dequantize(), once) <=
          1e-6 * reduce_amax(once).item());
  }
}

TEST_CASE("pack_nibbles: codes come back from either order") {
  std::vector<float> codes;
  for (int i = 0; i < 256; ++i)
    codes.insert(codes.end(), {static_cast<float>(i / 16), static_cast<float>(i % 16)});
  const Tensor all = Tensor::from_values(codes, {256, 2}).to(DType::UInt8);
  for (const FirstNibble first : {FirstNibble::Low, FirstNibble::High}) {
    const Tensor bytes = pack_nibbles(all, first);
    CHECK(bytes.sizes() == Dims{256, 1});
    CHECK(unpack_nibbles(bytes, first).equal(all));
  }
  CHECK(pack_nibbles(all, FirstNibble::High).to_int64_vector()[0x12] == 0x12);
  CHECK(pack_nibbles(all, FirstNibble::Low).to_int64_vector()[0x12] == 0x21);
  CHECK_THROWS_WITH_AS(pack_nibbles(Tensor::full({2}, 16.0, DType::UInt8), FirstNibble::Low),
                       doctest::Contains("got 16"), ArgumentError);
}

TEST_CASE("compressed tensors: what does not suit is refused by name and value") {
  CHECK_THROWS_WITH_AS(quantize_int4(Tensor::ones({2, 5}), 4), doctest::Contains("[2, 5]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_nvfp4(Tensor::ones({2, 24}), 16), doctest::Contains("[2, 24]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_mxfp8_with_scale(Tensor::ones({2, 33}), {}),
                       doctest::Contains("[2, 33]"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_int8(Tensor::full({2}, NAN)), doctest::Contains("nan"),
                       ArgumentError);
  CHECK_THROWS_AS(quantize_int8(Tensor::ones({0, 3})), ArgumentError);
  CHECK_THROWS_AS(quantize_int8(Tensor::ones({3}).to(DType::Int32)), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_nf4(Tensor::ones({4}), 2, 2, 9), doctest::Contains("got 9"),
                       ArgumentError);
  CHECK_THROWS_AS(CompressedTensor{}.dequantize(), ArgumentError);
  CHECK_THROWS_AS(
      mxfp4_to_nvfp4(Tensor::zeros({2, 15}, DType::UInt8), Tensor::zeros({2}, DType::UInt8)),
      ArgumentError);
}

TEST_CASE("compressed tensors: a block of any size is not padded to") {
  const Tensor x = random_tensor({4, 6}, 3);
  constexpr std::int64_t kHuge = std::int64_t{1} << 40U;
  CHECK_THROWS_WITH_AS(quantize_nf4(x, kHuge, 2),
                       doctest::Contains("quantize_nf4: block_size: expected 1..65536"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_nf4(x, 4, kHuge), doctest::Contains("expected 1..65536"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_int4(x, kHuge), doctest::Contains("expected 1..65536"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_int8(x, BlockSizes{{-1, kHuge}}),
                       doctest::Contains("expected at most 65536 for an axis of 6"), ArgumentError);
  CHECK_THROWS_AS(reduce_block_amax(x, {{0, 65537}}), ArgumentError);
  // What is longer than a small tensor stays allowed and changes nothing.
  CHECK(quantize_nf4(x, 4096, 2).dequantize().equal(quantize_nf4(x, 24, 2).dequantize()));
  CHECK(quantize_int4(Tensor::ones({70000}), 70000).scale.numel() == 1);
}

TEST_CASE("mxfp4_to_nvfp4: blocks within reach come back without loss") {
  const Tensor x = random_tensor({3, 64}, 8);
  const CompressedTensor mx = quantize_mxfp4(x);
  const Tensor values = mx.dequantize();
  const NvFp4Conversion conversion =
      mxfp4_to_nvfp4(mx.data.reshape({3, 2, 16}), mx.scale.reshape({3, 2}));
  REQUIRE(conversion.n_lossless_blocks == conversion.n_total_blocks);
  const Tensor global = Tensor::scalar(conversion.global_amax);
  const Tensor again =
      static_fp4(values.reshape({3, 4, 16}), conversion.block_amax.reshape({3, 4, 1}), {{}, global})
          .reshape({3, 64});
  CHECK(largest_difference(again, values) == 0.0);
}

}  // namespace
TEST_CASE("compressed tensors: fields that do not fit together are refused, never read past") {
  const Tensor x = random_tensor({6, 64});
  const std::vector<std::pair<const char*, Tensor CompressedTensor::*>> fields{
      {"data", &CompressedTensor::data},
      {"scale", &CompressedTensor::scale},
      {"double_scale", &CompressedTensor::double_scale},
      {"scale_zeros", &CompressedTensor::scale_zeros}};
  for (const CompressedTensor& good :
       {quantize_int8(x), quantize_int8(x, Dims{0}), quantize_int8(x, BlockSizes{{-1, 32}}),
        quantize_fp8(x), quantize_fp8(x, BlockSizes{{0, 4}}), quantize_int4(x, 16),
        quantize_nf4(x, 16, 4), quantize_nvfp4(x), quantize_mxfp4(x), quantize_mxfp8(x)}) {
    CAPTURE(to_string(good.kind));
    const Tensor values = good.dequantize();
    CHECK(values.sizes() == x.sizes());
    const auto refused = [&](const CompressedTensor& bad) {
      CHECK_THROWS_WITH_AS(bad.dequantize(), doctest::Contains("dequantize: "), ArgumentError);
    };
    for (const auto& [name, field] : fields) {
      if (!(good.*field).defined()) continue;
      CAPTURE_BINDING(name);
      CompressedTensor bad = good;
      bad.*field = Tensor();
      refused(bad);
      bad.*field = Tensor::zeros({1}, DType::Bool);
      refused(bad);
      bad.*field = Tensor::zeros({3, 5, 7}, (good.*field).dtype());
      refused(bad);
      bad.*field = Tensor::zeros({0}, (good.*field).dtype());
      refused(bad);
      // Not dense, but right.
      bad = good;
      const Tensor given = good.*field;
      if (given.dim() == 2) {
        bad.*field = given.t().contiguous().t();
        CHECK(bad.dequantize().equal(values));
      }
    }
    CompressedTensor bad = good;
    bad.sizes = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    refused(bad);
    bad.sizes = {-6, 64};
    refused(bad);
    bad.sizes = {};
    refused(bad);
    bad = good;
    bad.dtype = DType::Bool;
    refused(bad);
    if (good.block_size > 0) {
      for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 62}) {
        bad = good;
        bad.block_size = size;
        refused(bad);
      }
    }
    if (!good.block_sizes.empty()) {
      bad = good;
      bad.block_sizes = {{0, std::int64_t{1} << 40}};
      refused(bad);
      bad.block_sizes = {{5, 2}};
      refused(bad);
    }
  }
}

TEST_CASE("compressed tensors: blocks of any size do not take any memory") {
  const Tensor x = random_tensor({4, 8});
  for (const std::int64_t size : {std::int64_t{1} << 33, std::int64_t{1} << 62}) {
    CHECK_THROWS_AS(quantize_nf4(x, size, 4), ArgumentError);
    CHECK_THROWS_AS(quantize_nf4(x, 8, size), ArgumentError);
    CHECK_THROWS_AS(quantize_int4(x, size), ArgumentError);
  }
  CHECK(quantize_nf4(x, 256, 256).dequantize().sizes() == x.sizes());
}

}  // namespace quanta::modelopt
