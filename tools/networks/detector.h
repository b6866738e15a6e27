#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"

namespace quanta::networks {

/// 1x1 and 3x3 convolution, added to the input if asked for.
struct Bottleneck : nn::Module {
  nn::Child<nn::Sequential> cv1, cv2;
  nn::Child<nn::FloatFunctional> skip_add;  // only in blocks that add

  Bottleneck(std::int64_t channels, bool adds);
  Tensor forward(const Tensor& x) const override;
};

/// A branch of bottlenecks and one beside them, joined: YOLOv5's C3.
struct CspBlock : nn::Module {
  nn::Child<nn::Sequential> cv1, cv2, cv3, m;
  nn::Child<nn::FloatFunctional> join;

  CspBlock(std::int64_t in, std::int64_t out, int bottlenecks, bool adds);
  Tensor forward(const Tensor& x) const override;
};

/// The input beside itself after one, two and three 5x5 maxima: YOLOv5's SPPF.
struct PoolPyramid : nn::Module {
  nn::Child<nn::Sequential> cv1, cv2;
  nn::Child<nn::MaxPool2d> pool;
  nn::Child<nn::FloatFunctional> join;

  PoolPyramid(std::int64_t in, std::int64_t out);
  Tensor forward(const Tensor& x) const override;
};

/// A detector of the shape of YOLOv5n: convolutions with SiLU, features of three sizes that are
/// enlarged, joined and reduced again, and a head on each. x [N, 3, H, W], H and W multiples of 32;
/// result [N, outputs, H * W * (1/64 + 1/256 + 1/1024)].
struct Detector : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Sequential> stem, down2, down3, down4, down5;
  nn::Child<CspBlock> csp2, csp3, csp4, csp5;
  nn::Child<PoolPyramid> pyramid;
  nn::Child<nn::Upsample> enlarge;
  nn::Child<nn::Sequential> narrow5, narrow4, reduce3, reduce4;
  nn::Child<CspBlock> up4, up3, out4, out5;
  nn::Child<nn::FloatFunctional> join_up4, join_up3, join_out4, join_out5;
  nn::Child<nn::Conv2d> head3, head4, head5;
  nn::Child<nn::DeQuantStub> dequant;

  explicit Detector(std::int64_t outputs = 255);
  Tensor forward(const Tensor& image) const override;
};

/// Convolutions with their batch norms.
std::vector<std::vector<std::string>> fusion_groups(const Detector& model);

}  // namespace quanta::networks
