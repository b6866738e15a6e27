#include "quanta/fusion/detail/report/capture.h"

#include <span>
#include <utility>

#include "quanta/nn/float_functional.h"
#include "quanta/runtime/check.h"

namespace quanta::reporting {
namespace {

// While it lives nothing is noted.
class Pause {
 public:
  explicit Pause(Capture& capture) : capture_(&capture), before_(capture.paused) {
    capture.paused = true;
  }
  ~Pause() { capture_->paused = before_; }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Capture* capture_;
  bool before_;
};

// Stands in the place of a FloatFunctional, which is not called by forward, so that no hook sees it.
class WatchedFunctional final : public nn::FloatFunctional {
 public:
  using Inputs = std::span<const Tensor>;

  WatchedFunctional(Capture& capture, std::string path, std::shared_ptr<nn::Module> inner)
      : capture_(&capture),
        path_(std::move(path)),
        inner_(std::dynamic_pointer_cast<FloatFunctional>(std::move(inner))) {}

  Tensor add(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::add);
  }
  Tensor mul(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::mul);
  }
  Tensor add_relu(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::add_relu);
  }
  Tensor matmul(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::matmul);
  }
  Tensor sub(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::sub);
  }
  Tensor div(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::div);
  }
  Tensor minimum(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::minimum);
  }
  Tensor maximum(const Tensor& lhs, const Tensor& rhs) const override {
    return binary(lhs, rhs, &FloatFunctional::maximum);
  }
  Tensor cat(std::span<const Tensor> tensors, std::int64_t dim) const override {
    return noted({tensors.begin(), tensors.end()},
                 [inner = inner_, dim](Inputs x) { return inner->cat(x, dim); });
  }
  Tensor neg(const Tensor& x) const override {
    return noted({x}, [inner = inner_](Inputs in) { return inner->neg(in[0]); });
  }
  Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options) const override {
    return noted({x}, [inner = inner_, dims, options](Inputs in) {
      return inner->mean(in[0], dims, options);
    });
  }
  Tensor softmax(const Tensor& x, std::int64_t dim) const override {
    return noted({x}, [inner = inner_, dim](Inputs in) { return inner->softmax(in[0], dim); });
  }
  Tensor add_scalar(const Tensor& x, double value) const override {
    return noted({x},
                 [inner = inner_, value](Inputs in) { return inner->add_scalar(in[0], value); });
  }
  Tensor mul_scalar(const Tensor& x, double value) const override {
    return noted({x},
                 [inner = inner_, value](Inputs in) { return inner->mul_scalar(in[0], value); });
  }

 private:
  using Binary = Tensor (FloatFunctional::*)(const Tensor& lhs, const Tensor& rhs) const;

  Tensor binary(const Tensor& lhs, const Tensor& rhs, Binary function) const {
    return noted({lhs, rhs}, [inner = inner_, function](Inputs in) {
      return ((*inner).*function)(in[0], in[1]);
    });
  }
  template <typename Function>
  Tensor noted(std::vector<Tensor> inputs, Function function) const {
    const Tensor result = function(inputs);
    if (!capture_->paused) {
      CapturedCall call{.inputs = std::move(inputs), .outputs = {result}};
      call.again = [function](Inputs in) { return std::vector<Tensor>{function(in)}; };
      capture_->note(path_, std::move(call));
    }
    return result;
  }

  Capture* capture_;
  std::string path_;
  std::shared_ptr<FloatFunctional> inner_;
};

void watch_module(nn::Module& module, const std::string& path, Capture& capture, bool keep_inputs) {
  module.register_forward_all_hook([&capture, path, keep_inputs](const nn::Module& called,
                                                                 std::span<const Tensor> inputs,
                                                                 std::span<const Tensor> outputs) {
    std::vector<Tensor> same(outputs.begin(), outputs.end());
    if (capture.paused) return same;
    CapturedCall call{.inputs = {}, .outputs = same};
    if (keep_inputs) {
      call.inputs.assign(inputs.begin(), inputs.end());
      call.again = [&capture, &called](std::span<const Tensor> in) {
        const Pause pause(capture);
        return called(in);
      };
    }
    capture.note(path, std::move(call));
    return same;
  });
}

}  // namespace

void Capture::note(const std::string& path, CapturedCall call) {
  std::vector<CapturedCall>& noted = calls[path];
  if (noted.empty()) order.push_back(path);
  noted.push_back(std::move(call));
}

void Capture::clear() {
  order.clear();
  calls.clear();
}

void capture_calls(nn::Module& model, Capture& capture, bool keep_inputs) {
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.path.empty()) continue;
    if (dynamic_cast<const nn::FloatFunctional*>(entry.module) == nullptr) {
      watch_module(*entry.module, entry.path, capture, keep_inputs);
      continue;
    }
    const std::size_t dot = entry.path.rfind('.');
    nn::Module& parent = dot == std::string::npos
                             ? model
                             : *model.get_submodule(std::string_view(entry.path).substr(0, dot));
    const std::string name = entry.path.substr(dot == std::string::npos ? 0 : dot + 1);
    parent.replace_child(name, std::make_shared<WatchedFunctional>(
                                   capture, entry.path, model.get_submodule(entry.path)));
  }
}

}  // namespace quanta::reporting
