#include "quanta/observers/collector.h"

#include <typeinfo>

#include "quanta/runtime/check.h"

namespace quanta {

void Collector::update(const Tensor& x) {
  for (;;) {
    const Digest found = digest(x);
    if (found.is_empty()) return;
    // Of threads that come in each other's way one has always got on.
    if (!absorb(found)) continue;
    listener_(found);
    return;
  }
}

Digest Collector::digest(const Tensor& /*x*/) const { throw_without_digests("digest"); }
bool Collector::absorb(const Digest& /*digest*/) { throw_without_digests("absorb"); }
bool Collector::join(Digest& /*digest*/, const Digest& /*next*/) const { return false; }
void Collector::move_frame(const ValueRange& /*range*/) { throw_without_digests("move_frame"); }

void Collector::throw_without_digests(std::string_view function) const {
  throw UnsupportedError(with_module_path(fmt::format(
      "{}: {}: expected a collector whose update has two halves (digest, absorb), this class has "
      "none",
      name(), function)));
}

void Collector::save_gathered(StateDict& state, const std::string& prefix) const {
  save_state(state, prefix);
}
void Collector::load_gathered(const StateDict& state, const std::string& prefix) {
  load_state(state, prefix);
}

void Collector::merge(const Collector& /*other*/) {
  throw UnsupportedError(with_module_path(
      fmt::format("{}: merge: expected a collector that only gathers statistics, this class cannot "
                  "be merged",
                  name())));
}

void Collector::save_state(StateDict& /*state*/, const std::string& /*prefix*/) const {}
void Collector::load_state(const StateDict& /*state*/, const std::string& /*prefix*/) {}

void Collector::require_same_kind(const Collector& other) const {
  QUANTA_CHECK(typeid(*this) == typeid(other), "{}: merge: expected a {}, got a {}", name(), name(),
               other.name());
  const Settings ours = settings();
  const Settings theirs = other.settings();
  QUANTA_CHECK(ours == theirs, "{}: merge: expected the same settings as {}, got {}", name(),
               call_text(name(), ours), call_text(name(), theirs));
}

void Collector::require_floating(const Tensor& x, Devices devices) const {
  QUANTA_CHECK(x.defined(), "{}: x: expected a floating tensor, got an undefined one", name());
  QUANTA_CHECK(x.is_floating_point(), "{}: x: expected a floating tensor, got {}", name(),
               x.dtype());
  QUANTA_SUPPORTED(devices == Devices::All || x.device().is_cpu(),
                   "{}: x: expected a tensor on cpu (the class has no kernel for CUDA), got one on "
                   "{}: copy it with cpu()",
                   name(), to_string(x.device()));
}

}  // namespace quanta
