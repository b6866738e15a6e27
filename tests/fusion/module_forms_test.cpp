// The table of module forms: every form in it can be made, saved and loaded.

#include "quanta/nn/module_forms.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/files.h"

namespace quanta::test {
namespace {

using nn::Form;
using nn::Module;
using nn::ModuleForm;
using ModulePtr = std::shared_ptr<Module>;

constexpr std::int64_t kChannels = 6;
constexpr std::int64_t kRows = 30;

using Call = std::function<Tensor(const Module& layer, const Tensor& x)>;

// A module of a float or fused kind, and how it is called.
struct Sample {
  std::function<ModulePtr()> make;
  Dims sizes;  // of an input
  bool takes_indices = false;
  Call call = [](const Module& layer, const Tensor& x) { return layer(x); };
  bool is_quantized_before = true;   // its input
  bool is_dequantized_after = true;  // its result
};

template <typename T, typename... Args>
std::function<ModulePtr()> maker(Args... args) {
  return [args...]() -> ModulePtr { return nn::make_module<T>(args...); };
}

Dims image(std::size_t spatial) {
  Dims sizes{2, kChannels};
  for (std::size_t i = 0; i < spatial; ++i) sizes.push_back(5);
  return sizes;
}

template <typename Conv>
ModulePtr conv() {
  if constexpr (std::is_base_of_v<nn::ConvTransposeNd, Conv>) {
    return nn::make_module<Conv>(nn::ConvTransposeNdOptions{
        .in_channels = kChannels, .out_channels = 4, .kernel_size = {3}, .stride = {2}});
  } else {
    return nn::make_module<Conv>(nn::ConvNdOptions{
        .in_channels = kChannels, .out_channels = kChannels, .kernel_size = {3}, .padding = {1}});
  }
}

// Statistics as after a training, and options that are not the usual ones.
template <typename Norm>
ModulePtr batch_norm() {
  const auto norm = nn::make_module<Norm>(
      nn::BatchNormOptions{.num_features = kChannels, .eps = 1e-3, .momentum = 0.3});
  norm->weight.copy_(rand({kChannels}));
  norm->bias.copy_(randn({kChannels}));
  norm->running_mean.copy_(randn({kChannels}));
  norm->running_var.copy_(add_scalar(rand({kChannels}), 0.5));
  return norm;
}

template <typename Norm, typename Options>
ModulePtr affine_norm(const Options& options) {
  const auto norm = nn::make_module<Norm>(options);
  if (norm->weight.defined()) norm->weight.copy_(rand(norm->weight.sizes()));
  if (norm->bias.defined()) norm->bias.copy_(randn(norm->bias.sizes()));
  return norm;
}

ModulePtr linear() {
  return nn::make_module<nn::Linear>(
      nn::LinearOptions{.in_features = kChannels, .out_features = kChannels});
}

template <typename T>
std::pair<const std::type_index, Sample> sample(Sample value) {
  return {typeid(T), std::move(value)};
}

Call add_call() {
  return [](const Module& layer, const Tensor& x) {
    return dynamic_cast<const nn::FloatFunctional&>(layer).add(x, x);
  };
}

Call conv_add_call() {
  return [](const Module& layer, const Tensor& x) {
    return dynamic_cast<const nn::intrinsic::ConvAdd2d&>(layer).forward(x, x);
  };
}

template <typename Conv, typename BatchNorm, typename ConvReLU, typename ConvBn,
          typename ConvBnReLU>
void add_conv_samples(std::map<std::type_index, Sample>& samples, std::size_t spatial) {
  const auto fused = [spatial](auto make) { return Sample{std::move(make), image(spatial)}; };
  const auto relu = [] { return nn::make_module<nn::ReLU>(); };
  samples.insert(sample<Conv>(fused(&conv<Conv>)));
  samples.insert(sample<ConvReLU>(
      fused([=]() -> ModulePtr { return nn::make_module<ConvReLU>(conv<Conv>(), relu()); })));
  samples.insert(sample<ConvBn>(fused([]() -> ModulePtr {
    return nn::make_module<ConvBn>(conv<Conv>(), batch_norm<BatchNorm>());
  })));
  samples.insert(sample<ConvBnReLU>(fused([=]() -> ModulePtr {
    return nn::make_module<ConvBnReLU>(conv<Conv>(), batch_norm<BatchNorm>(), relu());
  })));
}

template <typename Norm>
Sample instance_norm(std::size_t spatial) {
  return {[] {
            return affine_norm<Norm>(
                nn::InstanceNormOptions{.num_features = kChannels, .affine = true});
          },
          image(spatial)};
}

std::map<std::type_index, Sample> make_samples() {
  namespace ni = nn::intrinsic;
  const Dims rows{4, kChannels};
  const Dims steps{5, 2, kChannels};
  const nn::RecurrentOptions recurrent{
      .input_size = kChannels, .hidden_size = 4, .num_layers = 2, .bidirectional = true};
  const nn::CellOptions cell{.input_size = kChannels, .hidden_size = 4};
  const auto relu = [] { return nn::make_module<nn::ReLU>(); };
  std::map<std::type_index, Sample> samples{
      sample<nn::QuantStub>(
          {.make = maker<nn::QuantStub>(), .sizes = rows, .is_quantized_before = false}),
      sample<nn::DeQuantStub>(
          {.make = maker<nn::DeQuantStub>(), .sizes = rows, .is_dequantized_after = false}),
      sample<nn::FloatFunctional>({maker<nn::FloatFunctional>(), rows, false, add_call()}),
      sample<nn::ConvTranspose1d>({&conv<nn::ConvTranspose1d>, image(1)}),
      sample<nn::ConvTranspose2d>({&conv<nn::ConvTranspose2d>, image(2)}),
      sample<nn::ConvTranspose3d>({&conv<nn::ConvTranspose3d>, image(3)}),
      sample<nn::Linear>({&linear, rows}),
      sample<nn::NonDynamicallyQuantizableLinear>(
          {maker<nn::NonDynamicallyQuantizableLinear>(
               nn::LinearOptions{.in_features = kChannels, .out_features = kChannels}),
           rows}),
      sample<nn::BatchNorm2d>({&batch_norm<nn::BatchNorm2d>, image(2)}),
      sample<nn::BatchNorm3d>({&batch_norm<nn::BatchNorm3d>, image(3)}),
      sample<nn::LayerNorm>({[] {
                               return affine_norm<nn::LayerNorm>(
                                   nn::LayerNormOptions{.normalized_shape = {kChannels}});
                             },
                             rows}),
      sample<nn::GroupNorm>({[] {
                               return affine_norm<nn::GroupNorm>(nn::GroupNormOptions{
                                   .num_groups = 2, .num_channels = kChannels});
                             },
                             image(2)}),
      sample<nn::InstanceNorm1d>(instance_norm<nn::InstanceNorm1d>(1)),
      sample<nn::InstanceNorm2d>(instance_norm<nn::InstanceNorm2d>(2)),
      sample<nn::InstanceNorm3d>(instance_norm<nn::InstanceNorm3d>(3)),
      sample<nn::ReLU>({maker<nn::ReLU>(), rows}),
      sample<nn::ReLU6>({maker<nn::ReLU6>(), rows}),
      sample<nn::Hardswish>({maker<nn::Hardswish>(), rows}),
      sample<nn::LeakyReLU>({maker<nn::LeakyReLU>(0.2), rows}),
      sample<nn::ELU>({maker<nn::ELU>(0.7), rows}),
      sample<nn::PReLU>({maker<nn::PReLU>(), rows}),
      sample<nn::Dropout>({maker<nn::Dropout>(0.3), rows}),
      sample<nn::Sigmoid>({maker<nn::Sigmoid>(), rows}),
      sample<nn::Softmax>({maker<nn::Softmax>(std::int64_t{1}), rows}),
      sample<nn::GELU>({maker<nn::GELU>(GeluApproximation::Tanh), rows}),
      sample<nn::SiLU>({maker<nn::SiLU>(), rows}),
      sample<nn::Mish>({maker<nn::Mish>(), rows}),
      sample<nn::CELU>({maker<nn::CELU>(0.7), rows}),
      sample<nn::SELU>({maker<nn::SELU>(), rows}),
      sample<nn::Softplus>({maker<nn::Softplus>(1.5, 2.0), rows}),
      sample<nn::Softsign>({maker<nn::Softsign>(), rows}),
      sample<nn::LogSigmoid>({maker<nn::LogSigmoid>(), rows}),
      sample<nn::Tanh>({maker<nn::Tanh>(), rows}),
      sample<nn::LogSoftmax>({maker<nn::LogSoftmax>(std::int64_t{1}), rows}),
      sample<nn::MaxPool2d>({maker<nn::MaxPool2d>(MaxPoolOptions{.kernel_size = {2}}), image(2)}),
      sample<nn::Embedding>(
          {maker<nn::Embedding>(nn::EmbeddingOptions{.num_embeddings = kRows, .embedding_dim = 8}),
           {4, 3},
           true}),
      sample<nn::EmbeddingBag>(
          {maker<nn::EmbeddingBag>(nn::EmbeddingBagOptions{
               .num_embeddings = kRows, .embedding_dim = 8, .mode = nn::EmbeddingBagMode::Sum}),
           {4, 3},
           true}),
      sample<nn::LSTM>({maker<nn::LSTM>(recurrent), steps}),
      sample<nn::GRU>({maker<nn::GRU>(recurrent), steps}),
      sample<nn::LSTMCell>({maker<nn::LSTMCell>(cell), rows}),
      sample<nn::GRUCell>({maker<nn::GRUCell>(cell), rows}),
      sample<nn::RNNCell>({maker<nn::RNNCell>(cell, nn::RnnNonlinearity::Relu), rows}),
      sample<nn::MultiheadAttention>(
          {maker<nn::MultiheadAttention>(nn::MultiheadAttentionOptions{
               .embed_dim = kChannels, .num_heads = 2, .add_bias_kv = true}),
           steps}),
      sample<ni::ConvAdd2d>(
          {[]() -> ModulePtr { return nn::make_module<ni::ConvAdd2d>(conv<nn::Conv2d>()); },
           image(2), false, conv_add_call()}),
      sample<ni::ConvAddReLU2d>({[=]() -> ModulePtr {
                                   return nn::make_module<ni::ConvAddReLU2d>(conv<nn::Conv2d>(),
                                                                             relu());
                                 },
                                 image(2), false, conv_add_call()}),
      sample<ni::LinearReLU>(
          {[=]() -> ModulePtr { return nn::make_module<ni::LinearReLU>(linear(), relu()); }, rows}),
      sample<ni::LinearLeakyReLU>({[]() -> ModulePtr {
                                     return nn::make_module<ni::LinearLeakyReLU>(
                                         linear(), nn::make_module<nn::LeakyReLU>(0.3));
                                   },
                                   rows}),
      sample<ni::LinearTanh>({[]() -> ModulePtr {
                                return nn::make_module<ni::LinearTanh>(linear(),
                                                                       nn::make_module<nn::Tanh>());
                              },
                              rows}),
      sample<ni::BNReLU2d>({[=]() -> ModulePtr {
                              return nn::make_module<ni::BNReLU2d>(batch_norm<nn::BatchNorm2d>(),
                                                                   relu());
                            },
                            image(2)}),
      sample<ni::BNReLU3d>({[=]() -> ModulePtr {
                              return nn::make_module<ni::BNReLU3d>(batch_norm<nn::BatchNorm3d>(),
                                                                   relu());
                            },
                            image(3)}),
      sample<ni::LinearBn1d>({[]() -> ModulePtr {
                                return nn::make_module<ni::LinearBn1d>(
                                    linear(), batch_norm<nn::BatchNorm1d>());
                              },
                              rows}),
  };
  add_conv_samples<nn::Conv1d, nn::BatchNorm1d, ni::ConvReLU1d, ni::ConvBn1d, ni::ConvBnReLU1d>(
      samples, 1);
  add_conv_samples<nn::Conv2d, nn::BatchNorm2d, ni::ConvReLU2d, ni::ConvBn2d, ni::ConvBnReLU2d>(
      samples, 2);
  add_conv_samples<nn::Conv3d, nn::BatchNorm3d, ni::ConvReLU3d, ni::ConvBn3d, ni::ConvBnReLU3d>(
      samples, 3);
  return samples;
}

const Sample* find_sample(std::type_index type) {
  static const std::map<std::type_index, Sample> samples = make_samples();
  const auto found = samples.find(type);
  return found == samples.end() ? nullptr : &found->second;
}

// The layer between a QuantStub and a DeQuantStub, as far as they are wanted.
struct Network : Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<Module> layer;
  nn::Child<nn::DeQuantStub> dequant;
  const Sample* kind;

