#include "quanta/ops/detail/cuda_affine_places.h"

#include <cstddef>

namespace quanta::detail {

cuda::AffinePlaces affine_places(const cpu::AffineLayout& layout) {
  static_assert(Dims::kMaxDims <= cuda::AffinePlaces::kMostDims);
  cuda::AffinePlaces places;
  places.rank = static_cast<int>(layout.sizes.size());
  places.count = product(layout.sizes);
  places.parameters = layout.parameters;
  std::int64_t step = 1;
  for (std::size_t d = layout.sizes.size(); d-- > 0;) {
    places.sizes[d] = layout.sizes[d];
    places.strides[d] = layout.strides[d];
    places.steps[d] = step;
    step *= layout.sizes[d];
  }
  return places;
}

}  // namespace quanta::detail
