#include "quanta/ops/rnn_dynamic.h"

#include <utility>

#include "quanta/ops/cpu/linear_dynamic.h"
#include "quanta/runtime/check.h"

namespace quanta::quantized {
namespace {

class Int8Product final : public HiddenProduct {
 public:
  Int8Product(LinearPackedParams packed, ReduceRange reduce_range)
      : packed_(std::move(packed)), reduce_range_(reduce_range) {}
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    cpu::linear_dynamic_rows(h, rows, packed_.impl(), reduce_range_, Fusion::None, out);
  }

 private:
  LinearPackedParams packed_;
  ReduceRange reduce_range_;
};

class Float16Product final : public HiddenProduct {
 public:
  explicit Float16Product(LinearPackedParamsFp16 packed) : packed_(std::move(packed)) {}
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    cpu::linear_dynamic_fp16_rows(h, rows, packed_.impl(), Fusion::None, out);
  }

 private:
  LinearPackedParamsFp16 packed_;
};

}  // namespace

std::shared_ptr<const HiddenProduct> dynamic_hidden_product(const LinearPackedParams& packed,
                                                            ReduceRange reduce_range) {
  QUANTA_CHECK(packed.defined(),
               "dynamic_hidden_product: packed: expected a packed weight, got none");
  return std::make_shared<Int8Product>(packed, reduce_range);
}

std::shared_ptr<const HiddenProduct> dynamic_hidden_product(const LinearPackedParamsFp16& packed) {
  QUANTA_CHECK(packed.defined(),
               "dynamic_hidden_product: packed: expected a packed weight, got none");
  return std::make_shared<Float16Product>(packed);
}

}  // namespace quanta::quantized
