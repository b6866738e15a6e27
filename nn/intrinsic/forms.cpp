// The rows of the fused modules and of their quantized forms, and the sequences that can be fused.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/saved_layers.h"
#include "quanta/nn/fold_batch_norm.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {
namespace {

namespace ni = nn::intrinsic;
namespace niq = nn::intrinsic::quantized;
using Modules = std::vector<std::shared_ptr<Module>>;

// Parts after the first: made by their settings, as a file has them.

template <typename Part>
struct PartOf {
  static void note(const Module&, FormSettings&) {}
  template <typename Layer>
  static std::shared_ptr<Part> make(const Layer&, const FormSettings&) {
    return make_module<Part>();
  }
};

template <>
struct PartOf<LeakyReLU> {
  static void note(const Module& part, FormSettings& settings) {
    settings.numbers["negative_slope"] = static_cast<const LeakyReLU&>(part).negative_slope();
  }
  template <typename Layer>
  static std::shared_ptr<LeakyReLU> make(const Layer&, const FormSettings& settings) {
    return make_module<LeakyReLU>(settings.number("negative_slope"));
  }
};

template <typename BatchNorm>
requires std::is_base_of_v<BatchNormNd, BatchNorm>
struct PartOf<BatchNorm> {
  static void note(const Module& part, FormSettings& settings) {
    note_batch_norm(static_cast<const BatchNorm&>(part).options(), settings);
  }
  template <typename Layer>
  static std::shared_ptr<BatchNorm> make(const Layer& layer, const FormSettings& settings) {
    return make_module<BatchNorm>(saved_batch_norm(result_channels(layer), settings));
  }
};

// A fused module; in the float network its first part stands in its place.
template <typename Fused, typename Layer, typename... Rest>
ModuleForm fused_row(std::string name) {
  ModuleForm row;
  row.name = std::move(name);
  row.form = Form::Fused;
  row.type = typeid(Fused);
  row.sources = {typeid(Layer)};
  row.settings = [](const Module& module) {
    FormSettings settings;
    [[maybe_unused]] const auto& fused = static_cast<const ni::FusedModule&>(module);
    [[maybe_unused]] std::size_t index = 0;
    (PartOf<Rest>::note(fused[++index], settings), ...);
    return settings;
  };
  row.restore = [](const Module& occupant, const SavedForm& saved) -> std::shared_ptr<Module> {
    const auto* source = as_source<Layer>(occupant);
    if (source == nullptr) return nullptr;
    // A qat module that is made of this one has its bias one level up.
    const auto layer =
        with_saved_bias(*source, saved, saved.find("bias") != nullptr ? "bias" : "0.bias");
    layer->clear_pre_hooks();
    layer->clear_forward_hooks();
    layer->set_activation_post_process(nullptr);
    auto fused = make_module<Fused>(layer, PartOf<Rest>::make(*layer, saved.settings())...);
    fused->train(occupant.is_training());
    return fused;
  };
  return row;
}

template <typename Layer, typename Quantized, typename Fused>
ModuleForm quantized_conv_row(std::string name) {
  ModuleForm row = form_of<Quantized, Fused>(Form::Quantized, std::move(name));
  row.restore = &restore_conv<Layer, Quantized>;
  return row;
}

template <typename Quantized, typename Fused>
ModuleForm quantized_linear_row(std::string name) {
  ModuleForm row = form_of<Quantized, Fused>(Form::Quantized, std::move(name));
  row.restore = &restore_linear<Quantized>;
  return row;
}

ModuleForm quantized_leaky_row() {
  ModuleForm row =
      form_of<niq::LinearLeakyReLU, ni::LinearLeakyReLU>(Form::Quantized, "LinearLeakyReLU");
  row.settings = [](const Module& module) {
    FormSettings settings;
    settings.numbers["negative_slope"] =
        static_cast<const niq::LinearLeakyReLU&>(module).negative_slope();
    return settings;
  };
  return row;
}

// What fuse_modules does with a sequence.

template <typename Layer>
constexpr std::int64_t transposed_groups(const Layer& layer) {
  if constexpr (std::is_base_of_v<ConvTransposeNd, Layer>) {
    return layer.options().groups;
  } else {
    static_cast<void>(layer);
    return 0;
  }
}

// A copy of the layer with the batch norm's arithmetic in its weight and bias.
template <typename Layer, typename BatchNorm>
std::shared_ptr<Module> fold(const Modules& modules) {
  const auto& layer = static_cast<const Layer&>(*modules[0]);
  const auto& norm = static_cast<const BatchNorm&>(*modules[1]);
  QUANTA_CHECK(
      !layer.is_training() && !norm.is_training(),
      "fuse_modules: model: expected eval mode to fold a batch norm (call eval()), got train mode");
  const FoldedWeights folded =
      fold_batch_norm(layer.weight, layer.bias, norm.running_mean, norm.running_var,
                      norm.options().eps, norm.weight, norm.bias, transposed_groups(layer));
  std::shared_ptr<Module> copy = layer.clone();
  copy->clear_pre_hooks();
  copy->clear_forward_hooks();
  auto& result = static_cast<Layer&>(*copy);
  result.weight = folded.weight;
  result.bias = folded.bias;
  return copy;
}

template <typename Fused>
std::shared_ptr<Module> join(const Modules& modules) {
  std::shared_ptr<Module> fused;
  if constexpr (std::is_constructible_v<Fused, std::shared_ptr<Module>, std::shared_ptr<Module>,
                                        std::shared_ptr<Module>>) {
    fused = make_module<Fused>(modules[0], modules[1], modules[2]);
  } else {
    fused = make_module<Fused>(modules[0], modules[1]);
  }
  fused->train(modules[0]->is_training());
  return fused;
}

template <typename Fused, typename Layer, typename BatchNorm>
std::shared_ptr<Module> fold_and_join(const Modules& modules) {
  return join<Fused>({fold<Layer, BatchNorm>(modules), modules[2]});
}

// A layer and the batch norm after it stay two, to be trained; `Fused` takes all modules.
template <typename Fused, typename Layer, typename BatchNorm>
std::shared_ptr<Module> keep_batch_norm(const Modules& modules) {
  const auto& layer = static_cast<const Layer&>(*modules[0]);
  const auto& norm = static_cast<const BatchNorm&>(*modules[1]);
  const std::int64_t channels = layer.weight.size(0);
  QUANTA_CHECK(norm.options().num_features == channels,
               "fuse_modules_qat: model: expected a batch norm of the layer's {} channels, got {}",
               channels, norm.options().num_features);
  QUANTA_CHECK(norm.options().affine && norm.options().track_running_stats,
               "fuse_modules_qat: model: expected a batch norm with affine parameters and running "
               "statistics, got affine={}, track_running_stats={}",
               norm.options().affine, norm.options().track_running_stats);
  return join<Fused>(modules);
}

// The sequences of a layer, the batch norm of its rank and ReLU.
template <typename Layer, typename BatchNorm, typename LayerReLU, typename LayerBn,
          typename LayerBnReLU>
void add_conv_fusions(ModuleForms& forms) {
  const std::type_index layer = typeid(Layer);
  const std::type_index norm = typeid(BatchNorm);
  const std::type_index relu = typeid(ReLU);
  forms.add_fusion({FuseFor::Inference, {layer, norm}, &fold<Layer, BatchNorm>})
      .add_fusion(
          {FuseFor::Inference, {layer, norm, relu}, &fold_and_join<LayerReLU, Layer, BatchNorm>})
      .add_fusion({FuseFor::Inference, {layer, relu}, &join<LayerReLU>})
      .add_fusion({FuseFor::Training, {layer, norm}, &keep_batch_norm<LayerBn, Layer, BatchNorm>})
      .add_fusion(
          {FuseFor::Training, {layer, norm, relu}, &keep_batch_norm<LayerBnReLU, Layer, BatchNorm>})
      .add_fusion({FuseFor::Training, {layer, relu}, &join<LayerReLU>});
}

// For both workflows.
template <typename Fused, typename Layer, typename Activation>
void add_pair(ModuleForms& forms) {
  for (const FuseFor use : {FuseFor::Inference, FuseFor::Training}) {
    forms.add_fusion({use, {typeid(Layer), typeid(Activation)}, &join<Fused>});
  }
}

template <typename Layer, typename BatchNorm>
void add_fold(ModuleForms& forms) {
  forms.add_fusion(
      {FuseFor::Inference, {typeid(Layer), typeid(BatchNorm)}, &fold<Layer, BatchNorm>});
}

void add_fusions(ModuleForms& forms) {
  add_conv_fusions<Conv1d, BatchNorm1d, ni::ConvReLU1d, ni::ConvBn1d, ni::ConvBnReLU1d>(forms);
  add_conv_fusions<Conv2d, BatchNorm2d, ni::ConvReLU2d, ni::ConvBn2d, ni::ConvBnReLU2d>(forms);
  add_conv_fusions<Conv3d, BatchNorm3d, ni::ConvReLU3d, ni::ConvBn3d, ni::ConvBnReLU3d>(forms);
  add_pair<ni::LinearReLU, Linear, ReLU>(forms);
  add_pair<ni::BNReLU2d, BatchNorm2d, ReLU>(forms);
  add_pair<ni::BNReLU3d, BatchNorm3d, ReLU>(forms);
  add_fold<Linear, BatchNorm1d>(forms);
  add_fold<ConvTranspose1d, BatchNorm1d>(forms);
  add_fold<ConvTranspose2d, BatchNorm2d>(forms);
  add_fold<ConvTranspose3d, BatchNorm3d>(forms);
  const auto inference = [&](std::type_index activation, Fuser fuse) {
    forms.add_fusion({FuseFor::Inference, {typeid(Linear), activation}, std::move(fuse)});
  };
  inference(typeid(LeakyReLU), &join<ni::LinearLeakyReLU>);
  inference(typeid(Tanh), &join<ni::LinearTanh>);
  forms.add_fusion({FuseFor::Training,
                    {typeid(Linear), typeid(BatchNorm1d)},
                    &keep_batch_norm<ni::LinearBn1d, Linear, BatchNorm1d>});
}

}  // namespace

