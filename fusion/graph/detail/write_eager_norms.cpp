// Norms. Weights and biases that a call leaves out are ones and zeros.

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

std::string parameter(EagerCall& call, std::size_t i, const char* suffix, const Dims& sizes,
                      double otherwise) {
  if (call.has(i)) return call.input(i);
  return call.weight(suffix, Tensor::full(sizes, otherwise));
}

template <bool kRelu>
bool batch_norm(EagerCall& call) {
  const Dims channels{call.sizes(0)[1]};
  // Arguments: x, mean, var, weight, bias; of codes: x, weight, bias, mean, var.
  const bool of_codes = call.op().starts_with("quantized::");
  const std::size_t mean = of_codes ? 3 : 1;
  const std::size_t weight = of_codes ? 1 : 3;
  Names inputs{call.input(0), parameter(call, weight, "weight", channels, 1.0),
               parameter(call, weight + 1, "bias", channels, 0.0), call.input(mean),
               call.input(mean + 1)};
  const OnnxAttributes attributes{{"epsilon", call.number("eps", 1e-5)}};
  call.need(7, "BatchNormalization");
  if (kRelu) {
    call.emit("Relu", {call.part("BatchNormalization", std::move(inputs), attributes)});
  } else {
    call.emit("BatchNormalization", std::move(inputs), attributes);
  }
  return true;
}

bool layer_norm(EagerCall& call) {
  const Dims shape = call.setting("normalized_shape", Dims{});
  Names inputs{call.input(0), parameter(call, 1, "weight", shape, 1.0), call.input(2)};
  call.need(17, "LayerNormalization");
  call.emit(
      "LayerNormalization", std::move(inputs),
      {{"axis", -static_cast<std::int64_t>(shape.size())}, {"epsilon", call.number("eps", 1e-5)}});
  return true;
}

bool instance_norm(EagerCall& call) {
  const Dims channels{call.sizes(0)[1]};
  call.emit("InstanceNormalization",
            {call.input(0), parameter(call, 1, "weight", channels, 1.0),
             parameter(call, 2, "bias", channels, 0.0)},
            {{"epsilon", call.number("eps", 1e-5)}});
  return true;
}

/// One number a channel against [N, C, ...].
std::string against_channels(EagerCall& call, std::size_t i, const char* suffix) {
  Dims sizes = Dims::filled(static_cast<std::size_t>(call.rank(0) - 1), 1);
  sizes[0] = call.sizes(0)[1];
  if (call.is_constant(i)) return call.weight(suffix, call.constant(i).reshape(sizes));
  return call.part("Reshape", {call.input(i), call.integers(suffix, sizes.to_vector())});
}

/// Groups as channels of an InstanceNormalization: GroupNormalization means something else in each of
/// opsets 18 and 21.
bool group_norm(EagerCall& call) {
  const std::int64_t groups = call.setting("num_groups", std::int64_t{1});
  Numbers sizes = call.sizes(0).to_vector();
  sizes[0] = 0;  // as it is
  const std::string rows =
      call.part("Reshape", {call.input(0), call.integers("rows", {0, groups, -1})});
  const std::string normal = call.part("InstanceNormalization",
                                       {rows, call.weight("ones", Tensor::ones({groups})),
                                        call.weight("zeros", Tensor::zeros({groups}))},
                                       {{"epsilon", call.number("eps", 1e-5)}});
  Names inputs{normal, call.integers("sizes", sizes)};
  if (!call.has(1) && !call.has(2)) {
    call.emit("Reshape", std::move(inputs));
    return true;
  }
  std::string x = call.part("Reshape", std::move(inputs));
  if (call.has(1)) {
    Names product{x, against_channels(call, 1, "weight")};
    if (!call.has(2)) {
      call.emit("Mul", std::move(product));
      return true;
    }
    x = call.part("Mul", std::move(product));
  }
  call.emit("Add", {x, against_channels(call, 2, "bias")});
  return true;
}

bool rms_norm(EagerCall& call) {
  const Dims shape = call.setting("normalized_shape", Dims{});
  const std::string x = call.input(0);
  Numbers axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    axes.push_back(call.rank(0) - static_cast<std::int64_t>(shape.size() - i));
  }
  const std::string mean = call.writer.state.unique_value(call.name("mean"));
  const std::string y = call.result();
  const std::string squares = call.part("Mul", {x, x});
  call.reduce("ReduceMean", squares, axes, true, mean);
  const std::string sum = call.part("Add", {mean, call.scalar("eps", call.setting("eps", 1e-5))});
  const std::string root = call.part("Sqrt", {sum});
  if (!call.has(1)) {
    call.emit("Div", {x, root}, {}, y);
  } else {
    call.emit("Mul", {call.part("Div", {x, root}), call.input(1)}, {}, y);
  }
  return true;
}

bool local_response_norm(EagerCall& call) {
  const std::int64_t size = call.setting("size", std::int64_t{1});
  if (size % 2 == 0) return call.refuse("ONNX's window of an even size lies one channel further");
  call.emit("LRN", {call.input(0)},
            {{"size", size},
             {"alpha", call.number("alpha", 1e-4)},
             {"beta", call.number("beta", 0.75)},
             {"bias", call.number("bias", 1.0)}});
  return true;
}

constexpr EagerRow kRows[] = {
    {"batch_norm", batch_norm<false>},
    {"batch_norm_relu", batch_norm<true>},
    {"layer_norm", layer_norm},
    {"group_norm", group_norm},
    {"instance_norm", instance_norm},
    {"rms_norm", rms_norm},
    {"local_response_norm", local_response_norm},
};

}  // namespace

std::span<const EagerRow> eager_norms() { return kRows; }

}  // namespace quanta::graph::detail
