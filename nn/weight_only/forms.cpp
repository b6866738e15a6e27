// The rows of the modules that quantize_weight_only puts in.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/detail/attention_form.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/weight_only/attention.h"
#include "quanta/nn/weight_only/linear.h"

namespace quanta::nn::detail {

// Bits and groups follow from the state.
void add_weight_only_forms(ModuleForms& forms) {
  ModuleForm linear = form_of<weight_only::Linear, Linear>(Form::WeightOnly, "WeightOnlyLinear");
  linear.make_weight_only = &weight_only::Linear::from_float;
  forms.add(std::move(linear));
  ModuleForm attention = form_of<weight_only::MultiheadAttention, MultiheadAttention>(
      Form::WeightOnly, "WeightOnlyMultiheadAttention");
  attention.make_weight_only = &weight_only::MultiheadAttention::from_float;
  keep_attention_dtype(attention);
  forms.add(std::move(attention));
}

}  // namespace quanta::nn::detail
