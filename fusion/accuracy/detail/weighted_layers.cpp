#include "quanta/fusion/accuracy/detail/weighted_layers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "quanta/fusion/detail/assign_qconfigs.h"
#include "quanta/fusion/detail/qconfig_scope.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/given_qparams_observer.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {
namespace {

using nn::Module;
namespace intrinsic = nn::intrinsic;

// What is known of a module by its class; no weight for one that is no layer.
WeightedLayer as_layer(Module& module) {
  WeightedLayer found;
  found.layer = &module;
  if (auto* conv = dynamic_cast<nn::ConvNd*>(&module)) {
    found.kind = WeightedLayer::Kind::Conv;
    found.weight = &conv->weight;
    found.bias = &conv->bias;
    found.groups = conv->options().groups;
  } else if (auto* transposed = dynamic_cast<nn::ConvTransposeNd*>(&module)) {
    found.kind = WeightedLayer::Kind::ConvTranspose;
    found.weight = &transposed->weight;
    found.bias = &transposed->bias;
    found.groups = transposed->options().groups;
  } else if (auto* linear = dynamic_cast<nn::Linear*>(&module)) {
    found.weight = &linear->weight;
    found.bias = &linear->bias;
  }
  return found;
}

// Classes that are derived from the float ones for training are no float layers any more: they have
// an observer of their weight.
bool is_plain(const Module& module) {
  const auto observers = module.named_observers();
  return std::all_of(observers.begin(), observers.end(), [&](const auto& entry) {
    return entry.observer == module.activation_post_process();
  });
}

bool is_fused(const Module& module) {
  return dynamic_cast<const intrinsic::ConvReLUNd*>(&module) != nullptr ||
         dynamic_cast<const intrinsic::LinearReLU*>(&module) != nullptr ||
         dynamic_cast<const intrinsic::LinearLeakyReLU*>(&module) != nullptr ||
         dynamic_cast<const intrinsic::LinearTanh*>(&module) != nullptr ||
         dynamic_cast<const intrinsic::ConvAdd2d*>(&module) != nullptr;
}

void collect(Module& module, const std::string& path, std::set<const Module*>& seen,
             std::vector<WeightedLayer>& layers) {
  if (!seen.insert(&module).second) return;
  const auto children = module.named_children();
  const bool fused = is_fused(module) && !children.empty();
  WeightedLayer layer = as_layer(fused ? *children[0].module : module);
  if (layer.weight != nullptr && is_plain(*layer.layer) && is_plain(module) &&
      layer.weight->defined() && layer.weight->dtype() == DType::Float32) {
    layer.path = path;
    layer.unit = &module;
    layers.push_back(std::move(layer));
    return;
  }
  // A fused module of another kind is observed as one; nobody looks inside.
  if (dynamic_cast<const intrinsic::FusedModule*>(&module) != nullptr) return;
  for (const Module::NamedChild& child : children) {
    collect(*child.module, nn::detail::child_path(path, child.name), seen, layers);
  }
}

Tensor spread(const Tensor& values, const std::optional<std::int64_t>& axis, std::int64_t dims) {
  if (!axis) return values.reshape({1}).to(DType::Float32);
  Dims sizes = Dims::filled(static_cast<std::size_t>(dims), 1);
  sizes[static_cast<std::size_t>(*axis)] = values.numel();
  return values.reshape(sizes).to(DType::Float32);
}

}  // namespace

std::int64_t WeightedLayer::out_channels() const {
  return weight->size(channel_axis()) * (kind == Kind::ConvTranspose ? groups : 1);
}

std::vector<WeightedLayer> weighted_layers(Module& model) {
  std::vector<WeightedLayer> layers;
  std::set<const Module*> seen;
  collect(model, "", seen, layers);
  return layers;
}

std::vector<WeightedLayer> weighted_layers(Module& model, const QConfigMapping& qconfigs) {
  std::vector<WeightedLayer> layers = weighted_layers(model);
  const QConfigScope scope(model);
  propagate_qconfig_(model, qconfigs);
  for (WeightedLayer& layer : layers) {
    if (const QConfig* qconfig = layer.unit->qconfig()) layer.qconfig = *qconfig;
  }
  return layers;
}

LayerFunction::LayerFunction(const WeightedLayer& layer) : layer_(layer.layer->clone()) {
  layer_->clear_pre_hooks();
  layer_->clear_forward_hooks();
  layer_->train();  // in eval mode a layer keeps a packed copy of its weight, off the tape
  const WeightedLayer copy = as_layer(*layer_);
  weight_ = copy.weight;
  bias_ = copy.bias;
}

Tensor LayerFunction::operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  *weight_ = weight;
  *bias_ = bias;
  return (*layer_)(x);
}

Tensor WeightGrid::round(const Tensor& weight) const {
  if (axis) {
    return fake_quantize_per_channel_affine(weight, qparams.scale, qparams.zero_point, *axis,
                                            quant_min, quant_max);
  }
  return fake_quantize_per_tensor_affine(weight, qparams.scale, qparams.zero_point, quant_min,
                                         quant_max);
}

Tensor WeightGrid::scale_for(std::int64_t dims) const { return spread(qparams.scale, axis, dims); }

Tensor WeightGrid::zero_point_for(std::int64_t dims) const {
  return spread(qparams.zero_point, axis, dims);
}

std::optional<WeightGrid> weight_grid(const WeightedLayer& layer) {
  if (!layer.qconfig || !layer.qconfig->weight) return std::nullopt;
  const std::shared_ptr<Observer> observer = layer.qconfig->weight();
  const DType dtype = observer->dtype();
  QUANTA_SUPPORTED((dtype == DType::QInt8 || dtype == DType::QUInt8) &&
                       observer->qscheme() != QScheme::PerChannelAffineFloatQParams,
                   "'{}': qconfig.weight: expected an observer with integer codes, got {}",
                   layer.path, layer.qconfig->weight.name);
  observer->update(layer.weight->detach());
  const GivenQParamsObserver given({.qparams = observer->calculate_qparams(),
                                    .dtype = dtype,
                                    .qscheme = observer->qscheme(),
                                    .ch_axis = observer->ch_axis(),
                                    .quant_min = observer->quant_min(),
                                    .quant_max = observer->quant_max()});
  WeightGrid grid{.qparams = given.calculate_qparams(),
                  .axis = {},
                  .quant_min = observer->quant_min(),
                  .quant_max = observer->quant_max(),
                  .keep = given_qparams_of(given)};
  if (is_per_channel(observer->qscheme())) grid.axis = observer->ch_axis();
  if (dynamic_cast<const FakeQuantizeBase*>(observer.get()) != nullptr) {
    grid.keep = FakeQuantize::with_args(grid.keep);
  }
  return grid;
}

void keep_grid(const WeightedLayer& layer, const WeightGrid& grid) {
  QConfig qconfig = *layer.qconfig;
  qconfig.weight = grid.keep;
  layer.unit->set_qconfig(std::move(qconfig));
}

}  // namespace quanta::accuracy
