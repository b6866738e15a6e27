#pragma once

// Private: the best boxes of each class of each image on a CUDA device. All tensors are contiguous.

#include <cstdint>

#include "quanta/ops/vision/regions.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct SelectBoxesParams {
  bool is_double = false;  // boxes and scores: Float64, else Float32
  std::int64_t images = 1;
  std::int64_t labels = 1;
  std::int64_t boxes = 1;      // of an image
  std::int64_t max_boxes = 0;  // at most `boxes`
  float iou_threshold = 0.0F;
  bool has_score_threshold = false;
  double score_threshold = 0.0;
  bool centers = false;
  const void* corners = nullptr;    // [images, boxes, 4]
  const void* scores = nullptr;     // [images, labels, boxes]
  std::uint8_t* is_left = nullptr;  // [images, labels, boxes]
  std::int64_t* kept = nullptr;     // [images, labels, max_boxes]: best first
  std::int64_t* counts = nullptr;   // [images, labels]: how many were kept
};
QUANTA_CUDA_ENTRY(select_boxes, SelectBoxesParams)

struct WriteBoxesParams {
  std::int64_t images = 1;
  std::int64_t labels = 1;
  std::int64_t max_boxes = 0;
  const std::int64_t* kept = nullptr;
  const std::int64_t* starts = nullptr;  // [images * labels + 1]: where those of a class begin
  std::int64_t* out = nullptr;           // [all that were kept, 3]: image, label, box
};
QUANTA_CUDA_ENTRY(write_boxes, WriteBoxesParams)

}  // namespace quanta::cuda
