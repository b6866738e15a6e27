// An operation and a module of one's own: squared ReLU (So et al., Primer), max(x, 0)^2, on floats
// with a gradient and on codes. It trains, converts, freezes, shows in the profiler and is saved
// within its network as Quanta's own do.

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "quanta/quanta.h"
#include "support/help.h"

namespace {
using namespace quanta;

struct SquaredReLU : Op<SquaredReLU> {
  static constexpr std::string_view kName = "my::squared_relu";
  static constexpr ArgumentCount kArguments{1};
  double scale = 1.0;  // of a result of codes
  std::int64_t zero_point = 0;

  SquaredReLU() = default;
  SquaredReLU(double step, std::int64_t zero) : scale(step), zero_point(zero) {}

  // What is taken and what comes out; run() gives the result its memory.
  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::Float32, DType::QUInt8});
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), in[0].dtype(), Quantizer::per_tensor(scale, zero_point));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].is_quantized()) {  // through floats; a table of 256 codes would be faster
      const Tensor squares = run(SquaredReLU{}, dequantize(in[0]));
      copy_result(quantize_per_tensor(squares, scale, zero_point, DType::QUInt8), out[0]);
      return "dequantize, square, quantize";
    }
    const auto* x = in[0].data<float>();
    auto* y = out[0].mutable_data<float>();
    for (std::int64_t i = 0; i < in[0].numel(); ++i) y[i] = x[i] > 0.0F ? x[i] * x[i] : 0.0F;
    return "scalar";
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(1); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {mul(context.grad(), mul_scalar(relu(context.input(0)), 2.0))};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<SquaredReLU, &SquaredReLU::scale>("scale"),
                                       attribute<SquaredReLU, &SquaredReLU::zero_point>("zero")};
    return kTable;
  }
};

struct Layer : nn::Module {
  Tensor forward(const Tensor& x) const override { return run(SquaredReLU{}, x); }
};

struct QuantizedLayer : nn::quantized::OutputQuantized {  // keeps and saves scale and zero point
  QuantizedLayer(double step, std::int64_t zero) : OutputQuantized(step, zero) {}
  static std::shared_ptr<Module> from_float(const Module& module) {
    const ObservedQParams qparams = module.activation_post_process()->calculate_qparams();
    return nn::make_module<QuantizedLayer>(qparams.scale.item(), 0);
  }
  Tensor forward(const Tensor& x) const override { return run(SquaredReLU{scale, zero_point}, x); }
};

nn::Sequential make_network() {
  const nn::Linear linear({.in_features = 8, .out_features = 8});
  return nn::Sequential{nn::QuantStub(), linear, Layer(), nn::DeQuantStub()};
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "custom_op\n"
      "An operation and a module of one's own: trained, quantized, frozen, saved and loaded.";
  if (quanta::examples::asked_for_help(argc, argv, kUsage)) return 0;
  // Once, at the start: files and tools then know both by name.
  static constexpr std::array kTypes{DType::Float32, DType::QUInt8};
  register_operation({.name = SquaredReLU::kName, .header = "custom_op.cpp", .dtypes = kTypes},
                     [](DType t) { return sample_call(SquaredReLU{}, {sample_tensor({8}, t)}); });
  nn::register_module_form(nn::form_of<QuantizedLayer, Layer>(nn::Form::Quantized, "my.Layer"));

  nn::Sequential net = make_network();
  const Tensor x = randn({64, 8});
  net.requires_grad_();
  sum(net(x)).backward();  // the gradient goes through the operation
  std::printf("gradients: %s\n", to_string(net.parameters()[1].grad()).c_str());

  net.eval();
  const auto prepared = prepare(net, get_default_qconfig());
  prepared(x);
  const auto int8 = convert(prepared);
  const FrozenModel frozen = freeze(int8, x);
  Profiler profiler;
  const Tensor y = frozen(x);
  for (const ProfileEvent& event : profiler.events()) std::printf("%s\n", event.name.c_str());
  const auto file = std::filesystem::temp_directory_path() /
                    ("quanta_custom_op_" + std::to_string(::getpid()) + ".safetensors");
  save_model(int8, file);
  nn::Sequential loaded = make_network();
  load_model(loaded, file);
  std::filesystem::remove(file);
  const bool same = loaded(x).equal(int8(x)) && y.equal(int8(x));
  std::printf("%ssaved, loaded and frozen: %s bits\n", frozen.to_string().c_str(),
              same ? "the same" : "other");
  return same ? 0 : 1;
}
