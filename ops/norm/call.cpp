#include "quanta/ops/norm/call.h"

namespace quanta::norm {

NormGeometry::NormGeometry(const Tensor& x, MemoryFormat format)
    : batch(x.sizes()[0]), channels(x.sizes()[1]) {
  for (std::size_t d = 2; d < x.sizes().size(); ++d) volume *= x.sizes()[d];
  // Rank 2, or a single pixel: channels are innermost anyway.
  channels_last = format == MemoryFormat::ChannelsLast || volume == 1;
}

}  // namespace quanta::norm
