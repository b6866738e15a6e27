#include "quanta/ops/shape/gradient.h"

#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {

using autograd::BackwardContext;

Tensor record_flip(const Tensor& x, const Dims& dims, Tensor out) {
  return autograd::record("flip", {x}, std::move(out), {}, [dims](const BackwardContext& backward) {
    return std::vector<Tensor>{flip(backward.grad(), dims)};
  });
}

Tensor record_repeat(const Tensor& x, const Dims& repeats, Tensor out) {
  return autograd::record(
      "repeat", {x}, std::move(out), {},
      [sizes = x.sizes(), repeats](const BackwardContext& backward) {
        if (backward.grad().numel() == 0) {
          return std::vector<Tensor>{Tensor::zeros(sizes, backward.grad().dtype())};
        }
        // One dimension after the other: [before, copies, what was repeated], the copies summed.
        Tensor rest = backward.grad();
        const std::size_t added = repeats.size() - sizes.size();
        std::int64_t before = 1;
        for (std::size_t d = 0; d < repeats.size(); ++d) {
          if (repeats[d] != 1) rest = sum(rest.reshape({before, repeats[d], -1}), {1});
          before *= d < added ? 1 : sizes[d - added];
        }
        return std::vector<Tensor>{rest.reshape(sizes)};
      });
}

Tensor record_unfold(const Tensor& x, std::int64_t dimension, std::int64_t step, Tensor out) {
  return autograd::record("unfold", {x}, std::move(out), {},
                          [sizes = x.sizes(), dimension, step](const BackwardContext& backward) {
                            const Tensor result = Tensor::zeros(sizes, backward.grad().dtype());
                            if (sizes.empty()) {
                              if (backward.grad().numel() > 0)
                                result.copy_(backward.grad().reshape({}));
                              return std::vector<Tensor>{result};
                            }
                            // The elements at one place of all windows are different ones.
                            const std::int64_t windows = backward.grad().size(dimension);
                            for (std::int64_t i = 0; i < backward.grad().size(-1); ++i) {
                              const Tensor places =
                                  result.slice(dimension, i, i + (windows - 1) * step + 1, step);
                              places.copy_(add(places, backward.grad().select(-1, i)));
                            }
                            return std::vector<Tensor>{result};
                          });
}

Tensor record_channel_shuffle(const Tensor& x, std::int64_t groups, Tensor out) {
  return autograd::record(
      "channel_shuffle", {x}, std::move(out), {}, [groups](const BackwardContext& backward) {
        const std::int64_t channels = backward.grad().size(1);
        return std::vector<Tensor>{
            channel_shuffle(backward.grad(), channels == 0 ? 1 : channels / groups)};
      });
}

Tensor record_pixel_shuffle(const Tensor& x, std::int64_t upscale_factor, Tensor out) {
  return autograd::record(
      "pixel_shuffle", {x}, std::move(out), {}, [upscale_factor](const BackwardContext& backward) {
        return std::vector<Tensor>{pixel_unshuffle(backward.grad(), upscale_factor)};
      });
}

Tensor record_pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor, Tensor out) {
  return autograd::record(
      "pixel_unshuffle", {x}, std::move(out), {},
      [downscale_factor](const BackwardContext& backward) {
        return std::vector<Tensor>{pixel_shuffle(backward.grad(), downscale_factor)};
      });
}

Tensor record_constant_pad(const Tensor& x, const Dims& pad, Tensor out) {
  Dims back = pad;
  for (std::int64_t& number : back) number = -number;
  return autograd::record("pad", {x}, std::move(out), {}, [back](const BackwardContext& backward) {
    return std::vector<Tensor>{quanta::pad(backward.grad(), back)};
  });
}

}  // namespace quanta::gradients
