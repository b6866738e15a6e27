#include "quanta/ops/vision/cuda_boxes.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A block for each class of each image. Instead of sorting it looks for the best box that is left,
// keeps it, and drops all that share too much with it: the boxes that are kept, and their order, are
// those of the sorted list, as a box is only ever dropped by a better one.
template <typename T>
struct SelectBoxes {
  static constexpr const char* kName = "select_boxes";
  static constexpr int kThreads = 128;
  static constexpr bool kTogether = true;
  using Params = SelectBoxesParams;

  /// -1: none.
  struct Best {
    std::int64_t box = -1;
    T score{};

    // The first one of equal scores.
    SIMT_DEVICE void join(const Best& other) {
      if (other.box < 0) return;
      const bool is_better =
          box < 0 || other.score > score || (other.score == score && other.box < box);
      if (is_better) *this = other;
    }
  };
  static constexpr int kShared = kThreads * static_cast<int>(sizeof(Best));

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const parts = reinterpret_cast<Best*>(shared);
    const int t = simt::thread();
    const std::int64_t pair = simt::block_x();
    const T* const corners = static_cast<const T*>(p.corners) + pair / p.labels * p.boxes * 4;
    const T* const scores = static_cast<const T*>(p.scores) + pair * p.boxes;
    std::uint8_t* const is_left = p.is_left + pair * p.boxes;
    for (std::int64_t b = t; b < p.boxes; b += kThreads) {
      const auto score = static_cast<double>(scores[b]);
      is_left[b] = score == score && (!p.has_score_threshold || score > p.score_threshold);
    }
    std::int64_t count = 0;
    for (; count < p.max_boxes; ++count) {
      Best best;
      for (std::int64_t b = t; b < p.boxes; b += kThreads) {
        if (is_left[b] != 0) best.join({b, scores[b]});
      }
      parts[t] = best;
      simt::sync();
      for (int step = kThreads / 2; step > 0; step /= 2) {
        if (t < step) parts[t].join(parts[t + step]);
        simt::sync();
      }
      const std::int64_t chosen = parts[0].box;
      simt::sync();
      if (chosen < 0) break;
      if (t == 0) p.kept[pair * p.max_boxes + count] = chosen;
      const vision::Box box = vision::box_of(corners + 4 * chosen, p.centers);
      // Each thread looks at its own boxes alone: what it drops nobody else reads.
      for (std::int64_t b = t; b < p.boxes; b += kThreads) {
        if (is_left[b] == 0) continue;
        // In float32, so that a share that is the threshold stays that.
        const auto shared_part = static_cast<float>(
            vision::shared_part(box, vision::box_of(corners + 4 * b, p.centers)));
        if (b == chosen || shared_part > p.iou_threshold) is_left[b] = 0;
      }
    }
    if (t == 0) p.counts[pair] = count;
  }
};

struct WriteBoxes {
  static constexpr const char* kName = "write_boxes";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = WriteBoxesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t pair = simt::block_x();
    const std::int64_t count = p.starts[pair + 1] - p.starts[pair];
    std::int64_t* const out = p.out + 3 * p.starts[pair];
    for (std::int64_t i = simt::thread(); i < count; i += kThreads) {
      out[3 * i] = pair / p.labels;
      out[3 * i + 1] = pair % p.labels;
      out[3 * i + 2] = p.kept[pair * p.max_boxes + i];
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void select_boxes(Device device, const SelectBoxesParams& params) {
  const simt::Grid grid{params.images * params.labels, 1, 1};
  params.is_double ? simt::launch<SelectBoxes<double>>(device, grid, params)
                   : simt::launch<SelectBoxes<float>>(device, grid, params);
}
void write_boxes(Device device, const WriteBoxesParams& params) {
  simt::launch<WriteBoxes>(device, simt::Grid{params.images * params.labels, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
