#pragma once

// Private: sampling, regions and sums of blocks on a CUDA device, Float32 or Float64. All tensors
// are contiguous.

#include <cstdint>

#include "quanta/ops/vision/regions.h"
#include "quanta/ops/vision/sampling.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dims.h"

namespace quanta::cuda {

struct GridSampleParams {
  bool is_double = false;
  vision::SampleRule rule;
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t points = 1;  // of an image
  int spatial = 2;
  std::int64_t lengths[3] = {1, 1, 1};  // of x: depth, height, width
  const void* x = nullptr;              // [images, channels, lengths]
  const void* grid = nullptr;           // [images, points, spatial]
  void* out = nullptr;                  // [images, channels, points]
};
QUANTA_CUDA_ENTRY(sample_grid, GridSampleParams)

struct AffineGridParams {
  bool is_double = false;
  vision::AffineGridShape shape;
  std::int64_t images = 1;
  std::int64_t points = 1;      // of an image
  const void* theta = nullptr;  // [images, spatial, spatial + 1]
  void* out = nullptr;          // [images, points, spatial]
};
QUANTA_CUDA_ENTRY(make_affine_grid, AffineGridParams)

struct RoiAlignParams {
  bool is_double = false;
  vision::RegionRule rule;
  std::int64_t images = 1;
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t regions = 1;
  const void* x = nullptr;      // [images, channels, height, width]
  const void* rois = nullptr;   // [regions, 4]
  const void* batch = nullptr;  // [regions]: Int64, or Int32
  bool is_long = true;
  void* out = nullptr;            // [regions, channels, rows, columns]
  std::int32_t* fault = nullptr;  // raised by an image that is not there, and by a region too large
};
QUANTA_CUDA_ENTRY(align_regions, RoiAlignParams)

struct FoldParams {
  bool is_double = false;
  int rank = 2;
  std::int64_t planes = 1;
  std::int64_t image[Dims::kMaxDims] = {};
  std::int64_t block[Dims::kMaxDims] = {};
  std::int64_t dilation[Dims::kMaxDims] = {};
  std::int64_t before[Dims::kMaxDims] = {};  // padding
  std::int64_t stride[Dims::kMaxDims] = {};
  std::int64_t places[Dims::kMaxDims] = {};  // of blocks
  std::int64_t image_count = 1;
  std::int64_t block_count = 1;
  std::int64_t place_count = 1;
  const void* x = nullptr;  // [planes, block_count, place_count]
  void* out = nullptr;      // [planes, image]
};
QUANTA_CUDA_ENTRY(fold_blocks, FoldParams)

}  // namespace quanta::cuda
