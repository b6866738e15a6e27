#include <algorithm>
#include <vector>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/mean_of_codes.h"
#include "quanta/ops/pooling/cuda_mean.h"
#include "quanta/ops/pooling/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace pooling {
namespace {

/// The sums of `pixels` rows of `channels` codes.
void sum_rows(const std::uint8_t* src, std::int64_t pixels, std::int64_t channels,
              std::vector<std::int64_t>& sums) {
  // A block's sums fit into 32 bits, which the compiler adds many at a time.
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  std::vector<std::uint32_t> block(static_cast<std::size_t>(channels));
  std::fill(sums.begin(), sums.end(), 0);
  for (std::int64_t begin = 0; begin < pixels; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, pixels);
    std::fill(block.begin(), block.end(), 0U);
    for (std::int64_t p = begin; p < end; ++p) {
      const std::uint8_t* row = src + p * channels;
      for (std::int64_t c = 0; c < channels; ++c) block[static_cast<std::size_t>(c)] += row[c];
    }
    for (std::size_t c = 0; c < block.size(); ++c) sums[c] += block[c];
  }
}

constexpr std::int64_t kMostChannelsOnCuda = std::int64_t{1} << 20;  // a grid holds 65535 times 32

struct GlobalMeanToFloat final : Op<GlobalMeanToFloat> {
  static constexpr std::string_view kName = "quantized::global_mean_to_float";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    require_tensor(kName, "x", x, {DType::QUInt8});
    QUANTA_CHECK(!is_per_channel(x.impl()->quantizer.scheme),
                 "{}: x: expected a tensor quantized per tensor, got per channel", kName);
    QUANTA_CHECK(x.dim() >= 3 && x.dim() <= 5, "{}: x: expected 3 to 5 dimensions, got sizes {}",
                 kName, x.sizes());
    Dims sizes = x.sizes();
    for (std::size_t d = 2; d < sizes.size(); ++d) {
      QUANTA_CHECK(sizes[d] > 0, "{}: x: expected at least one pixel, got sizes {}", kName,
                   x.sizes());
      sizes[d] = 1;
    }
    out.arrange(0, MemoryFormat::ChannelsLast);
    out.add(sizes, DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Quantizer& quantizer = in[0].impl()->quantizer;
    const std::int64_t channels = in[0].size(1);
    const std::int64_t pixels = in[0].numel() / (in[0].size(0) * channels);
    const auto* src = static_cast<const std::uint8_t*>(in[0].data_ptr());
    auto* dst = static_cast<float*>(out[0].data_ptr());
    const auto scale = static_cast<double>(static_cast<float>(quantizer.scale));
    parallel_for(in[0].size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> sums(static_cast<std::size_t>(channels));
      for (std::int64_t n = begin; n < end; ++n) {
        sum_rows(src + n * pixels * channels, pixels, channels, sums);
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t sum =
              sums[static_cast<std::size_t>(c)] - pixels * quantizer.zero_point;
          dst[n * channels + c] =
              static_cast<float>(static_cast<double>(sum) * scale / static_cast<double>(pixels));
        }
      }
    });
    return "sums";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Quantizer& quantizer = in[0].impl()->quantizer;
    const std::int64_t channels = in[0].size(1);
    QUANTA_SUPPORTED(channels <= kMostChannelsOnCuda,
                     "{}: x: expected at most {} channels on a CUDA device, got {}", kName,
                     kMostChannelsOnCuda, channels);
    cuda::mean_of_codes(out[0].device(),
                        {.x = reinterpret_cast<const std::uint8_t*>(in[0].device_ptr()),
                         .y = reinterpret_cast<float*>(out[0].device_ptr()),
                         .images = in[0].size(0),
                         .pixels = in[0].numel() / (in[0].size(0) * channels),
                         .channels = static_cast<int>(channels),
                         .scale = static_cast<double>(static_cast<float>(quantizer.scale)),
                         .zero_point = quantizer.zero_point});
    return "mean_of_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

}  // namespace

void add_mean_of_codes(Catalogue& catalogue) {
  catalogue.add({.name = GlobalMeanToFloat::kName,
                 .header = "quanta/ops/mean_of_codes.h",
                 .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(GlobalMeanToFloat{}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
}

}  // namespace pooling

Tensor quantized::global_mean_to_float(const QTensor& x) {
  return run(pooling::GlobalMeanToFloat{}, x);
}

}  // namespace quanta
