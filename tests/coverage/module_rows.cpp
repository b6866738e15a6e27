#include <memory>

#include "quanta/nn/activation.h"
#include "quanta/nn/dynamic/attention.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/conv.h"
#include "quanta/nn/qat/embedding.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/pooling.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/reference.h"
#include "quanta/nn/reference_cell.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/qconfig.h"
#include "registry.h"

namespace quanta::coverage {
namespace {

constexpr std::string_view kFusedTest = "tests/nn/fused_test.cpp";
constexpr std::string_view kFormsTest = "tests/nn/module_forms_test.cpp";

template <typename T, typename... Arguments>
std::shared_ptr<nn::Module> module(Arguments&&... arguments) {
  auto result = std::make_shared<T>(std::forward<Arguments>(arguments)...);
  result->eval();
  return result;
}

std::shared_ptr<nn::Module> conv(std::int64_t spatial) {
  const nn::ConvNdOptions options{.in_channels = 4, .out_channels = 4, .kernel_size = {1}};
  if (spatial == 1) return module<nn::Conv1d>(options);
  if (spatial == 2) return module<nn::Conv2d>(options);
  return module<nn::Conv3d>(options);
}

std::shared_ptr<nn::Module> norm(std::int64_t spatial) {
  const nn::BatchNormOptions options{.num_features = 4};
  if (spatial == 1) return module<nn::BatchNorm1d>(options);
  if (spatial == 2) return module<nn::BatchNorm2d>(options);
  return module<nn::BatchNorm3d>(options);
}

std::shared_ptr<nn::Module> linear() {
  return module<nn::Linear>(nn::LinearOptions{.in_features = 4, .out_features = 4});
}

std::shared_ptr<nn::Module> relu() { return module<nn::ReLU>(); }

/// A table of x's dtype with float zero points.
QTensor embedding_table(const QTensor& x) {
  const std::vector<float> values(6, 1.0F);
  return QTensor::empty({6, 4}, x.dtype(), Quantizer::per_channel_float_qparams(values, values, 0));
}

Section fused() {
  Section s{"Fused modules: nn.intrinsic", {}};
  s.from("nn/intrinsic/fused.h", kFormsTest);
  s.row("ConvBn1d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBn1d, Type(conv(1), norm(1))(signal)));
  s.row("ConvBn2d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBn2d, Type(conv(2), norm(2))(x)));
  s.row("ConvBn3d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBn3d, Type(conv(3), norm(3))(volume)));
  s.row("ConvBnReLU1d",
        QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBnReLU1d, Type(conv(1), norm(1), relu())(signal)));
  s.row("ConvBnReLU2d",
        QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBnReLU2d, Type(conv(2), norm(2), relu())(x)));
  s.row("ConvBnReLU3d",
        QUANTA_FLOAT_MODULE(nn::intrinsic::ConvBnReLU3d, Type(conv(3), norm(3), relu())(volume)));
  s.row("ConvReLU1d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvReLU1d, Type(conv(1), relu())(signal)),
        "pipeline");
  s.row("ConvReLU2d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvReLU2d, Type(conv(2), relu())(x)),
        "pipeline");
  s.row("ConvReLU3d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvReLU3d, Type(conv(3), relu())(volume)),
        "pipeline");
  s.row("LinearReLU",
        QUANTA_FLOAT_MODULE(nn::intrinsic::LinearReLU, Type(linear(), relu())(matrix)), "pipeline")
      .tested_in(kFusedTest);
  s.row("LinearBn1d",
        QUANTA_FLOAT_MODULE(nn::intrinsic::LinearBn1d, Type(linear(), norm(1))(matrix)));
  s.row("BNReLU2d", QUANTA_FLOAT_MODULE(nn::intrinsic::BNReLU2d, Type(norm(2), relu())(x)));
  s.row("BNReLU3d", QUANTA_FLOAT_MODULE(nn::intrinsic::BNReLU3d, Type(norm(3), relu())(volume)));
  s.row("ConvAdd2d", QUANTA_FLOAT_MODULE(nn::intrinsic::ConvAdd2d, Type(conv(2)).forward(x, x)))
      .tested_in(kFusedTest);
  s.row("ConvAddReLU2d",
        QUANTA_FLOAT_MODULE(nn::intrinsic::ConvAddReLU2d, Type(conv(2), relu()).forward(x, x)))
      .tested_in(kFusedTest);
  s.row("LinearLeakyReLU", QUANTA_FLOAT_MODULE(nn::intrinsic::LinearLeakyReLU,
                                               Type(linear(), module<nn::LeakyReLU>())(matrix)))
      .tested_in(kFusedTest);
  s.row("LinearTanh",
        QUANTA_FLOAT_MODULE(nn::intrinsic::LinearTanh, Type(linear(), module<nn::Tanh>())(matrix)))
      .tested_in(kFusedTest);
  return s;
}

Section quantized_fused() {
  Section s{"Fused modules: nn.intrinsic.quantized", {}};
  s.from("nn/intrinsic/quantized.h", kFormsTest);
  s.row("LinearReLU",
        QUANTA_MODULE(nn::intrinsic::quantized::LinearReLU, Type(weight({3, 6}), {})(x)),
        "pipeline conv_fbgemm/linear_relu")
      .tested_in(kFusedTest);
  s.row(
      "ConvReLU1d",
      QUANTA_MODULE(nn::intrinsic::quantized::ConvReLU1d, Type({}, weight({4, 4, 1}), {})(signal)),
      "conv_fbgemm/conv1d_relu");
  s.row("ConvReLU2d",
        QUANTA_MODULE(nn::intrinsic::quantized::ConvReLU2d, Type({}, weight({4, 4, 1, 1}), {})(x)),
        "pipeline conv_fbgemm/conv2d_relu");
  s.row("ConvReLU3d",
        QUANTA_MODULE(nn::intrinsic::quantized::ConvReLU3d,
                      Type({}, weight({4, 4, 1, 1, 1}), {})(volume)),
        "conv_fbgemm/conv3d_relu");
  s.row("BNReLU2d", QUANTA_MODULE(nn::intrinsic::quantized::BNReLU2d, Type({.num_features = 4})(x)),
        "functional_norm/batch_norm2d_relu");
  s.row("BNReLU3d",
        QUANTA_MODULE(nn::intrinsic::quantized::BNReLU3d, Type({.num_features = 4})(volume)),
        "functional_norm/batch_norm3d_relu");
  s.row("ConvAdd2d",
        QUANTA_MODULE(nn::intrinsic::quantized::ConvAdd2d,
                      Type({}, weight({4, 4, 1, 1}), {}).forward(x, x)),
        "conv_x86/conv2d_add")
      .tested_in(kFusedTest);
  s.row("ConvAddReLU2d",
        QUANTA_MODULE(nn::intrinsic::quantized::ConvAddReLU2d,
                      Type({}, weight({4, 4, 1, 1}), {}).forward(x, x)),
        "conv_x86/conv2d_add_relu")
      .tested_in(kFusedTest);
  s.row("LinearLeakyReLU",
        QUANTA_MODULE(nn::intrinsic::quantized::LinearLeakyReLU, Type(weight({3, 6}), {}, 0.1)(x)),
        "conv_x86/linear_leaky_relu")
      .tested_in(kFusedTest);
  s.row("LinearTanh",
        QUANTA_MODULE(nn::intrinsic::quantized::LinearTanh, Type(weight({3, 6}), {})(x)),
        "conv_x86/linear_tanh")
      .tested_in(kFusedTest);
  return s;
}

void add_weighted(Section& s) {
  s.from("nn/quantized/conv.h", "tests/nn/quantized_conv_linear_test.cpp");
  s.row("Conv1d", QUANTA_MODULE(nn::quantized::Conv1d, Type({}, weight({4, 4, 1}), {})(signal)),
        "conv_fbgemm/conv1d");
  s.row("Conv2d", QUANTA_MODULE(nn::quantized::Conv2d, Type({}, weight({4, 4, 1, 1}), {})(x)),
        "conv_fbgemm/conv2d pipeline state_dict_pt");
  s.row("Conv3d",
        QUANTA_MODULE(nn::quantized::Conv3d, Type({}, weight({4, 4, 1, 1, 1}), {})(volume)),
        "conv_fbgemm/conv3d");
  s.row("ConvTranspose1d",
        QUANTA_MODULE(nn::quantized::ConvTranspose1d, Type({}, weight({4, 4, 1}), {})(signal)),
        "conv_fbgemm/conv_transpose1d")
      .tested_in(kFormsTest);
  s.row("ConvTranspose2d",
        QUANTA_MODULE(nn::quantized::ConvTranspose2d, Type({}, weight({4, 4, 1, 1}), {})(x)),
        "conv_fbgemm/conv_transpose2d");
  s.row(
       "ConvTranspose3d",
       QUANTA_MODULE(nn::quantized::ConvTranspose3d, Type({}, weight({4, 4, 1, 1, 1}), {})(volume)),
       "conv_fbgemm/conv_transpose3d")
      .tested_in(kFormsTest);
  s.from("nn/quantized/linear.h", "tests/nn/quantized_conv_linear_test.cpp");
  s.row("Linear", QUANTA_MODULE(nn::quantized::Linear, Type(weight({3, 6}), {})(x)),
        "conv_fbgemm/linear pipeline state_dict_pt");
}

void add_activations(Section& s) {
  s.from("nn/quantized/pooling.h", "tests/nn/quantized_layers_test.cpp");
  s.row("MaxPool2d",
        QUANTA_MODULE(nn::quantized::MaxPool2d, Type(MaxPoolOptions{.kernel_size = {2}})(x)),
        "functional_pool/max_pool2d");
  s.from("nn/activation.h", "tests/nn/layers_test.cpp");
  s.row("ReLU (the float class, which convert keeps)", QUANTA_MODULE(nn::ReLU, Type()(x)),
        "functional_activations/relu");
  s.from("nn/quantized/activation.h", "tests/nn/quantized_layers_test.cpp");
  s.row("ReLU", QUANTA_MODULE(nn::quantized::ReLU, Type()(x)), "functional_activations/relu");
  s.row("ReLU6", QUANTA_MODULE(nn::quantized::ReLU6, Type()(x)), "functional_activations/relu6");
  s.row("ELU", QUANTA_MODULE(nn::quantized::ELU, Type(scale, zero_point)(x)),
        "functional_activations/elu");
  s.row("Hardswish", QUANTA_MODULE(nn::quantized::Hardswish, Type(scale, zero_point)(x)),
        "functional_activations/hardswish");
  s.row("LeakyReLU", QUANTA_MODULE(nn::quantized::LeakyReLU, Type(scale, zero_point)(x)),
        "functional_activations/leaky_relu");
  s.row("Sigmoid", QUANTA_MODULE(nn::quantized::Sigmoid, Type(scale, zero_point)(x)),
        "functional_activations/sigmoid");
  s.row("PReLU",
        QUANTA_MODULE(nn::quantized::PReLU,
                      Type(QTensor::empty({1}, scale, 0, DType::QUInt8), scale, zero_point)(x)),
        "functional_activations/prelu");
  s.row("Softmax", QUANTA_MODULE(nn::quantized::Softmax, Type(1, scale, zero_point)(x)),
        "functional_activations/softmax");
  s.row("GELU", QUANTA_MODULE(nn::quantized::GELU, Type(scale, zero_point)(x)));
  s.row("SiLU", QUANTA_MODULE(nn::quantized::SiLU, Type(scale, zero_point)(x)));
  s.row("Mish", QUANTA_MODULE(nn::quantized::Mish, Type(scale, zero_point)(x)));
  s.row("CELU", QUANTA_MODULE(nn::quantized::CELU, Type(scale, zero_point)(x)));
  s.row("SELU", QUANTA_MODULE(nn::quantized::SELU, Type(scale, zero_point)(x)));
  s.row("Softplus", QUANTA_MODULE(nn::quantized::Softplus, Type(scale, zero_point)(x)));
  s.row("Softsign", QUANTA_MODULE(nn::quantized::Softsign, Type(scale, zero_point)(x)));
  s.row("LogSigmoid", QUANTA_MODULE(nn::quantized::LogSigmoid, Type(scale, zero_point)(x)));
  s.row("Tanh", QUANTA_MODULE(nn::quantized::Tanh, Type(scale, zero_point)(x)));
  s.row("LogSoftmax", QUANTA_MODULE(nn::quantized::LogSoftmax, Type(1, scale, zero_point)(x)));
  s.row("Dropout", QUANTA_MODULE(nn::quantized::Dropout, Type()(x)));
}

void add_norms(Section& s) {
  s.from("nn/quantized/norm.h", "tests/nn/quantized_layers_test.cpp");
  s.row("BatchNorm2d", QUANTA_MODULE(nn::quantized::BatchNorm2d, Type({.num_features = 4})(x)),
        "functional_norm/batch_norm2d");
  s.row("BatchNorm3d", QUANTA_MODULE(nn::quantized::BatchNorm3d, Type({.num_features = 4})(volume)),
        "functional_norm/batch_norm3d")
      .tested_in(kFormsTest);
  s.row("LayerNorm",
        QUANTA_MODULE(nn::quantized::LayerNorm,
                      Type({.normalized_shape = {6}}, {}, {}, scale, zero_point)(x)),
        "functional_norm/layer_norm");
  s.row("GroupNorm",
        QUANTA_MODULE(nn::quantized::GroupNorm,
                      Type({.num_groups = 2, .num_channels = 4}, {}, {}, scale, zero_point)(x)),
        "functional_norm/group_norm");
  s.row("InstanceNorm1d",
        QUANTA_MODULE(nn::quantized::InstanceNorm1d,
                      Type({.num_features = 4}, {}, {}, scale, zero_point)(signal)),
        "functional_norm/instance_norm")
      .tested_in(kFormsTest);
  s.row("InstanceNorm2d",
        QUANTA_MODULE(nn::quantized::InstanceNorm2d,
                      Type({.num_features = 4}, {}, {}, scale, zero_point)(x)),
        "functional_norm/instance_norm");
  s.row("InstanceNorm3d",
        QUANTA_MODULE(nn::quantized::InstanceNorm3d,
                      Type({.num_features = 4}, {}, {}, scale, zero_point)(volume)),
        "functional_norm/instance_norm")
      .tested_in(kFormsTest);
}

Section quantized_modules() {
  Section s{"nn.quantized", {}};
  s.from("nn/quantized/stubs.h", "tests/nn/quantized_layers_test.cpp");
  s.row("Quantize",
        QUANTA_FLOAT_MODULE(nn::quantized::Quantize, Type(scale, zero_point, DType::QUInt8)(x)),
        "pipeline");
  s.row("DeQuantize", QUANTA_MODULE(nn::quantized::DeQuantize, Type()(x)), "pipeline");
  s.from("nn/float_functional.h", kFusedTest);
  s.row("FloatFunctional", QUANTA_FLOAT_MODULE(nn::FloatFunctional, Type().add(x, x)), "pipeline");
  s.row("FXFloatFunctional", QUANTA_FLOAT_MODULE(nn::FXFloatFunctional, Type().add(x, x)));
  s.from("nn/quantized/qfunctional.h", "tests/nn/quantized_layers_test.cpp");
  s.row("QFunctional", QUANTA_MODULE(nn::quantized::QFunctional, Type().add(x, x)), "pipeline");
  add_weighted(s);
  add_activations(s);
  add_norms(s);
  s.from("nn/quantized/embedding.h", "tests/nn/embedding_test.cpp");
  s.row("Embedding", QUANTA_MODULE(nn::quantized::Embedding, Type(embedding_table(x))(indices())),
        "functional_norm/embedding_byte functional_norm/embedding_4bit");
  s.row("EmbeddingBag",
        QUANTA_MODULE(nn::quantized::EmbeddingBag,
                      Type(embedding_table(x)).forward(indices(), indices())),
        "functional_norm/embedding_bag_byte functional_norm/embedding_bag_4bit");
  s.from("nn/quantized/lstm.h", "tests/nn/quantizable_test.cpp");
  s.row("LSTM (static)", QUANTA_TYPE(nn::quantized::LSTM));
  s.from("nn/quantized/attention.h", "tests/nn/quantizable_attention_test.cpp");
  s.row("MultiheadAttention", QUANTA_TYPE(nn::quantized::MultiheadAttention));
  return s;
}

Section quantizable_modules() {
  Section s{"nn.quantizable", {}};
  s.from("nn/quantizable/lstm.h", "tests/nn/quantizable_test.cpp");
  s.row("LSTM", QUANTA_FLOAT_MODULE(nn::quantizable::LSTM,
                                    Type({.input_size = 6, .hidden_size = 3})(signal)));
  s.row("LSTMCell", QUANTA_FLOAT_MODULE(nn::quantizable::LSTMCell,
                                        Type({.input_size = 4, .hidden_size = 3})(matrix)));
  s.from("nn/quantizable/attention.h", "tests/nn/quantizable_attention_test.cpp");
  s.row("MultiheadAttention", QUANTA_FLOAT_MODULE(nn::quantizable::MultiheadAttention,
                                                  Type({.embed_dim = 6, .num_heads = 2})(signal)));
  return s;
}

Section stubs() {
  Section s{"Stubs", {}};
  s.from("nn/stubs.h", "tests/fusion/steps_test.cpp");
  s.row("QuantStub", QUANTA_FLOAT_MODULE(nn::QuantStub, Type()(x)), "pipeline");
  s.row("DeQuantStub", QUANTA_FLOAT_MODULE(nn::DeQuantStub, Type()(x)), "pipeline");
  s.row("QuantWrapper", QUANTA_FLOAT_MODULE(nn::QuantWrapper, Type(conv(2))(x)))
      .tested_in("tests/nn/container_test.cpp");
  return s;
}

nn::quantized::dynamic::GateWeights gate_weights(std::int64_t rows, std::int64_t inputs,
                                                 std::int64_t hidden) {
  return {{Tensor::ones({rows, inputs}), {}}, {Tensor::ones({rows, hidden}), {}}};
}

Section dynamic_modules() {
  Section s{"nn.quantized.dynamic and nn.intrinsic.quantized.dynamic", {}};
  s.from("nn/dynamic/linear.h", "tests/nn/dynamic_linear_test.cpp");
  s.row("Linear",
        QUANTA_FLOAT_MODULE(nn::quantized::dynamic::Linear, Type(weight({3, 6}), {})(signal)),
        "dynamic/linear_dynamic pipeline/dynamic_pipeline");
  s.row("LinearReLU",
        QUANTA_FLOAT_MODULE(nn::intrinsic::quantized::dynamic::LinearReLU,
                            Type(weight({3, 6}), {})(signal)),
        "dynamic/linear_dynamic");
  s.from("nn/dynamic/attention.h", "tests/fusion/attention_workflow_test.cpp");
  s.row("MultiheadAttention", QUANTA_TYPE(nn::quantized::dynamic::MultiheadAttention));
  s.from("nn/dynamic/conv.h", "tests/nn/dynamic_linear_test.cpp");
  s.row("Conv1d", QUANTA_FLOAT_MODULE(nn::quantized::dynamic::Conv1d,
                                      Type({}, weight({4, 4, 1}), {})(signal)));
  s.row("Conv2d",
        QUANTA_FLOAT_MODULE(nn::quantized::dynamic::Conv2d, Type({}, weight({4, 4, 1, 1}), {})(x)));
  s.row("Conv3d", QUANTA_FLOAT_MODULE(nn::quantized::dynamic::Conv3d,
                                      Type({}, weight({4, 4, 1, 1, 1}), {})(volume)));
  s.row("ConvTranspose1d", QUANTA_FLOAT_MODULE(nn::quantized::dynamic::ConvTranspose1d,
                                               Type({}, weight({4, 4, 1}), {})(signal)));
  s.row("ConvTranspose2d", QUANTA_FLOAT_MODULE(nn::quantized::dynamic::ConvTranspose2d,
                                               Type({}, weight({4, 4, 1, 1}), {})(x)));
  s.row("ConvTranspose3d", QUANTA_FLOAT_MODULE(nn::quantized::dynamic::ConvTranspose3d,
                                               Type({}, weight({4, 4, 1, 1, 1}), {})(volume)));
  s.from("nn/dynamic/rnn.h", "tests/nn/dynamic_rnn_test.cpp");
  s.row("LSTM",
        QUANTA_FLOAT_MODULE(nn::quantized::dynamic::LSTM, Type({.input_size = 6, .hidden_size = 3},
                                                               {gate_weights(12, 6, 3)})(signal)),
        "dynamic/dynamic_lstm");
  s.row("GRU",
        QUANTA_FLOAT_MODULE(nn::quantized::dynamic::GRU, Type({.input_size = 6, .hidden_size = 3},
                                                              {gate_weights(9, 6, 3)})(signal)),
        "dynamic/dynamic_gru");
  s.from("nn/dynamic/rnn_cell.h", "tests/nn/dynamic_rnn_test.cpp");
  s.row("LSTMCell",
        QUANTA_FLOAT_MODULE(
            nn::quantized::dynamic::LSTMCell,
            Type({.input_size = 4, .hidden_size = 3}, gate_weights(12, 4, 3))(matrix)),
        "dynamic/dynamic_lstm_cell");
  s.row(
      "GRUCell",
      QUANTA_FLOAT_MODULE(nn::quantized::dynamic::GRUCell,
                          Type({.input_size = 4, .hidden_size = 3}, gate_weights(9, 4, 3))(matrix)),
      "dynamic/dynamic_gru_cell");
  s.row(
      "RNNCell",
      QUANTA_FLOAT_MODULE(nn::quantized::dynamic::RNNCell,
                          Type({.input_size = 4, .hidden_size = 3}, gate_weights(3, 4, 3))(matrix)),
      "dynamic/dynamic_rnn_cell");
  return s;
}

nn::ConvNdOptions qat_conv_options() {
  return {.in_channels = 4, .out_channels = 4, .kernel_size = {1}};
}
nn::LinearOptions qat_linear_options() { return {.in_features = 4, .out_features = 4}; }
QConfig qat_qconfig() { return get_default_qat_qconfig("x86"); }

constexpr std::string_view kQatSuite = "qat_modules";
constexpr std::string_view kQatTest = "tests/nn/qat_test.cpp";

Section intrinsic_qat() {
  namespace iq = nn::intrinsic::qat;
  Section s{"nn.intrinsic.qat", {}};
  s.from("nn/qat/batch_norm.h", kQatTest);
  s.row("ConvBn1d",
        QUANTA_FLOAT_MODULE(iq::ConvBn1d, Type(qat_conv_options(), {}, qat_qconfig())(signal)),
        kQatSuite);
  s.row("ConvBn2d",
        QUANTA_FLOAT_MODULE(iq::ConvBn2d, Type(qat_conv_options(), {}, qat_qconfig())(x)),
        kQatSuite);
  s.row("ConvBn3d",
        QUANTA_FLOAT_MODULE(iq::ConvBn3d, Type(qat_conv_options(), {}, qat_qconfig())(volume)),
        kQatSuite);
  s.row("ConvBnReLU1d",
        QUANTA_FLOAT_MODULE(iq::ConvBnReLU1d, Type(qat_conv_options(), {}, qat_qconfig())(signal)),
        kQatSuite);
  s.row("ConvBnReLU2d",
        QUANTA_FLOAT_MODULE(iq::ConvBnReLU2d, Type(qat_conv_options(), {}, qat_qconfig())(x)),
        kQatSuite);
  s.row("ConvBnReLU3d",
        QUANTA_FLOAT_MODULE(iq::ConvBnReLU3d, Type(qat_conv_options(), {}, qat_qconfig())(volume)),
        kQatSuite);
  s.row("LinearBn1d",
        QUANTA_FLOAT_MODULE(iq::LinearBn1d, Type(qat_linear_options(), {}, qat_qconfig())(matrix)),
        kQatSuite);
  s.from("nn/qat/conv.h", kQatTest);
  s.row("ConvReLU1d",
        QUANTA_FLOAT_MODULE(iq::ConvReLU1d, Type(qat_conv_options(), qat_qconfig())(signal)),
        kQatSuite);
  s.row("ConvReLU2d",
        QUANTA_FLOAT_MODULE(iq::ConvReLU2d, Type(qat_conv_options(), qat_qconfig())(x)), kQatSuite);
  s.row("ConvReLU3d",
        QUANTA_FLOAT_MODULE(iq::ConvReLU3d, Type(qat_conv_options(), qat_qconfig())(volume)),
        kQatSuite);
  s.from("nn/qat/linear.h", kQatTest);
  s.row("LinearReLU",
        QUANTA_FLOAT_MODULE(iq::LinearReLU, Type(qat_linear_options(), qat_qconfig())(matrix)),
        kQatSuite);
  return s;
}

Section qat() {
  Section s{"nn.qat", {}};
  s.from("nn/qat/linear.h", kQatTest);
  s.row("Linear",
        QUANTA_FLOAT_MODULE(nn::qat::Linear, Type(qat_linear_options(), qat_qconfig())(matrix)),
        kQatSuite);
  s.row("nn.qat.dynamic.Linear",
        QUANTA_FLOAT_MODULE(nn::qat::dynamic::Linear,
                            Type(qat_linear_options(), default_dynamic_qat_qconfig())(matrix)))
      .tested_in("tests/fusion/qat_workflow_test.cpp");
  s.from("nn/qat/conv.h", kQatTest);
  s.row("Conv1d",
        QUANTA_FLOAT_MODULE(nn::qat::Conv1d, Type(qat_conv_options(), qat_qconfig())(signal)),
        kQatSuite);
  s.row("Conv2d", QUANTA_FLOAT_MODULE(nn::qat::Conv2d, Type(qat_conv_options(), qat_qconfig())(x)),
        kQatSuite);
  s.row("Conv3d",
        QUANTA_FLOAT_MODULE(nn::qat::Conv3d, Type(qat_conv_options(), qat_qconfig())(volume)),
        kQatSuite);
  s.from("nn/qat/embedding.h", kQatTest);
  s.row("Embedding", QUANTA_TYPE(nn::qat::Embedding), kQatSuite);
  s.row("EmbeddingBag", QUANTA_TYPE(nn::qat::EmbeddingBag), kQatSuite);
  return s;
}

/// A reference cell of 4 inputs and 3 units, quantized as per_channel_dynamic_qconfig says.
template <typename Reference, typename Float>
std::shared_ptr<Reference> reference_cell() {
  const auto cell = nn::make_module<Float>(nn::CellOptions{.input_size = 4, .hidden_size = 3});
  cell->eval();
  cell->set_qconfig(per_channel_dynamic_qconfig());
  return std::dynamic_pointer_cast<Reference>(
      Reference::from_float(static_cast<const nn::Module&>(*cell)));
}

Section reference_modules() {
  constexpr std::string_view kEmbeddingTest = "tests/fusion/embedding_workflow_test.cpp";
  Section s{"nn.quantized.reference", {}};
  s.from("nn/reference.h", "tests/nn/reference_test.cpp");
  s.row("Linear", QUANTA_TYPE(nn::reference::Linear));
  s.row("Conv1d", QUANTA_TYPE(nn::reference::Conv1d));
  s.row("Conv2d", QUANTA_TYPE(nn::reference::Conv2d));
  s.row("Conv3d", QUANTA_TYPE(nn::reference::Conv3d));
  s.row("ConvTranspose1d", QUANTA_TYPE(nn::reference::ConvTranspose1d));
  s.row("ConvTranspose2d", QUANTA_TYPE(nn::reference::ConvTranspose2d));
  s.row("ConvTranspose3d", QUANTA_TYPE(nn::reference::ConvTranspose3d));
  s.row("Embedding", QUANTA_TYPE(nn::reference::Embedding)).tested_in(kEmbeddingTest);
  s.row("EmbeddingBag", QUANTA_TYPE(nn::reference::EmbeddingBag)).tested_in(kEmbeddingTest);
  s.from("nn/reference_cell.h", "tests/nn/reference_cell_test.cpp");
  s.row("RNNCell", QUANTA_FLOAT_MODULE(nn::reference::RNNCell,
                                       (*reference_cell<Type, nn::RNNCell>())(matrix)));
  s.row("LSTMCell", QUANTA_FLOAT_MODULE(nn::reference::LSTMCell,
                                        (*reference_cell<Type, nn::LSTMCell>())(matrix)));
  s.row("GRUCell", QUANTA_FLOAT_MODULE(nn::reference::GRUCell,
                                       (*reference_cell<Type, nn::GRUCell>())(matrix)));
  return s;
}

}  // namespace

std::vector<Section> module_sections() {
  return {fused(),
          quantized_fused(),
          quantized_modules(),
          quantizable_modules(),
          stubs(),
          intrinsic_qat(),
          qat(),
          dynamic_modules(),
          reference_modules()};
}

}  // namespace quanta::coverage