void add_fused_forms(ModuleForms& forms) {
  forms.add(fused_row<ni::ConvReLU1d, Conv1d, ReLU>("intrinsic.ConvReLU1d"));
  forms.add(fused_row<ni::ConvReLU2d, Conv2d, ReLU>("intrinsic.ConvReLU2d"));
  forms.add(fused_row<ni::ConvReLU3d, Conv3d, ReLU>("intrinsic.ConvReLU3d"));
  forms.add(fused_row<ni::ConvAdd2d, Conv2d>("intrinsic.ConvAdd2d"));
  forms.add(fused_row<ni::ConvAddReLU2d, Conv2d, ReLU>("intrinsic.ConvAddReLU2d"));
  forms.add(fused_row<ni::LinearReLU, Linear, ReLU>("intrinsic.LinearReLU"));
  forms.add(fused_row<ni::LinearLeakyReLU, Linear, LeakyReLU>("intrinsic.LinearLeakyReLU"));
  forms.add(fused_row<ni::LinearTanh, Linear, Tanh>("intrinsic.LinearTanh"));
  forms.add(fused_row<ni::BNReLU2d, BatchNorm2d, ReLU>("intrinsic.BNReLU2d"));
  forms.add(fused_row<ni::BNReLU3d, BatchNorm3d, ReLU>("intrinsic.BNReLU3d"));
  forms.add(fused_row<ni::ConvBn1d, Conv1d, BatchNorm1d>("intrinsic.ConvBn1d"));
  forms.add(fused_row<ni::ConvBn2d, Conv2d, BatchNorm2d>("intrinsic.ConvBn2d"));
  forms.add(fused_row<ni::ConvBn3d, Conv3d, BatchNorm3d>("intrinsic.ConvBn3d"));
  forms.add(fused_row<ni::ConvBnReLU1d, Conv1d, BatchNorm1d, ReLU>("intrinsic.ConvBnReLU1d"));
  forms.add(fused_row<ni::ConvBnReLU2d, Conv2d, BatchNorm2d, ReLU>("intrinsic.ConvBnReLU2d"));
  forms.add(fused_row<ni::ConvBnReLU3d, Conv3d, BatchNorm3d, ReLU>("intrinsic.ConvBnReLU3d"));
  forms.add(fused_row<ni::LinearBn1d, Linear, BatchNorm1d>("intrinsic.LinearBn1d"));

  forms.add(quantized_conv_row<Conv1d, niq::ConvReLU1d, ni::ConvReLU1d>("ConvReLU1d"));
  forms.add(quantized_conv_row<Conv2d, niq::ConvReLU2d, ni::ConvReLU2d>("ConvReLU2d"));
  forms.add(quantized_conv_row<Conv3d, niq::ConvReLU3d, ni::ConvReLU3d>("ConvReLU3d"));
  forms.add(form_of<niq::ConvAdd2d, ni::ConvAdd2d>(Form::Quantized, "ConvAdd2d"));
  forms.add(form_of<niq::ConvAddReLU2d, ni::ConvAddReLU2d>(Form::Quantized, "ConvAddReLU2d"));
  forms.add(quantized_linear_row<niq::LinearReLU, ni::LinearReLU>("LinearReLU"));
  forms.add(quantized_leaky_row());
  forms.add(quantized_linear_row<niq::LinearTanh, ni::LinearTanh>("LinearTanh"));
  forms.add(form_of<niq::BNReLU2d, ni::BNReLU2d>(Form::Quantized, "BNReLU2d"));
  forms.add(form_of<niq::BNReLU3d, ni::BNReLU3d>(Form::Quantized, "BNReLU3d"));
  add_fusions(forms);
}

}  // namespace quanta::nn::detail
