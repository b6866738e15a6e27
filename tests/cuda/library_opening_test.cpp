// NVIDIA's libraries where there is no GPU: whether they can be opened, and what cuDNN would do.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "quanta/ops/cuda/library_checks.h"
#include "quanta/ops/cuda/shared_library.h"
#include "quanta/runtime/error.h"
#include "support/paths.h"

namespace quanta {
namespace {

using cuda::ConvPass;
using cuda::FloatConvolution;

bool is_missing(const std::string& reason) {
  if (reason.empty()) return false;
  MESSAGE("skipped: " << reason);
  return true;
}

std::string properties_of(const char* device) {
  std::ifstream file(test::source_folder() / "tests/cuda/devices" /
                     (std::string(device) + ".json"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(!text.empty());
  return text;
}

struct Sizes {
  const char* name;
  int spatial;
  std::int64_t batch, in_channels, out_channels, groups;
  std::int64_t in[3], kernel[3], stride[3], padding[3], dilation[3];
};

FloatConvolution convolution_of(const Sizes& sizes, DType dtype, ConvPass pass) {
  FloatConvolution result;
  result.pass = pass;
  result.dtype = dtype;
  result.spatial = sizes.spatial;
  cpu::ConvShape& shape = result.shape;
  shape.batch = sizes.batch;
  shape.in_channels = sizes.in_channels;
  shape.out_channels = sizes.out_channels;
  shape.groups = sizes.groups;
  for (int d = 0; d < 3; ++d) {
    shape.in[d] = sizes.in[d];
    shape.kernel[d] = sizes.kernel[d];
    shape.stride[d] = sizes.stride[d];
    shape.padding[d] = sizes.padding[d];
    shape.dilation[d] = sizes.dilation[d];
    shape.out[d] =
        (sizes.in[d] + 2 * sizes.padding[d] - sizes.dilation[d] * (sizes.kernel[d] - 1) - 1) /
            sizes.stride[d] +
        1;
  }
  return result;
}

// One of each kind that the operations can ask for.
constexpr Sizes kSizes[] = {
    {"3x3", 2, 8, 64, 64, 1, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"stem", 2, 2, 3, 64, 1, {1, 112, 112}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
    {"1x1", 2, 8, 256, 64, 1, {1, 14, 14}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"odd", 2, 3, 5, 7, 1, {1, 13, 11}, {1, 3, 2}, {1, 2, 1}, {0, 1, 2}, {1, 2, 1}},
    {"one channel", 2, 1, 1, 1, 1, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"padding beyond the kernel",
     2,
     1,
     2,
     3,
     1,
     {1, 5, 5},
     {1, 2, 2},
     {1, 3, 3},
     {0, 4, 4},
     {1, 1, 1}},
    {"depthwise", 2, 8, 64, 64, 64, {1, 28, 28}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"groups of odd channels",
     2,
     2,
     15,
     12,
     3,
     {1, 9, 9},
     {1, 3, 3},
     {1, 1, 1},
     {0, 1, 1},
     {1, 1, 1}},
    {"1d", 2, 2, 16, 24, 1, {1, 1, 50}, {1, 1, 5}, {1, 1, 2}, {0, 0, 2}, {1, 1, 1}},
    {"3d", 3, 1, 3, 5, 1, {8, 9, 9}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {2, 1, 2}},
    {"3d in groups", 3, 1, 6, 6, 2, {8, 9, 9}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}},
};

void check_plans(const char* device) {
  if (is_missing(cuda::missing_cudnn())) return;
  const std::string properties = properties_of(device);
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16}) {
      for (const ConvPass pass : {ConvPass::Output, ConvPass::Input, ConvPass::Weight}) {
        CAPTURE(sizes.name);
        CAPTURE(to_string(dtype));
        CAPTURE(static_cast<int>(pass));
        CHECK_NOTHROW(cuda::cudnn_plans(convolution_of(sizes, dtype, pass), properties));
      }
    }
  }
}

}  // namespace

TEST_CASE("cuda libraries: cuBLASLt has all functions that are called") {
  if (is_missing(cuda::missing_cublaslt())) return;
  CHECK(cuda::missing_cublaslt().empty());
}

TEST_CASE("cuda libraries: one that is not there is told with what brings it") {
  CHECK_THROWS_WITH_AS(
      cuda::SharedLibrary("libquanta_none.so.7", "nobody"),
      doctest::Contains("libquanta_none.so.7: expected the library that nobody brings, got none"),
      BackendError);
  const cuda::SharedLibrary c_library("libc.so.6", "the system");
  int (*function)(int) = nullptr;
  CHECK_THROWS_WITH_AS(c_library.find("quanta_none", function),
                       doctest::Contains("libc.so.6: expected a function quanta_none"),
                       BackendError);
  c_library.find("abs", function);
  CHECK(function(-3) == 3);
}

TEST_CASE("cuda libraries: cuDNN has a plan for every convolution on an H200") {
  check_plans("h200");
}
TEST_CASE("cuda libraries: cuDNN has a plan for every convolution on an A100") {
  check_plans("a100");
}

TEST_CASE("cuda libraries: cuDNN has plans for tensors that are not aligned") {
  if (is_missing(cuda::missing_cudnn())) return;
  const std::string properties = properties_of("h200");
  for (const ConvPass pass : {ConvPass::Output, ConvPass::Input, ConvPass::Weight}) {
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      CHECK_NOTHROW(cuda::cudnn_plans(convolution_of(kSizes[3], dtype, pass), properties,
                                      dtype == DType::Float32 ? 4 : 2));
    }
  }
}

TEST_CASE("cuda libraries: factors of float32 are rounded only where TF32 is asked for") {
  if (is_missing(cuda::missing_cudnn())) return;
  const std::string properties = properties_of("h200");
  FloatConvolution convolution = convolution_of(kSizes[0], DType::Float32, ConvPass::Output);
  const auto full = cuda::cudnn_plans(convolution, properties);
  convolution.factors = cuda::FloatFactors::TF32;
  const auto rounded = cuda::cudnn_plans(convolution, properties);
  CHECK(rounded.size() > full.size());
  CHECK(std::ranges::all_of(full, [&](const std::string& plan) {
    return std::ranges::find(rounded, plan) != rounded.end();
  }));
  CHECK(rounded[0] != full[0]);
}

TEST_CASE("cuda libraries: device properties that cuDNN does not take are an error") {
  if (is_missing(cuda::missing_cudnn())) return;
  CHECK_THROWS_WITH_AS(
      cuda::cudnn_plans(convolution_of(kSizes[0], DType::Float32, ConvPass::Output), "{}"),
      doctest::Contains("cuDNN: DeviceProperties::deserialize"), BackendError);
}

}  // namespace quanta
