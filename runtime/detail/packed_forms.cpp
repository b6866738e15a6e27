#include "quanta/runtime/detail/packed_forms.h"

#include <atomic>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/hash_bytes.h"
#include "quanta/runtime/detail/lasting_memory.h"
#include "quanta/runtime/warning.h"

namespace quanta::detail {
namespace {

std::atomic<std::int64_t> packed_count{0}, found_count{0};

thread_local std::shared_ptr<const SavedForms> current_forms;

/// The forms of all weights, by the tensors of their codes.
struct Registry {
  std::mutex mutex;
  std::map<const TensorImpl*, std::weak_ptr<const PackedForms>> forms;

  // Never destroyed: weights with static lifetime may go after the end of main.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

}  // namespace

std::uint64_t hash_codes(const Tensor& weight) {
  return hash_bytes({static_cast<const std::byte*>(weight.data_ptr()), weight.nbytes()});
}

std::uint64_t seal_form(std::uint64_t codes, const std::string& layout,
                        std::span<const std::byte> bytes) {
  return hash_bytes(bytes, hash_bytes(std::as_bytes(std::span(layout)), codes));
}

SavedForms::SavedForms(Tensor memory)
    : memory_(std::make_shared<const Tensor>(std::move(memory))) {}

void SavedForms::add(std::uint64_t codes, Form form) { forms_.emplace(codes, std::move(form)); }

std::shared_ptr<const std::byte> SavedForms::find(std::uint64_t codes, const std::string& layout,
                                                  std::size_t bytes) const {
  const auto [begin, end] = forms_.equal_range(codes);
  for (auto entry = begin; entry != end; ++entry) {
    const Form& form = entry->second;
    if (form.layout != layout || form.bytes.size() != bytes) continue;
    // A tool that wrote the file again may have moved them.
    if (reinterpret_cast<std::uintptr_t>(form.bytes.data()) % kFormAlignment != 0) continue;
    if (seal_form(codes, layout, form.bytes) == form.seal) return {memory_, form.bytes.data()};
    warn(
        fmt::format("load_model: packed weights ({}): expected the bytes that were saved, got "
                    "others: the file is damaged; the weight is packed again",
                    layout));
  }
  return nullptr;
}

SavedForms::Scope::Scope(std::shared_ptr<const SavedForms> forms) noexcept {
  current_forms = std::move(forms);
}
SavedForms::Scope::~Scope() { current_forms = nullptr; }

std::shared_ptr<const SavedForms> SavedForms::current() { return current_forms; }

std::shared_ptr<PackedForms> PackedForms::make(const Tensor& weight) {
  std::shared_ptr<PackedForms> result(new PackedForms(weight));
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.forms[weight.impl().get()] = result;
  return result;
}

std::shared_ptr<const PackedForms> PackedForms::of(const Tensor& weight) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.forms.find(weight.impl().get());
  return found == registry.forms.end() ? nullptr : found->second.lock();
}

PackedForms::PackedForms(const Tensor& weight)
    : weight_(weight), version_(weight.version()), saved_(SavedForms::current()) {
  if (saved_ != nullptr) codes_ = hash_codes(weight_);
}

PackedForms::~PackedForms() {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.forms.find(weight_.impl().get());
  if (found != registry.forms.end() && found->second.expired()) registry.forms.erase(found);
}

std::shared_ptr<const std::byte> PackedForms::get(const std::string& layout, std::size_t bytes,
                                                  const Pack& pack) {
  const std::lock_guard lock(mutex_);
  for (const Form& form : forms_) {
    if (form.layout == layout && form.bytes == bytes) return form.memory;
  }
  std::shared_ptr<const std::byte> memory;
  if (saved_ != nullptr && is_unchanged()) memory = saved_->find(codes_, layout, bytes);
  if (memory != nullptr) {
    ++found_count;
  } else {
    const std::shared_ptr<std::byte> fresh = lasting_memory(bytes);
    pack(fresh.get());
    memory = fresh;
    ++packed_count;
  }
  forms_.push_back({layout, memory, bytes});
  return memory;
}

std::vector<PackedForms::Form> PackedForms::all() const {
  const std::lock_guard lock(mutex_);
  return is_unchanged() ? forms_ : std::vector<Form>();
}

PackedForms::Counts PackedForms::counts() noexcept { return {packed_count, found_count}; }

}  // namespace quanta::detail