  Network(const ModulePtr& occupant, const Sample& kind) : kind(&kind) {
    register_module("quant", quant);
    register_slot("layer", layer);
    replace_child("layer", occupant);
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const bool is_quantized = kind->is_quantized_before && !kind->takes_indices;
    const Tensor y = kind->call(*layer.module(), is_quantized ? quant(x) : x);
    return kind->is_dequantized_after ? dequant(y) : y;
  }
};

Tensor input_of(const Sample& kind) {
  return kind.takes_indices ? randint(0, kRows, kind.sizes, DType::Int64) : randn(kind.sizes);
}

// What stands in the layer's place before anything is fused.
ModulePtr float_layer(const Sample& kind) {
  ModulePtr layer = kind.make();
  const auto* fused = dynamic_cast<const nn::intrinsic::FusedModule*>(layer.get());
  return fused == nullptr ? layer : (*fused).ptr(0);
}

// One way to a module of the row.
struct Path {
  const ModuleForm* row;
  const Sample* kind;
  FromFloat from_source;  // makes the row's module, or its observed source
  QConfigMapping qconfigs;
};

QConfigMapping qconfigs_for(const ModuleForm& row, const std::string& class_name) {
  const bool is_table = class_name.find("Embedding") != std::string::npos;
  if (row.form == Form::Qat) {
    const bool is_dynamic = row.name == "qat.dynamic.Linear";
    return QConfigMapping(default_qat_qconfig())
        .set_module_name("layer", is_table     ? default_embedding_qat_qconfig()
                                  : is_dynamic ? default_dynamic_qat_qconfig()
                                               : default_qat_qconfig());
  }
  QConfig own = is_table ? float_qparams_weight_only_qconfig() : default_qconfig();
  if (row.weight_observer) own.weight = row.weight_observer;
  QConfigMapping result;
  // Activations of reference modules stay float.
  if (row.form != Form::Reference) result.set_global(default_qconfig());
  return result.set_module_name("layer", own);
}

std::shared_ptr<Network> float_network(const Path& path, const ModulePtr& layer) {
  return nn::make_module<Network>(layer, *path.kind);
}

// A network whose layer has the row's form. Null for a form that is not made from `path` on.
std::shared_ptr<Network> network_of_form(const Path& path, std::type_index source) {
  const ModuleForm& row = *path.row;
  const auto net = float_network(path, path.kind->make());
  const Tensor x = input_of(*path.kind);
  const auto mapping_to = [&](const ModuleMapping& standard) {
    return ModuleMapping(standard).add(source, row.make);
  };
  switch (row.form) {
    case Form::Float:
    case Form::Fused:
      break;
    case Form::Observed:
      prepare_(*net, path.qconfigs, default_static_quant_module_mappings(),
               CustomModuleMapping().add_observed(source, {row.make, row.output}));
      (*net)(x);
      break;
    case Form::Quantized: {
      const ModuleMapping mapping = mapping_to(default_static_quant_module_mappings());
      CustomModuleMapping custom;
      if (path.from_source) {  // of an observed module
        custom.add_observed(source, {path.from_source, OutputObserver::None});
        for (const std::type_index observed : row.sources) {
          custom.add_quantized(observed, {row.make, row.parts});
        }
      }
      prepare_(*net, path.qconfigs, mapping, custom);
      (*net)(x);
      convert_(*net, {.mapping = mapping, .uncalibrated = Uncalibrated::Allow, .custom = custom});
      break;
    }
    case Form::Dynamic:
      quantize_dynamic_(*net, DynamicSpec().add_type(source), DType::QInt8,
                        ModuleMapping().add(source, row.make));
      break;
    case Form::WeightOnly:
      quantize_weight_only_(*net, {.bits = 8});
      break;
    case Form::Qat:
      net->train();
      prepare_qat_(*net, path.qconfigs, ModuleMapping().add(source, row.make));
      (*net)(x);
      nn::intrinsic::qat::freeze_bn_stats(*net);
      (*net)(x);
      break;
    case Form::Reference:
      prepare_(*net, path.qconfigs);
      (*net)(x);
      convert_(*net, {.mapping = default_static_quant_reference_module_mappings(),
                      .uncalibrated = Uncalibrated::Allow});
      break;
  }
  return net;
}

void check_saved_and_loaded(const Path& path, std::type_index source) {
  const ModuleForm& row = *path.row;
  CAPTURE(row.name);
  const auto net = network_of_form(path, source);
  const Module& made = *net->layer.module();
  REQUIRE(nn::module_forms().find(made) == &row);
  const TemporaryFile file;
  save_model(*net, file.path);

  const auto loaded = float_network(path, float_layer(*path.kind));
  loaded->train(net->is_training());
  load_model(*loaded, file.path, path.qconfigs);
  CHECK(to_string(*loaded) == to_string(*net));
  CHECK(same_state(loaded->state_dict(), net->state_dict()));
  const Tensor x = input_of(*path.kind);
  manual_seed(5);  // for dropout
  const Tensor want = (*net)(x);
  manual_seed(5);
  CHECK((*loaded)(x).equal(want));
  if (row.form != Form::Qat || row.name == "qat.dynamic.Linear") return;
  net->eval();
  loaded->eval();
  CHECK((*loaded)(x).equal((*net)(x)));
  // Not every network calls its QuantStub.
  convert_(*net, {.uncalibrated = Uncalibrated::Allow});
  convert_(*loaded, {.uncalibrated = Uncalibrated::Allow});
  CHECK((*loaded)(x).equal((*net)(x)));
}

// visit(path, source) for each way to a module of each row.
template <typename Visit>
void for_each_path(const Visit& visit) {
  const nn::ModuleForms& forms = nn::module_forms();
  for (const ModuleForm& row : forms.rows()) {
    CAPTURE(row.name);
    if (row.form == Form::Float || row.name.starts_with("test.")) continue;
    const auto check = [&](std::type_index source, const FromFloat& by_way_of) {
      const Sample* kind = find_sample(source);
      REQUIRE_MESSAGE(kind != nullptr, "a sample of what '", row.name, "' is made of is missing");
      const auto made = kind->make();
      visit(Path{&row, kind, by_way_of, qconfigs_for(row, made->type_name())}, source);
    };
    if (row.form == Form::Fused) {
      check(row.type, {});
      continue;
    }
    for (const std::type_index source : row.sources) {
      const ModuleForm* observed = nullptr;
      bool is_trained = false;  // of a qat module: the float one is among the sources, too
      for (const ModuleForm& other : forms.rows()) {
        const bool is_row_wanted = row.source_row.empty() || row.source_row == other.name;
        if (other.type == source && other.form == Form::Observed && is_row_wanted)
          observed = &other;
        is_trained = is_trained || (other.type == source && other.form == Form::Qat);
      }
      if (is_trained) continue;
      if (observed == nullptr) {
        check(source, {});
      } else {
        check(observed->sources.front(), observed->make);
      }
    }
  }
}

TEST_CASE("module forms: each row can be made and saved and loaded and gives the same bits") {
  manual_seed(1);
  for_each_path(check_saved_and_loaded);
}

// Each entry in turn is an undefined tensor; then the state is loaded as it was.
int check_undefined_is_refused(Module& module) {
  const StateDict before = module.state_dict();
  int count = 0;
  for (const auto& [name, tensor] : before) {
    CAPTURE_BINDING(name);
    StateDict state = before;
    state.set(name, Tensor());
    for (const nn::Strict strict : {nn::Strict::Yes, nn::Strict::No}) {
      CHECK_THROWS_WITH_AS(module.load_state_dict(state, strict),
                           doctest::Contains("expected a tensor, got an undefined one"),
                           ArgumentError);
    }
    ++count;
  }
  CHECK(same_state(module.state_dict(), before));
  return count;
}

TEST_CASE("module forms: a state with an undefined tensor is refused by each of them") {
  manual_seed(1);
  int count = 0;
  for (const auto& [type, kind] : make_samples()) {
    const ModulePtr layer = kind.make();
    CAPTURE(layer->type_name());
    count += check_undefined_is_refused(*layer);
  }
  for_each_path([&](const Path& path, std::type_index source) {
    count += check_undefined_is_refused(*network_of_form(path, source));
  });
  CHECK(count > 1000);
}

TEST_CASE("module forms: an undefined input is refused by each module and harms none") {
  manual_seed(1);
  for (const auto& [type, kind] : make_samples()) {
    const ModulePtr layer = kind.make();
    CAPTURE(layer->type_name());
    CHECK_THROWS_WITH_AS((*layer)(Tensor()), doctest::Contains("got an undefined one"),
                         ArgumentError);
    const auto directly = [&] {
      try {
        layer->forward(Tensor());  // stubs give it back
      } catch (const Error&) {
      }
    };
    CHECK_NOTHROW(directly());
  }
}

// A kind of a user's own: one factor for each row, its codes kept in the module.

struct Scale : Module {
  Tensor factors;
  double limit;

