#include "quanta/ops/cpu/onednn/kept_convolutions.h"

#include <doctest/doctest.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "conv_reference.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "support/resources.h"

namespace quanta {
namespace {

namespace onednn = cpu::onednn;

// Restores what it changes: the limit, and how many primitives oneDNN itself holds.
class SmallCaches {
 public:
  explicit SmallCaches(std::size_t most)
      : most_(onednn::set_most_kept_convolutions(most)),
        cached_(dnnl::get_primitive_cache_capacity()) {
    dnnl::set_primitive_cache_capacity(4);
  }
  ~SmallCaches() {
    onednn::set_most_kept_convolutions(most_);
    dnnl::set_primitive_cache_capacity(cached_);
  }
  SmallCaches(const SmallCaches&) = delete;
  SmallCaches& operator=(const SmallCaches&) = delete;

 private:
  std::size_t most_;
  int cached_;
};

// A strided convolution, for which there is no kernel of our own.
struct Layer {
  ConvOptions options{.stride = {2}, .padding = {1}};
  Generator generator{5};
  QTensor weight = testing::random_weight({64, 64, 3, 3}, {0}, generator);
  quantized::ConvPackedParams packed{weight, Tensor(), options, 2};
  PackedConv floats{dequantize(weight), Tensor(), options, 2, Fusion::ReLU};

  QTensor input(std::int64_t height, std::int64_t width) {
    return testing::random_activation({1, 64, height, width}, 0.02, 120, generator);
  }
};

}  // namespace

TEST_CASE("oneDNN: varying sizes of images do not make the process grow") {
  Layer layer;
  const SmallCaches caches(onednn::kept_convolutions() + 4);
  const auto sizes = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t height = begin; height < end; ++height) {
      for (std::int64_t width = 24; width < 36; ++width) {
        const QTensor x = layer.input(height, width);
        quantized::conv_relu(x, layer.packed, 0.05, 7);
        layer.floats(dequantize(x));
      }
    }
  };
  sizes(20, 24);
  const double before = test::resident_megabytes();
  sizes(24, 44);
  CHECK(onednn::kept_convolutions() <= onednn::kMostKeptConvolutions);
  // AddressSanitizer keeps what is freed for a while.
  if (QUANTA_ADDRESS_SANITIZER == 0) CHECK(test::resident_megabytes() - before < 4.0);
}

TEST_CASE("oneDNN: convolutions that are not kept give the same codes") {
  Layer layer;
  for (const std::size_t most : {std::size_t{0}, onednn::kMostKeptConvolutions}) {
    const SmallCaches caches(most);
    const std::size_t before = onednn::kept_convolutions();
    const quantized::ConvPackedParams packed{layer.weight, Tensor(), layer.options, 2};
    for (const std::int64_t width : {17, 32, 33}) {
      const QTensor x = layer.input(40, width);
      CHECK(quantized::conv_relu(x, packed, 0.05, 7).to_int64_vector() ==
            testing::reference_codes(x, layer.weight, Tensor(), {.stride = {2}, .padding = {1}},
                                     false, {0.05, 7, true}));
    }
    CHECK((most > 0 || onednn::kept_convolutions() == before));
  }
}

}  // namespace quanta
