#pragma once

// Nothing here throws. A scope belongs to the thread that made it.

namespace quanta::nn {

/// While it lives, weights of layers that this thread makes are zeros instead of random starting
/// values, and take no memory before they are written to: for networks whose state is loaded next.
///
///   std::shared_ptr<models::ResNet> net;
///   {
///     const nn::SkipInit scope;
///     net = nn::make_module<models::ResNet>(models::resnet50());
///   }
///   load_model(*net, "resnet50_int8.safetensors");
///
/// The random generator does not advance. Same idea as torch.nn.utils.skip_init.
class SkipInit {
 public:
  SkipInit() noexcept;
  ~SkipInit();
  SkipInit(const SkipInit&) = delete;
  SkipInit& operator=(const SkipInit&) = delete;

  /// Whether a scope lives on the calling thread.
  static bool active() noexcept;
};

}  // namespace quanta::nn
