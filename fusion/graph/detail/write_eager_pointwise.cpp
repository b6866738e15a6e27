// Functions of each element, and arithmetic.

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

/// ONNX's operator of that name without attributes, on all arguments.
template <std::size_t kLength>
struct Text {
  char characters[kLength];
  consteval Text(const char (&text)[kLength]) { std::copy_n(text, kLength, characters); }
};

template <Text kOp, std::int64_t kSince = 1>
bool same(EagerCall& call) {
  Names inputs;
  for (std::size_t i = 0; i < call.input_count(); ++i) inputs.push_back(call.input(i));
  call.need(kSince, kOp.characters);
  call.emit(kOp.characters, std::move(inputs));
  return true;
}

/// An argument in the type of the result: mixed types are promoted.
std::string promoted(EagerCall& call, std::size_t i, OnnxType type) {
  if (call.type(i) == type) return call.input(i);
  return call.part("Cast", {call.input(i)}, {{"to", static_cast<std::int64_t>(type)}});
}

OnnxType common_type(const EagerCall& call) {
  const OnnxType result = call.result_type();
  return result == OnnxType::Bool ? call.type(0) : result;
}

template <Text kOp, bool kRelu = false>
bool arithmetic(EagerCall& call) {
  const OnnxType type = common_type(call);
  const std::string a = promoted(call, 0, type);
  const std::string b = promoted(call, 1, type);
  call.need(7, kOp.characters);
  if (kRelu) {
    call.emit("Relu", {call.part(kOp.characters, {a, b})});
  } else {
    call.emit(kOp.characters, {a, b});
  }
  return true;
}

template <Text kOp, bool kRelu = false>
bool with_scalar(EagerCall& call) {
  const std::string x = call.input(0);
  const std::string other = call.scalar("other", call.setting("other", 0.0));
  call.need(7, kOp.characters);
  if (kRelu) {
    call.emit("Relu", {call.part(kOp.characters, {x, other})});
  } else {
    call.emit(kOp.characters, {x, other});
  }
  return true;
}

bool clip(EagerCall& call, double low, double high) {
  call.need(11, "Clip");
  call.emit("Clip", {call.input(0), std::isinf(low) ? "" : call.scalar("min", low),
                     std::isinf(high) ? "" : call.scalar("max", high)});
  return true;
}

bool relu6(EagerCall& call) { return clip(call, 0.0, 6.0); }
bool hardtanh(EagerCall& call) {
  return clip(call, call.setting("min_val", -1.0), call.setting("max_val", 1.0));
}
bool clamp(EagerCall& call) {
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  return clip(call, call.setting("min", -kUnbounded), call.setting("max", kUnbounded));
}

bool threshold(EagerCall& call) {
  const std::string x = call.input(0);
  const std::string above =
      call.part("Greater", {x, call.scalar("threshold", call.setting("threshold", 0.0))});
  call.need(9, "Where");
  call.emit("Where", {above, x, call.scalar("value", call.setting("value", 0.0))});
  return true;
}

bool leaky_relu(EagerCall& call) {
  call.emit("LeakyRelu", {call.input(0)}, {{"alpha", call.number("negative_slope", 0.01)}});
  return true;
}

