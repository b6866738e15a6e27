#include "detector.h"

#include <memory>
#include <typeinfo>

#include "quanta/ops/cat.h"

namespace quanta::networks {
namespace {

nn::Sequential conv_norm_silu(std::int64_t in, std::int64_t out, std::int64_t kernel_size,
                              std::int64_t stride = 1) {
  // The first one's 6x6 window begins two pixels outside, like a 5x5 one's.
  return nn::Sequential(nn::Conv2d({.in_channels = in,
                                    .out_channels = out,
                                    .kernel_size = {kernel_size},
                                    .stride = {stride},
                                    .padding = {(kernel_size - 1) / 2},
                                    .bias = false}),
                        nn::BatchNorm2d({.num_features = out, .eps = 1e-3}), nn::SiLU());
}

}  // namespace

Bottleneck::Bottleneck(std::int64_t channels, bool adds) {
  register_module("cv1", cv1, conv_norm_silu(channels, channels, 1));
  register_module("cv2", cv2, conv_norm_silu(channels, channels, 3));
  if (adds) register_module("skip_add", skip_add);
}

Tensor Bottleneck::forward(const Tensor& x) const {
  const Tensor y = cv2(cv1(x));
  return skip_add ? skip_add->add(x, y) : y;
}

CspBlock::CspBlock(std::int64_t in, std::int64_t out, int bottlenecks, bool adds) {
  const std::int64_t half = out / 2;
  register_module("cv1", cv1, conv_norm_silu(in, half, 1));
  register_module("cv2", cv2, conv_norm_silu(in, half, 1));
  register_module("cv3", cv3, conv_norm_silu(2 * half, out, 1));
  register_module("m", m);
  for (int i = 0; i < bottlenecks; ++i) m->push_back(nn::make_module<Bottleneck>(half, adds));
  register_module("join", join);
}

Tensor CspBlock::forward(const Tensor& x) const { return cv3(join->cat({m(cv1(x)), cv2(x)}, 1)); }

PoolPyramid::PoolPyramid(std::int64_t in, std::int64_t out) {
  register_module("cv1", cv1, conv_norm_silu(in, in / 2, 1));
  register_module("cv2", cv2, conv_norm_silu(2 * in, out, 1));
  register_module("pool", pool, {.kernel_size = {5}, .stride = {1}, .padding = {2}});
  register_module("join", join);
}

Tensor PoolPyramid::forward(const Tensor& x) const {
  const Tensor y0 = cv1(x);
  const Tensor y1 = pool(y0);
  const Tensor y2 = pool(y1);
  return cv2(join->cat({y0, y1, y2, pool(y2)}, 1));
}

Detector::Detector(std::int64_t outputs) {
  register_module("quant", quant);
  register_module("stem", stem, conv_norm_silu(3, 16, 6, 2));
  register_module("down2", down2, conv_norm_silu(16, 32, 3, 2));
  register_module("csp2", csp2, 32, 32, 1, true);
  register_module("down3", down3, conv_norm_silu(32, 64, 3, 2));
  register_module("csp3", csp3, 64, 64, 2, true);
  register_module("down4", down4, conv_norm_silu(64, 128, 3, 2));
  register_module("csp4", csp4, 128, 128, 3, true);
  register_module("down5", down5, conv_norm_silu(128, 256, 3, 2));
  register_module("csp5", csp5, 256, 256, 1, true);
  register_module("pyramid", pyramid, 256, 256);
  register_module("enlarge", enlarge, InterpolateOptions{.scale_factor = {2.0}});
  register_module("narrow5", narrow5, conv_norm_silu(256, 128, 1));
  register_module("join_up4", join_up4);
  register_module("up4", up4, 256, 128, 1, false);
  register_module("narrow4", narrow4, conv_norm_silu(128, 64, 1));
  register_module("join_up3", join_up3);
  register_module("up3", up3, 128, 64, 1, false);
  register_module("reduce3", reduce3, conv_norm_silu(64, 64, 3, 2));
  register_module("join_out4", join_out4);
  register_module("out4", out4, 128, 128, 1, false);
  register_module("reduce4", reduce4, conv_norm_silu(128, 128, 3, 2));
  register_module("join_out5", join_out5);
  register_module("out5", out5, 256, 256, 1, false);
  register_module("head3", head3, {.in_channels = 64, .out_channels = outputs, .kernel_size = {1}});
  register_module("head4", head4,
                  {.in_channels = 128, .out_channels = outputs, .kernel_size = {1}});
  register_module("head5", head5,
                  {.in_channels = 256, .out_channels = outputs, .kernel_size = {1}});
  register_module("dequant", dequant);
}

Tensor Detector::forward(const Tensor& image) const {
  const Tensor x3 = csp3(down3(csp2(down2(stem(quant(image))))));
  const Tensor x4 = csp4(down4(x3));
  const Tensor y5 = narrow5(pyramid(csp5(down5(x4))));
  const Tensor y4 = narrow4(up4(join_up4->cat({enlarge(y5), x4}, 1)));
  const Tensor z3 = up3(join_up3->cat({enlarge(y4), x3}, 1));
  const Tensor z4 = out4(join_out4->cat({reduce3(z3), y4}, 1));
  const Tensor z5 = out5(join_out5->cat({reduce4(z4), y5}, 1));
  const std::vector<Tensor> boxes{dequant(head3(z3)).flatten(2), dequant(head4(z4)).flatten(2),
                                  dequant(head5(z5)).flatten(2)};
  return cat(boxes, 2);
}

std::vector<std::vector<std::string>> fusion_groups(const Detector& model) {
  std::vector<std::vector<std::string>> groups;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    const auto* sequence = dynamic_cast<const nn::Sequential*>(entry.module);
    if (sequence == nullptr || sequence->size() == 0) continue;
    const nn::Module& first = (*sequence)[0];
    if (typeid(first) == typeid(nn::Conv2d))
      groups.push_back({entry.path + ".0", entry.path + ".1"});
  }
  return groups;
}

}  // namespace quanta::networks
