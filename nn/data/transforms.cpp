#include "quanta/nn/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "quanta/ops/interpolate.h"
#include "quanta/runtime/check.h"

namespace quanta::data {
namespace {

void check_picture(std::string_view op, const Tensor& input) {
  QUANTA_CHECK(input.defined() && input.dim() == 3 && !input.is_quantized(),
               "{}: input: expected a plain [C, H, W], got {}", op,
               input.defined() ? to_string(input.sizes()) : "none");
}

}  // namespace

Transform compose(std::vector<Transform> transforms) {
  return [transforms = std::move(transforms)](const Tensor& input, Generator& generator) {
    Tensor result = input;
    for (const Transform& transform : transforms) result = transform(result, generator);
    return result;
  };
}

Transform normalize(std::vector<float> mean, std::vector<float> std) {
  QUANTA_CHECK(mean.size() == std.size() && !mean.empty(),
               "normalize: std: expected one for each mean, got {} for {}", std.size(),
               mean.size());
  for (const float value : std) {
    QUANTA_CHECK(std::isfinite(value) && value > 0.0F, "normalize: std: expected > 0, got {}",
                 value);
  }
  return [mean = std::move(mean), std = std::move(std)](const Tensor& input, Generator&) {
    check_picture("normalize", input);
    QUANTA_CHECK(input.size(0) == static_cast<std::int64_t>(mean.size()),
                 "normalize: input: expected {} channels, got {}", mean.size(), input.size(0));
    QUANTA_CHECK(input.dtype() == DType::UInt8 || input.dtype() == DType::Float32,
                 "normalize: input: expected UInt8 or Float32, got {}", input.dtype());
    const Tensor x = input.contiguous();
    const Tensor result = Tensor::empty(x.sizes());
    auto* to = result.mutable_data<float>();
    const std::int64_t plane = x.size(1) * x.size(2);
    const auto fill = [&](auto value_of) {
      for (std::size_t c = 0; c < mean.size(); ++c) {
        const std::int64_t begin = static_cast<std::int64_t>(c) * plane;
        for (std::int64_t i = begin; i < begin + plane; ++i) {
          to[i] = (value_of(i) - mean[c]) / std[c];
        }
      }
    };
    if (x.dtype() == DType::UInt8) {
      const auto* from = x.data<std::uint8_t>();
      fill([&](std::int64_t i) { return static_cast<float>(from[i]) / 255.0F; });
    } else {
      const auto* from = x.data<float>();
      fill([&](std::int64_t i) { return from[i]; });
    }
    return result;
  };
}

Transform random_shift(std::int64_t pixels, double fill) {
  QUANTA_CHECK(pixels >= 0, "random_shift: pixels: expected >= 0, got {}", pixels);
  return [pixels, fill](const Tensor& input, Generator& generator) {
    check_picture("random_shift", input);
    const std::int64_t height = input.size(1);
    const std::int64_t width = input.size(2);
    const std::int64_t down = generator.integer(-pixels, pixels);
    const std::int64_t right = generator.integer(-pixels, pixels);
    const Tensor result = Tensor::full(input.sizes(), fill, input.dtype());
    const std::int64_t rows = height - std::abs(down);
    const std::int64_t columns = width - std::abs(right);
    if (rows <= 0 || columns <= 0) return result;
    const Tensor x = input.contiguous();
    const std::size_t bytes = item_size(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.data_ptr());
    auto* to = static_cast<std::byte*>(result.data_ptr());
    const auto offset = [&](std::int64_t c, std::int64_t row, std::int64_t column) {
      return static_cast<std::size_t>((c * height + row) * width + column) * bytes;
    };
    for (std::int64_t c = 0; c < x.size(0); ++c) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::memcpy(
            to + offset(c, row + std::max<std::int64_t>(down, 0), std::max<std::int64_t>(right, 0)),
            from +
                offset(c, row - std::min<std::int64_t>(down, 0), -std::min<std::int64_t>(right, 0)),
            static_cast<std::size_t>(columns) * bytes);
      }
    }
    return result;
  };
}

Transform random_horizontal_flip(double probability) {
  QUANTA_CHECK(probability >= 0.0 && probability <= 1.0,
               "random_horizontal_flip: probability: expected 0..1, got {}", probability);
  return [probability](const Tensor& input, Generator& generator) {
    check_picture("random_horizontal_flip", input);
    if (static_cast<double>(generator.uniform()) >= probability) return input;
    const Tensor x = input.contiguous();
    const Tensor result = Tensor::empty(x.sizes(), x.dtype());
    const std::int64_t width = x.size(2);
    const std::size_t bytes = item_size(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.data_ptr());
    auto* to = static_cast<std::byte*>(result.data_ptr());
    for (std::int64_t row = 0; row < x.size(0) * x.size(1); ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        std::memcpy(to + static_cast<std::size_t>(row * width + i) * bytes,
                    from + static_cast<std::size_t>(row * width + width - 1 - i) * bytes, bytes);
      }
    }
    return result;
  };
}

Transform resize(std::int64_t height, std::int64_t width) {
  QUANTA_CHECK(height >= 1 && width >= 1, "resize: size: expected at least 1 x 1, got {} x {}",
               height, width);
  return [height, width](const Tensor& input, Generator&) {
    check_picture("resize", input);
    if (input.size(1) == height && input.size(2) == width) return input;
    const bool codes = input.dtype() == DType::UInt8;
    const Tensor x = (codes ? input.to(DType::Float32) : input).contiguous();
    const Tensor y =
        interpolate(x.unsqueeze(0), {.size = {height, width}, .mode = InterpolateMode::Bilinear})
            .squeeze(0)
            .contiguous();
    if (!codes) return y;
    const Tensor result = Tensor::empty(y.sizes(), DType::UInt8);
    const auto* from = y.data<float>();
    auto* to = result.mutable_data<std::uint8_t>();
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      to[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(from[i]), 0.0F, 255.0F));
    }
    return result;
  };
}

}  // namespace quanta::data
