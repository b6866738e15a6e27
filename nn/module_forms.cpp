#include "quanta/nn/module_forms.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <typeinfo>

#include "quanta/nn/detail/forms.h"
#include "quanta/runtime/check.h"

namespace quanta::nn {
namespace {

ModuleForms own_forms() {
  ModuleForms forms;
  detail::add_float_forms(forms);
  detail::add_fused_forms(forms);
  detail::add_quantizable_forms(forms);
  detail::add_qat_forms(forms);
  detail::add_quantized_forms(forms);
  detail::add_dynamic_forms(forms);
  detail::add_weight_only_forms(forms);
  detail::add_reference_forms(forms);
  return forms;
}

// Every state the table ever had: readers keep references without a lock. Registering is rare.
class History {
 public:
  History() : latest_(&tables_.emplace_back(own_forms())) {}

  const ModuleForms& latest() const noexcept { return *latest_.load(std::memory_order_acquire); }

  template <typename Change>
  void change(const Change& change) {
    const std::scoped_lock lock(mutex_);
    ModuleForms changed = latest();
    change(changed);
    latest_.store(&tables_.emplace_back(std::move(changed)), std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::deque<ModuleForms> tables_;
  std::atomic<const ModuleForms*> latest_;
};

History& history() {
  static History instance;
  return instance;
}

template <typename Map>
const typename Map::mapped_type& setting(const Map& map, const std::string& name) {
  const auto found = map.find(name);
  QUANTA_CHECK(found != map.end(), "settings: expected '{}', got none", name);
  return found->second;
}

bool is_of_row(const Module& module, const ModuleForm& row) {
  return row.type == typeid(module) && (!row.matches || row.matches(module));
}

}  // namespace

std::string_view to_string(Form form) {
  switch (form) {
    case Form::Float:
      return "Float";
    case Form::Fused:
      return "Fused";
    case Form::Observed:
      return "Observed";
    case Form::Qat:
      return "Qat";
    case Form::Quantized:
      return "Quantized";
    case Form::Dynamic:
      return "Dynamic";
    case Form::WeightOnly:
      return "WeightOnly";
    case Form::Reference:
      return "Reference";
  }
  return "unknown";
}

double FormSettings::number(const std::string& name) const { return setting(numbers, name); }

const std::string& FormSettings::word(const std::string& name) const {
  return setting(words, name);
}

const Tensor* SavedForm::find(std::string_view name) const {
  return state_->find(prefix_ + std::string(name));
}

Tensor SavedForm::get(std::string_view name) const {
  const Tensor* found = find(name);
  return found == nullptr ? Tensor() : *found;
}

void SavedForm::taken(std::string_view name, const Tensor& tensor) const {
  if (tensor.defined()) state_->set(prefix_ + std::string(name), tensor);
}

DType SavedForm::dtype() const {
  const auto found = settings_.words.find("dtype");
  if (found == settings_.words.end()) return DType::QUInt8;
  const std::optional<DType> dtype = dtype_from_torch_name(found->second);
  QUANTA_CHECK(dtype.has_value(), "settings: dtype: expected a dtype's name, got '{}'",
               found->second);
  return *dtype;
}

ModuleForms& ModuleForms::add(ModuleForm row) {
  QUANTA_CHECK(!row.name.empty() && row.type != typeid(void),
               "ModuleForms.add: row: expected a name and a type, got '{}'", row.name);
  QUANTA_CHECK(find(row.name) == nullptr,
               "ModuleForms.add: row: expected a name that no other row has, got '{}' again",
               row.name);
  const bool is_made = row.form != Form::Float && row.form != Form::Fused;
  QUANTA_CHECK(!is_made || (row.make && !row.sources.empty()),
               "ModuleForms.add: row: expected sources of '{}' and a function that makes one",
               row.name);
  rows_.push_back(std::move(row));
  return *this;
}

ModuleForms& ModuleForms::add_fusion(FusionRule rule) {
  QUANTA_CHECK(rule.sequence.size() >= 2 && rule.fuse,
               "ModuleForms.add_fusion: rule: expected two or more classes and a function, got {} "
               "classes",
               rule.sequence.size());
  fusions_.push_back(std::move(rule));
  return *this;
}

const ModuleForm* ModuleForms::find(const Module& module) const {
  const auto found = std::find_if(rows_.rbegin(), rows_.rend(),
                                  [&](const ModuleForm& row) { return is_of_row(module, row); });
  return found == rows_.rend() ? nullptr : &*found;
}

const ModuleForm* ModuleForms::find(std::string_view name) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const ModuleForm& row) { return row.name == name; });
  return found == rows_.end() ? nullptr : &*found;
}

Form ModuleForms::form(const Module& module) const {
  const ModuleForm* row = find(module);
  return row == nullptr ? Form::Float : row->form;
}

const FloatKind& ModuleForms::kind(const Module& module) const {
  static const FloatKind usual;
  const ModuleForm* row = find(module);
  if (row == nullptr) return usual;
  if (row->form != Form::Qat) return row->kind;
  const auto source = std::find_if(rows_.rbegin(), rows_.rend(), [&](const ModuleForm& other) {
    return other.type == row->sources.front();
  });
  return source == rows_.rend() ? usual : source->kind;
}

const ModuleForms& module_forms() { return history().latest(); }

void register_module_form(ModuleForm row) {
  history().change([&](ModuleForms& forms) { forms.add(std::move(row)); });
}

void register_fusion(FusionRule rule) {
  history().change([&](ModuleForms& forms) { forms.add_fusion(std::move(rule)); });
}

}  // namespace quanta::nn
