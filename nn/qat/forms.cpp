// The rows of the modules that prepare_qat puts in.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/detail/saved_layers.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/conv.h"
#include "quanta/nn/qat/embedding.h"
#include "quanta/nn/qat/linear.h"

namespace quanta::nn::detail {
namespace {

namespace nq = nn::qat;
namespace ni = nn::intrinsic;
namespace niq = nn::intrinsic::qat;

template <typename T, typename... Sources>
ModuleForm row(std::string name) {
  return form_of<T, Sources...>(Form::Qat, std::move(name));
}

// With the batch norm that is trained along.
template <typename T, typename Fused>
ModuleForm batch_norm_row(std::string name) {
  ModuleForm result = row<T, Fused>(std::move(name));
  result.settings = [](const Module& module) {
    const auto& layer = static_cast<const T&>(module);
    FormSettings settings;
    note_batch_norm(layer.bn->options(), settings);
    if (layer.is_bn_frozen()) settings.numbers["frozen"] = 1;
    return settings;
  };
  result.configure = [](Module& module, const FormSettings& settings) {
    if (settings.numbers.contains("frozen")) static_cast<T&>(module).freeze_bn_stats();
  };
  return result;
}

}  // namespace

void add_qat_forms(ModuleForms& forms) {
  forms.add(row<nq::Linear, Linear, NonDynamicallyQuantizableLinear>("qat.Linear"));
  forms.add(row<nq::Conv1d, Conv1d>("qat.Conv1d"));
  forms.add(row<nq::Conv2d, Conv2d>("qat.Conv2d"));
  forms.add(row<nq::Conv3d, Conv3d>("qat.Conv3d"));
  forms.add(row<nq::Embedding, Embedding>("qat.Embedding"));
  forms.add(row<nq::EmbeddingBag, EmbeddingBag>("qat.EmbeddingBag"));
  ModuleForm dynamic_linear = row<nq::dynamic::Linear, Linear>("qat.dynamic.Linear");
  dynamic_linear.by_default = false;
  forms.add(std::move(dynamic_linear));
  forms.add(row<niq::LinearReLU, ni::LinearReLU>("intrinsic.qat.LinearReLU"));
  forms.add(row<niq::ConvReLU1d, ni::ConvReLU1d>("intrinsic.qat.ConvReLU1d"));
  forms.add(row<niq::ConvReLU2d, ni::ConvReLU2d>("intrinsic.qat.ConvReLU2d"));
  forms.add(row<niq::ConvReLU3d, ni::ConvReLU3d>("intrinsic.qat.ConvReLU3d"));
  forms.add(batch_norm_row<niq::LinearBn1d, ni::LinearBn1d>("intrinsic.qat.LinearBn1d"));
  forms.add(batch_norm_row<niq::ConvBn1d, ni::ConvBn1d>("intrinsic.qat.ConvBn1d"));
  forms.add(batch_norm_row<niq::ConvBn2d, ni::ConvBn2d>("intrinsic.qat.ConvBn2d"));
  forms.add(batch_norm_row<niq::ConvBn3d, ni::ConvBn3d>("intrinsic.qat.ConvBn3d"));
  forms.add(batch_norm_row<niq::ConvBnReLU1d, ni::ConvBnReLU1d>("intrinsic.qat.ConvBnReLU1d"));
  forms.add(batch_norm_row<niq::ConvBnReLU2d, ni::ConvBnReLU2d>("intrinsic.qat.ConvBnReLU2d"));
  forms.add(batch_norm_row<niq::ConvBnReLU3d, ni::ConvBnReLU3d>("intrinsic.qat.ConvBnReLU3d"));
}

}  // namespace quanta::nn::detail
