// States and files that do not belong to a model, or no longer: refused whole, whatever is wrong.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../runtime/file_test_util.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

// Every layer that dynamic quantization knows, one after the other: x [batch, steps, 6].
std::shared_ptr<nn::Sequential> float_layers() {
  auto net = nn::make_module<nn::Sequential>();
  net->add_module("lstm", nn::make_module<nn::LSTM>(nn::RecurrentOptions{
                              .input_size = 6, .hidden_size = 4, .bidirectional = true}));
  net->add_module(
      "gru", nn::make_module<nn::GRU>(nn::RecurrentOptions{.input_size = 8, .hidden_size = 5}));
  net->add_module(
      "fc", nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 5, .out_features = 32}));
  net->add_module(
      "out", nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 32, .out_features = 3}));
  net->eval();
  return net;
}

// An LSTM and an attention on quantized tensors.
std::shared_ptr<nn::Sequential> static_layers() {
  auto net = nn::make_module<nn::Sequential>();
  net->add_module("quant", nn::make_module<nn::QuantStub>());
  net->add_module(
      "lstm", nn::make_module<nn::LSTM>(nn::RecurrentOptions{.input_size = 6, .hidden_size = 4}));
  net->add_module("attention",
                  nn::make_module<nn::MultiheadAttention>(nn::MultiheadAttentionOptions{
                      .embed_dim = 4, .num_heads = 2, .add_bias_kv = true}));
  net->add_module("dequant", nn::make_module<nn::DeQuantStub>());
  net->eval();
  return net;
}

Tensor input() { return random_tensor({4, 2, 6}, 3); }

struct Form {
  std::string name;
  std::function<std::shared_ptr<nn::Sequential>()> make_float;
  std::function<void(nn::Sequential&)> quantize;
};

std::vector<Form> forms() {
  return {
      {"dynamic int8", float_layers,
       [](nn::Sequential& net) {
         quantize_dynamic_(net);
         nn::quantized::dynamic::set_reduce_range(net, quantized::ReduceRange::No);
       }},
      {"dynamic int8 per channel", float_layers,
       [](nn::Sequential& net) {
         quantize_dynamic_(net, DynamicSpec()
                                    .add_type<nn::Linear>(per_channel_dynamic_qconfig())
                                    .add_type<nn::LSTM>(per_channel_dynamic_qconfig()));
       }},
      {"dynamic float16", float_layers,
       [](nn::Sequential& net) { quantize_dynamic_(net, {}, DType::Float16); }},
      {"weight-only int4", float_layers,
       [](nn::Sequential& net) {
         quantize_weight_only_(net, {4, 16, false}, {.names = {"out"}});
       }},
      {"quantizable", static_layers,
       [](nn::Sequential& net) { prepare_(net, get_default_qconfig()); }},
      {"quantized", static_layers,
       [](nn::Sequential& net) {
         prepare_(net, get_default_qconfig());
         net(input());
         convert_(net);
       }},
  };
}

// Tensors in the place of `tensor` that are never right. Plain numbers of another dtype are
// converted, as in torch; codes and halves are not.
std::vector<Tensor> impostors(const Tensor& tensor) {
  Dims more = tensor.sizes();
  more.push_back(2);
  std::vector<Tensor> result{Tensor::zeros(more), Tensor::zeros({0})};
  if (tensor.dim() > 0) {
    Dims longer = tensor.sizes();
    longer[0] += 1;
    result.push_back(Tensor::zeros(longer));
  }
  if (tensor.is_quantized() || tensor.dtype() == DType::Float16 || tensor.dtype() == DType::UInt8) {
    result.push_back(Tensor::zeros(tensor.sizes(), DType::Int64));
    result.push_back(Tensor::zeros(tensor.sizes(), DType::Bool));
  }
  return result;
}

// The torch names of what no dynamic Linear reads: the constants 1 and 0.
bool is_ignored(const std::string& form, const std::string& name) {
  return form.starts_with("dynamic") && (name.ends_with(".scale") || name.ends_with(".zero_point"));
}

// What a state may leave out: it decides on biases and on the rounding of activations.
bool is_optional(const std::string& form, const std::string& name) {
  if (name == "out.bias") return form.starts_with("weight-only");
  return is_ignored(form, name) || name.ends_with("/4/0/1") || name.ends_with("/4/1/1") ||
         name.ends_with("_packed_params/1") || name.ends_with("reduce_range") ||
         name.ends_with("/3/0");
}

}  // namespace

TEST_CASE("load_state_dict: each tensor that is missing or another is refused whole") {
  manual_seed(1);
  for (const Form& form : forms()) {
    CAPTURE(form.name);
    const auto net = form.make_float();
    form.quantize(*net);
    const StateDict before = net->state_dict();
    REQUIRE(before.size() > 0);
    for (const auto& [name, tensor] : before) {
      CAPTURE_BINDING(name);
      StateDict without = before;
      without.erase(name);
      if (is_optional(form.name, name)) {
        CHECK_NOTHROW(net->load_state_dict(without));
        CHECK_NOTHROW(net->load_state_dict(before));
      } else {
        CHECK_THROWS_AS(net->load_state_dict(without), ArgumentError);
      }
      if (is_ignored(form.name, name)) continue;
      for (const Tensor& impostor : impostors(tensor)) {
        CAPTURE(impostor.sizes().size());
        CAPTURE(to_string(impostor.dtype()));
        StateDict wrong = before;
        wrong.set(name, impostor);
        CHECK_THROWS_AS(net->load_state_dict(wrong), ArgumentError);
        REQUIRE(same_state(net->state_dict(), before));
      }
    }
    StateDict more = before;
    more.set("nobody.weight", Tensor::ones({1}));
    CHECK_THROWS_WITH_AS(net->load_state_dict(more), doctest::Contains("nobody.weight"),
                         ArgumentError);
    CHECK(same_state(net->state_dict(), before));
  }
}

TEST_CASE("load_model: a file that was cut off anywhere leaves the float model as it was") {
  manual_seed(2);
  const TemporaryFolder folder;
  for (const Form& form : forms()) {
    if (form.name == "quantizable") continue;  // observers: not for files
    CAPTURE(form.name);
    const auto saved = form.make_float();
    form.quantize(*saved);
    const auto path = folder / "model.safetensors";
    save_model(*saved, path);
    const std::string bytes = read_bytes(path);
    const auto loaded = form.make_float();
    const std::string tree = to_string(*loaded);
    const StateDict before = loaded->state_dict();
    const Tensor y = (*loaded)(input());
    const std::size_t size = bytes.size();
    for (const std::size_t kept : {std::size_t{0}, std::size_t{7}, std::size_t{8}, size / 4,
                                   size / 2, size - 100, size - 1}) {
      CAPTURE(kept);
      write_bytes(path, std::string_view(bytes).substr(0, kept));
      CHECK_THROWS_AS(load_model(*loaded, path), FileError);
      REQUIRE(to_string(*loaded) == tree);
      REQUIRE(same_state(loaded->state_dict(), before));
    }
    CHECK((*loaded)(input()).equal(y));
    write_bytes(path, bytes);
    load_model(*loaded, path);
    CHECK((*loaded)(input()).equal((*saved)(input())));
  }
}

}  // namespace quanta::test
