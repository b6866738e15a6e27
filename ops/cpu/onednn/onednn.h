#pragma once

// Private: where oneDNN is called. Its errors become BackendError with the failed call in the text.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/runtime/detail/packed_forms.h"

namespace quanta::cpu::onednn {

using Md = dnnl::memory::desc;
using DataType = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

const dnnl::engine& engine();
/// The calling thread's, to run something on it at once.
dnnl::stream& stream();

[[noreturn]] void throw_backend_error(std::string_view call, const dnnl::error& error);

/// Runs `body`; what oneDNN throws becomes a BackendError that names `call`.
template <typename Body>
auto checked(std::string_view call, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    throw_backend_error(call, error);
  }
}

/// The calling thread's buffers, one for each use: aligned to 64 bytes, growing, valid until the
/// thread's next request for the same use.
enum class Buffer : std::uint8_t { Scratchpad, Padded, Sums, Codes };
std::byte* thread_buffer(Buffer use, std::size_t bytes);

/// The threads that OpenMP, hence oneDNN, uses on this thread while the scope lives.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) noexcept;
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
  bool changed_;
};

/// Memory of oneDNN's own that holds a copy of these numbers.
dnnl::memory floats(const Md& desc, const float* values);

/// Weights in the layouts that primitives asked for, each made once. Safe from many threads.
class PackedWeights {
 public:
  /// `source` is the weight in `source_desc`'s plain layout; it has to outlive this object.
  PackedWeights(Md source_desc, const void* source)
      : source_desc_(std::move(source_desc)), source_(source) {}
  /// The same for int8 weights, whose layouts are looked for and kept in `forms`; these have to
  /// outlive this object as well.
  PackedWeights(Md source_desc, const void* source, detail::PackedForms& forms)
      : source_desc_(std::move(source_desc)), source_(source), forms_(&forms) {}
  dnnl::memory in_layout(const Md& desc) const;

 private:
  std::shared_ptr<const std::byte> packed(const Md& desc) const;
  struct Packed {
    std::shared_ptr<const std::byte> bytes;
    dnnl::memory memory;
  };

  Md source_desc_;
  const void* source_;
  detail::PackedForms* forms_ = nullptr;
  mutable std::vector<Packed> packed_;
  mutable std::mutex mutex_;
};

/// A name that lives as long as the process.
std::string_view interned(std::string_view name);

/// A primitive with its constant arguments. run() is safe from many threads.
class Executable {
 public:
  struct Argument {
    int index;
    dnnl::memory memory;
  };

  Executable(dnnl::primitive primitive, const dnnl::primitive_desc_base& descs,
             std::vector<Argument> constants, int threads);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void run(const void* src, void* dst) const;
  std::string_view name() const noexcept { return name_; }

 private:
  // Memory objects carry the address that a call works on, so that two calls at once need two sets.
  struct Binding {
    dnnl::memory src, dst, scratchpad;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  std::unique_ptr<Binding> take() const;
  void give(std::unique_ptr<Binding> binding) const noexcept;

  dnnl::primitive primitive_;
  Md src_, dst_, scratchpad_;
  std::size_t scratchpad_bytes_;
  std::vector<Argument> constants_;
  int threads_;
  std::string_view name_;
  mutable std::array<std::atomic<Binding*>, 4> free_{};
};

}  // namespace quanta::cpu::onednn
