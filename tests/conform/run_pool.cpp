#include "calls.h"
#include "options.h"
#include "quanta/ops/shuffle.h"

namespace quanta::conform {
namespace {

const Registration kOps{
    {"max_pool1d", calls(max_pool1d, {"x"})},
    {"max_pool2d", calls(max_pool2d, {"x"})},
    {"max_pool3d", calls(max_pool3d, {"x"})},
    {"avg_pool1d", calls(avg_pool1d, {"x"})},
    {"avg_pool2d", calls(avg_pool2d, {"x"})},
    {"avg_pool3d", calls(avg_pool3d, {"x"})},
    {"adaptive_avg_pool1d", calls(adaptive_avg_pool1d, {"x", "output_size"})},
    {"adaptive_avg_pool2d", calls(adaptive_avg_pool2d, {"x", "output_size"})},
    {"adaptive_avg_pool3d", calls(adaptive_avg_pool3d, {"x", "output_size"})},
    {"interpolate", calls(interpolate, {"x"})},
    {"pad", calls(pad, {"x", "pad", {"mode", "constant"}, {"value", 0.0}})},
    {"channel_shuffle", calls(channel_shuffle, {"x", "groups"})},
    {"pixel_shuffle", calls(pixel_shuffle, {"x", "upscale_factor"})},
    {"pixel_unshuffle", calls(pixel_unshuffle, {"x", "downscale_factor"})},
};

}  // namespace
}  // namespace quanta::conform
