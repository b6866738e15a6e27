#include "quanta/runtime/cuda/copy.h"

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/cuda/walk.h"

namespace quanta::cuda {
namespace {

template <typename T>
SIMT_DEVICE void copy_item(const StridedCopyParams& p, const Places& at) {
  static_cast<T*>(p.to)[at.first] = static_cast<const T*>(p.from)[at.second];
}

struct CopyItems {
  static constexpr const char* kName = "copy_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = StridedCopyParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    switch (p.item_bytes) {
      case 1:
        return copy_item<std::uint8_t>(p, at);
      case 2:
        return copy_item<std::uint16_t>(p, at);
      case 4:
        return copy_item<std::uint32_t>(p, at);
      default:
        return copy_item<std::uint64_t>(p, at);
    }
  }
};

struct ConvertItems {
  static constexpr const char* kName = "convert_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ConvertParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    double value = 0.0;
    visit_element(p.from_dtype,
                  [&](auto element) { value = read_item(p.from, at.second, element); });
    visit_element(p.to_dtype, [&](auto element) { write_item(p.to, at.first, value, element); });
  }
};

struct FillItems {
  static constexpr const char* kName = "fill_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FillParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    visit_element(p.dtype, [&](auto element) { write_item(p.to, at.first, p.value, element); });
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void copy_items(Device device, const StridedCopyParams& params) {
  simt::launch<CopyItems>(device, simt::grid_for(params.walk.count), params);
}
void convert_items(Device device, const ConvertParams& params) {
  simt::launch<ConvertItems>(device, simt::grid_for(params.walk.count), params);
}
void fill_items(Device device, const FillParams& params) {
  simt::launch<FillItems>(device, simt::grid_for(params.walk.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