  explicit Scale(std::int64_t features, double limit = 6.0) : limit(limit) {
    factors = Tensor::ones({features});
    register_parameter("factors", factors);
  }
  Tensor forward(const Tensor& x) const override { return clamp(mul(x, factors), -limit, limit); }
};

struct QuantizedScale : nn::quantized::OutputQuantized {
  Tensor factors;
  double limit;

  QuantizedScale(const Tensor& factors, double limit, double scale, std::int64_t zero_point)
      : OutputQuantized(scale, zero_point), factors(factors.clone()), limit(limit) {
    register_buffer("factors", this->factors);
  }
  static ModulePtr from_float(const Module& module) {
    const auto& source = dynamic_cast<const Scale&>(module);
    const ObservedQParams params = module.activation_post_process()->calculate_qparams();
    return nn::make_module<QuantizedScale>(source.factors, source.limit, params.scale.item(),
                                           params.zero_point.to_int64_vector()[0]);
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = clamp(mul(dequantize(x), factors), -limit, limit);
    return quantize_per_tensor(y, scale, zero_point, DType::QUInt8);
  }
  std::string type_name() const override { return "QuantizedScale"; }
};

// A fused pair of its own, whose second part has a setting.
struct ScaleLeaky : nn::intrinsic::FusedModule {
  ScaleLeaky(const ModulePtr& scale, const ModulePtr& leaky)
      : FusedModule({scale, leaky}, {typeid(Scale), typeid(nn::LeakyReLU)}) {}
};

nn::Sequential scale_network(double limit = 6.0) {
  nn::Sequential net{nn::QuantStub(), Scale(5, limit), nn::LeakyReLU(0.3), nn::DeQuantStub()};
  net.eval();
  return net;
}

void register_scale() {
  static const bool done = [] {
    nn::register_module_form(nn::form_of<QuantizedScale, Scale>(Form::Quantized, "test.Scale"));
    return true;
  }();
  static_cast<void>(done);
}

TEST_CASE("module forms: a kind of one's own converts and is saved and loaded once registered") {
  const TemporaryFile file;
  manual_seed(3);
  nn::Sequential net = scale_network();
  dynamic_cast<Scale&>(*net.ptr(1)).factors.copy_(randn({5}));
  const Tensor x = randn({7, 5});

  register_scale();
  CHECK(check(net).empty());
  const nn::Sequential prepared = prepare(net, default_qconfig());
  prepared(x);
  const nn::Sequential int8 = convert(prepared);
  REQUIRE(dynamic_cast<const QuantizedScale*>(int8.ptr(1).get()) != nullptr);
  save_model(int8, file.path);
  nn::Sequential loaded = scale_network();
  load_model(loaded, file.path);
  CHECK(to_string(loaded) == to_string(int8));
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("module forms: settings of a kind of one's own come back") {
  struct Limited : QuantizedScale {
    using QuantizedScale::QuantizedScale;
    static ModulePtr from_float(const Module& module) {
      const auto made = QuantizedScale::from_float(module);
      const auto& base = dynamic_cast<const QuantizedScale&>(*made);
      return nn::make_module<Limited>(base.factors, base.limit, base.scale, base.zero_point);
    }
    std::string type_name() const override { return "Limited"; }
  };
  ModuleForm row = nn::form_of<Limited, Scale>(Form::Quantized, "test.Limited");
  row.by_default = false;
  row.settings = [](const Module& module) {
    nn::FormSettings settings;
    settings.numbers["limit"] = dynamic_cast<const Limited&>(module).limit;
    settings.words["unit"] = "metre";
    return settings;
  };
  row.configure = [](Module& module, const nn::FormSettings& settings) {
    CHECK(settings.word("unit") == "metre");
    CHECK_THROWS_WITH_AS(static_cast<void>(settings.number("width")),
                         "settings: expected 'width', got none", ArgumentError);
    dynamic_cast<Limited&>(module).limit = settings.number("limit");
  };
  nn::register_module_form(row);
  CHECK_THROWS_WITH_AS(nn::register_module_form(row), doctest::Contains("'test.Limited' again"),
                       ArgumentError);

  const TemporaryFile file;
  const ModuleMapping mapping =
      ModuleMapping(default_static_quant_module_mappings()).add<Scale>(&Limited::from_float);
  const nn::Sequential prepared = prepare(scale_network(0.5), default_qconfig(), mapping);
  const Tensor x = randn({7, 5});
  prepared(x);
  const nn::Sequential int8 = convert(prepared, {.mapping = mapping});
  save_model(int8, file.path);
  nn::Sequential loaded = scale_network(6.0);
  load_model(loaded, file.path);
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("module forms: a fusion of one's own is used once registered") {
  nn::Sequential net = scale_network();
  CHECK_THROWS_WITH_AS(fuse_modules(net, {{"1", "2"}}), doctest::Contains("known sequence"),
                       ArgumentError);
  nn::register_fusion({nn::FuseFor::Inference,
                       {typeid(Scale), typeid(nn::LeakyReLU)},
                       [](const std::vector<ModulePtr>& modules) -> ModulePtr {
                         return nn::make_module<ScaleLeaky>(modules[0], modules[1]);
                       }});
  fuse_modules(net, {{"1", "2"}});
  CHECK(dynamic_cast<const ScaleLeaky*>(net.ptr(1).get()) != nullptr);
  // A fused class without a row cannot be restored.
  const TemporaryFile file;
  CHECK_THROWS_WITH_AS(save_model(net, file.path),
                       "save_model: model: expected modules of the table of module forms "
                       "(register_module_form adds a class), got ScaleLeaky '1'",
                       UnsupportedError);
  CHECK_FALSE(std::filesystem::exists(file.path));
}

TEST_CASE("module forms: rows that cannot be used are refused") {
  nn::ModuleForms forms;
  CHECK_THROWS_AS(forms.add({}), ArgumentError);
  ModuleForm without_sources;
  without_sources.name = "test.nothing";
  without_sources.form = Form::Quantized;
  without_sources.type = typeid(QuantizedScale);
  CHECK_THROWS_WITH_AS(forms.add(without_sources), doctest::Contains("'test.nothing'"),
                       ArgumentError);
  CHECK_THROWS_AS(forms.add_fusion({nn::FuseFor::Inference, {typeid(Scale)}, {}}), ArgumentError);
  CHECK(forms.rows().empty());
  CHECK(forms.fusions().empty());
}

TEST_CASE("module forms: what the table gave stays as it was when a row is registered") {
  register_scale();
  const nn::ModuleForms& before = nn::module_forms();
  const ModuleMapping& mapping = default_static_quant_module_mappings();
  const std::size_t rows = before.rows().size();
  struct Later : Scale {
    using Scale::Scale;
  };
  const Later module(2);
  ModuleForm row = nn::form_of<QuantizedScale, Later>(Form::Quantized, "test.Later");
  nn::register_module_form(row);
  CHECK(before.rows().size() == rows);
  CHECK(mapping.find(module) == nullptr);
  CHECK(nn::module_forms().rows().size() == rows + 1);
  CHECK(default_static_quant_module_mappings().find(module) != nullptr);
}

}  // namespace
}  // namespace quanta::test
