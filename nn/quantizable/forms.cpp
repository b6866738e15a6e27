// The rows of the modules that prepare puts in the place of layers that it cannot look into.

#include "quanta/nn/detail/forms.h"
#include "quanta/nn/detail/attention_form.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"

namespace quanta::nn::detail {
namespace {

namespace qa = nn::quantizable;

template <qa::GateForm kForm>
ModuleForm lstm_row(std::string name) {
  ModuleForm row;
  row.name = std::move(name);
  row.form = Form::Observed;
  row.type = typeid(qa::LSTM);
  row.sources = {typeid(LSTM)};
  row.make = [](const Module& module) -> std::shared_ptr<Module> {
    return qa::LSTM::from_float(module, kForm);
  };
  row.by_default = kForm == qa::GateForm::Joined;
  row.matches = [](const Module& module) {
    return static_cast<const qa::LSTM&>(module).form() == kForm;
  };
  row.output = OutputObserver::None;
  return row;
}

}  // namespace

void add_quantizable_forms(ModuleForms& forms) {
  forms.add(lstm_row<qa::GateForm::Joined>("quantizable.LSTM"));
  forms.add(lstm_row<qa::GateForm::Split>("quantizable.LSTM of split gates"));
  ModuleForm attention = form_of<qa::MultiheadAttention, MultiheadAttention>(
      Form::Observed, "quantizable.MultiheadAttention");
  keep_attention_dtype(attention);
  attention.output = OutputObserver::None;
  forms.add(std::move(attention));
}

}  // namespace quanta::nn::detail