bool hardsigmoid(EagerCall& call) {
  call.emit("HardSigmoid", {call.input(0)}, {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
  return true;
}

bool hardswish(EagerCall& call) {
  if (call.opset() >= 14) return same<"HardSwish", 14>(call);
  const std::string x = call.input(0);
  const std::string gate = call.part("HardSigmoid", {x}, {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
  call.emit("Mul", {x, gate});
  return true;
}

bool silu(EagerCall& call) {
  const std::string x = call.input(0);
  call.emit("Mul", {x, call.part("Sigmoid", {x})});
  return true;
}

bool gelu(EagerCall& call) {
  const std::string approximate = call.setting("approximate", std::string("none"));
  const std::string x = call.input(0);
  if (call.opset() >= 20) {
    call.emit("Gelu", {x}, {{"approximate", approximate}});
    return true;
  }
  std::string gate;
  if (approximate == "none") {
    call.need(9, "Erf");
    gate = call.part("Erf", {call.part("Div", {x, call.scalar("sqrt2", std::numbers::sqrt2)})});
  } else {
    // 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    const std::string cube = call.part("Mul", {call.part("Mul", {x, x}), x});
    const std::string sum =
        call.part("Add", {x, call.part("Mul", {cube, call.scalar("cubic", 0.044715)})});
    gate = call.part(
        "Tanh",
        {call.part("Mul", {sum, call.scalar("factor", std::sqrt(2.0 * std::numbers::inv_pi))})});
  }
  const std::string shifted = call.part("Add", {gate, call.scalar("one", 1.0)});
  call.emit("Mul", {call.part("Mul", {x, shifted}), call.scalar("half", 0.5)});
  return true;
}

bool elu(EagerCall& call) {
  if (call.setting("elu_scale", 1.0) != 1.0 || call.setting("input_scale", 1.0) != 1.0) {
    return call.refuse("ONNX has no scales of Elu");
  }
  call.emit("Elu", {call.input(0)}, {{"alpha", call.number("alpha", 1.0)}});
  return true;
}

bool celu(EagerCall& call) {
  call.need(12, "Celu");
  call.emit("Celu", {call.input(0)}, {{"alpha", call.number("alpha", 1.0)}});
  return true;
}

bool softplus(EagerCall& call) {
  const double beta = call.setting("beta", 1.0);
  if (beta == 1.0) return same<"Softplus">(call);
  const std::string factor = call.scalar("beta", beta);
  const std::string y = call.part("Softplus", {call.part("Mul", {call.input(0), factor})});
  call.emit("Div", {y, factor});
  return true;
}

bool mish(EagerCall& call) {
  if (call.opset() >= 18) return same<"Mish", 18>(call);
  const std::string x = call.input(0);
  call.emit("Mul", {x, call.part("Tanh", {call.part("Softplus", {x})})});
  return true;
}

bool logsigmoid(EagerCall& call) {
  call.emit("Neg", {call.part("Softplus", {call.part("Neg", {call.input(0)})})});
  return true;
}

bool hardshrink(EagerCall& call) {
  call.need(9, "Shrink");
  call.emit("Shrink", {call.input(0)}, {{"lambd", call.number("lambd", 0.5)}, {"bias", 0.0F}});
  return true;
}

template <Text kOp>
bool softmax(EagerCall& call) {
  call.need(13, kOp.characters);
  call.emit(kOp.characters, {call.input(0)}, {{"axis", call.setting("dim", std::int64_t{-1})}});
  return true;
}

/// One slope for each channel, against [N, C, ...].
bool prelu(EagerCall& call) {
  const std::int64_t rank = call.rank(0);
  const Dims slopes = call.sizes(1);
  std::string slope = call.input(1);
  if (slopes.size() == 1 && slopes[0] > 1 && rank > 2) {
    Dims sizes = Dims::filled(static_cast<std::size_t>(rank - 1), 1);
    sizes[0] = slopes[0];
    slope = call.part("Reshape", {slope, call.integers("sizes", sizes.to_vector())});
  }
  call.emit("PRelu", {call.input(0), slope});
  return true;
}

bool identity(EagerCall& call) {
  call.emit("Identity", {call.input(0)});
  return true;
}

bool isinf(EagerCall& call) {
  const std::string signs = call.setting("signs", std::string("both"));
  call.need(10, "IsInf");
  call.emit("IsInf", {call.input(0)},
            {{"detect_positive", std::int64_t{signs == "both" || signs == "positive"}},
             {"detect_negative", std::int64_t{signs == "both" || signs == "negative"}}});
  return true;
}

bool logical_not(EagerCall& call) {
  std::string x = call.input(0);
  if (call.type(0) != OnnxType::Bool) {
    x = call.part("Cast", {x}, {{"to", static_cast<std::int64_t>(OnnxType::Bool)}});
  }
  call.emit("Not", {x});
  return true;
}

/// Against a tensor or the number `other`.
template <Text kOp, std::int64_t kSince, bool kNot = false>
bool compare(EagerCall& call) {
  if (!call.has(0)) return call.refuse("no argument");
  const std::string other = call.is_set("other") ? call.scalar("other", call.setting("other", 0.0))
                                                 : promoted(call, 1, call.type(0));
  call.need(kSince, kOp.characters);
  if (kNot) {
    call.emit("Not", {call.part(kOp.characters, {call.input(0), other})});
  } else {
    call.emit(kOp.characters, {call.input(0), other});
  }
  return true;
}

bool where(EagerCall& call) {
  call.need(9, "Where");
  call.emit("Where", {call.input(2), call.input(0), call.input(1)});
  return true;
}

bool masked_fill(EagerCall& call) {
  call.need(9, "Where");
  call.emit("Where",
            {call.input(1), call.scalar("value", call.setting("value", 0.0)), call.input(0)});
  return true;
}

bool cast(EagerCall& call) {
  OnnxAttributes attributes{{"to", static_cast<std::int64_t>(call.result_type())}};
  const bool is_byte =
      call.result_type() == OnnxType::Float8E4M3FN || call.result_type() == OnnxType::Float8E5M2;
  if (is_byte) {
    attributes["saturate"] = std::int64_t{call.setting("saturate", true)};
    call.need(19, "Cast to 8-bit floats");
  }
  call.emit("Cast", {call.input(0)}, std::move(attributes));
  return true;
}

bool pow(EagerCall& call) {
  call.need(13, "Pow");
  call.emit("Pow", {call.input(0), call.input(1)});
  return true;
}

/// The remainder has the sign of the first argument.
bool fmod(EagerCall& call) {
  call.need(10, "Mod");
  call.emit("Mod", {call.input(0), call.input(1)}, {{"fmod", std::int64_t{1}}});
  return true;
}

/// -inf where a position is left out, 0 where it takes part.
bool additive_mask(EagerCall& call) {
  const bool left_out = call.setting("left_out", true);
  const OnnxType type = call.result_type();
  const std::string minus =
      call.scalar("minus_infinity", -std::numeric_limits<double>::infinity(), type);
  const std::string zero = call.scalar("zero", 0.0, type);
  call.need(9, "Where");
  call.emit("Where", {call.input(0), left_out ? minus : zero, left_out ? zero : minus});
  return true;
}

constexpr EagerRow kRows[] = {
    {"relu", same<"Relu">},
    {"relu_", same<"Relu">},
    {"relu6", relu6},
    {"clamp", clamp},
    {"hardtanh", hardtanh},
    {"threshold", threshold},
    {"leaky_relu", leaky_relu},
    {"hardsigmoid", hardsigmoid},
    {"sigmoid", same<"Sigmoid">},
    {"tanh", same<"Tanh">},
    {"gelu", gelu},
    {"hardswish", hardswish},
    {"silu", silu},
    {"elu", elu},
    {"celu", celu},
    {"softplus", softplus},
    {"mish", mish},
    {"selu", same<"Selu">},
    {"logsigmoid", logsigmoid},
    {"softsign", same<"Softsign">},
    {"hardshrink", hardshrink},
    {"dropout", identity},
    {"clone", identity},
    {"softmax", softmax<"Softmax">},
    {"log_softmax", softmax<"LogSoftmax">},
    {"prelu", prelu},
    {"add", arithmetic<"Add">},
    {"sub", arithmetic<"Sub">},
    {"mul", arithmetic<"Mul">},
    {"div", arithmetic<"Div">},
    {"add_relu", arithmetic<"Add", true>},
    {"mul_relu", arithmetic<"Mul", true>},
    {"add_scalar", with_scalar<"Add">},
    {"mul_scalar", with_scalar<"Mul">},
    {"add_scalar_relu", with_scalar<"Add", true>},
    {"mul_scalar_relu", with_scalar<"Mul", true>},
    {"minimum", arithmetic<"Min">},
    {"maximum", arithmetic<"Max">},
    {"pow", pow},
    {"fmod", fmod},
    {"neg", same<"Neg">},
    {"abs", same<"Abs">},
    {"sign", same<"Sign", 9>},
    {"reciprocal", same<"Reciprocal">},
    {"sqrt", same<"Sqrt">},
    {"exp", same<"Exp">},
    {"log", same<"Log">},
    {"erf", same<"Erf", 9>},
    {"floor", same<"Floor">},
    {"ceil", same<"Ceil">},
    {"round", same<"Round", 11>},
    {"sin", same<"Sin", 7>},
    {"cos", same<"Cos", 7>},
    {"tan", same<"Tan", 7>},
    {"asin", same<"Asin", 7>},
    {"acos", same<"Acos", 7>},
    {"atan", same<"Atan", 7>},
    {"sinh", same<"Sinh", 9>},
    {"cosh", same<"Cosh", 9>},
    {"asinh", same<"Asinh", 9>},
    {"acosh", same<"Acosh", 9>},
    {"atanh", same<"Atanh", 9>},
    {"isnan", same<"IsNaN", 9>},
    {"isinf", isinf},
    {"bitwise_and", same<"BitwiseAnd", 18>},
    {"bitwise_or", same<"BitwiseOr", 18>},
    {"bitwise_xor", same<"BitwiseXor", 18>},
    {"bitwise_not", same<"BitwiseNot", 18>},
    {"logical_not", logical_not},
    {"eq", compare<"Equal", 7>},
    {"ne", compare<"Equal", 7, true>},
    {"lt", compare<"Less", 7>},
    {"le", compare<"LessOrEqual", 12>},
    {"gt", compare<"Greater", 7>},
    {"ge", compare<"GreaterOrEqual", 12>},
    {"where", where},
    {"masked_fill", masked_fill},
    {"masked_fill_", masked_fill},
    {"cast", cast},
    {"additive_mask", additive_mask},
};

}  // namespace

std::span<const EagerRow> eager_pointwise() { return kRows; }

}  // namespace quanta::graph::detail
