#include "quanta/ops/cpu/onednn/onednn.h"

#include <omp.h>

#include <cstring>
#include <set>
#include <string>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/lasting_memory.h"
#include "quanta/runtime/detail/openmp.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu::onednn {
namespace {

class GrowingBuffer {
 public:
  GrowingBuffer() = default;
  GrowingBuffer(const GrowingBuffer&) = delete;
  GrowingBuffer& operator=(const GrowingBuffer&) = delete;
  ~GrowingBuffer() { release(); }

  std::byte* at_least(std::size_t bytes) {
    if (bytes > bytes_) {
      release();
      data_ = static_cast<std::byte*>(allocate(bytes));
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) deallocate(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// All that a reordered weight's bytes depend on, besides its codes. Descriptors have parts that
/// cannot be asked for (scales of kernels without VNNI): these follow from the others, the version
/// and the instructions. Empty for layouts that are not of blocks.
std::string layout_name(const Md& from, const Md& to) {
  if (to.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  const dnnl_version_t& version = *dnnl_version();
  const auto list = [](const std::vector<dnnl::memory::dim>& values) {
    return fmt::format("{}", fmt::join(values, "x"));
  };
  return fmt::format("onednn {}.{}.{}, isa {:x}, type {}, {} of {}, in {} of {}, by {} of {}",
                     version.major, version.minor, version.patch,
                     static_cast<unsigned>(dnnl_get_effective_cpu_isa()),
                     static_cast<int>(to.get_data_type()), list(from.get_dims()),
                     list(from.get_strides()), list(to.get_padded_dims()), list(to.get_strides()),
                     list(to.get_inner_blks()), list(to.get_inner_idxs()));
}

}  // namespace

void throw_backend_error(std::string_view call, const dnnl::error& error) {
  throw BackendError(with_module_path(fmt::format("oneDNN: {}: {} (status {})", call, error.message,
                                                  static_cast<int>(error.status))));
}

const dnnl::engine& engine() {
  static_cast<void>(get_num_threads());  // oneDNN asks OpenMP for the thread's number
  static const dnnl::engine instance =
      checked("engine", [] { return dnnl::engine(dnnl::engine::kind::cpu, 0); });
  return instance;
}

dnnl::stream& stream() {
  detail::note_openmp();
  thread_local dnnl::stream instance = checked("stream", [] { return dnnl::stream(engine()); });
  return instance;
}

std::byte* thread_buffer(Buffer use, std::size_t bytes) {
  thread_local std::array<GrowingBuffer, 4> buffers;
  return buffers[static_cast<std::size_t>(use)].at_least(bytes);
}

ThreadScope::ThreadScope(int threads) noexcept
    : before_(omp_get_max_threads()), changed_(before_ != threads) {
  if (changed_) omp_set_num_threads(threads);
}

ThreadScope::~ThreadScope() {
  if (changed_) omp_set_num_threads(before_);
}

dnnl::memory floats(const Md& desc, const float* values) {
  dnnl::memory memory = checked("memory", [&] { return dnnl::memory(desc, engine()); });
  std::memcpy(memory.get_data_handle(), values, desc.get_size());
  return memory;
}

dnnl::memory PackedWeights::in_layout(const Md& desc) const {
  const std::lock_guard lock(mutex_);
  for (const Packed& packed : packed_) {
    if (packed.memory.get_desc() == desc) return packed.memory;
  }
  const std::shared_ptr<const std::byte> bytes = packed(desc);
  return checked("memory", [&] {
    // oneDNN takes addresses as non-const; weights are only read.
    dnnl::memory memory(desc, engine(), const_cast<std::byte*>(bytes.get()));
    packed_.push_back({bytes, memory});
    return memory;
  });
}

std::shared_ptr<const std::byte> PackedWeights::packed(const Md& desc) const {
  const auto pack = [&](std::byte* to) {
    checked("reorder of weights", [&] {
      dnnl::memory from(source_desc_, engine(), const_cast<void*>(source_));
      dnnl::memory target(desc, engine(), to);
      dnnl::reorder(from, target).execute(stream(), from, target);
      stream().wait();
    });
  };
  const std::string layout = forms_ == nullptr ? std::string() : layout_name(source_desc_, desc);
  if (!layout.empty()) return forms_->get(layout, desc.get_size(), pack);
  const std::shared_ptr<std::byte> bytes = detail::lasting_memory(desc.get_size());
  pack(bytes.get());
  return bytes;
}

std::string_view interned(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  const auto found = names.find(name);
  return found != names.end() ? *found : *names.emplace(name).first;
}

Executable::Executable(dnnl::primitive primitive, const dnnl::primitive_desc_base& descs,
                       std::vector<Argument> constants, int threads)
    : primitive_(std::move(primitive)),
      src_(descs.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SRC)),
      dst_(descs.query_md(dnnl::query::exec_arg_md, DNNL_ARG_DST)),
      scratchpad_(descs.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD)),
      scratchpad_bytes_(scratchpad_.get_size()),
      constants_(std::move(constants)),
      threads_(threads),
      name_(interned(fmt::format("onednn:{}", descs.impl_info_str()))) {}

Executable::~Executable() {
  for (auto& slot : free_) std::unique_ptr<Binding>(slot.load(std::memory_order_acquire)).reset();
}

std::unique_ptr<Executable::Binding> Executable::take() const {
  for (auto& slot : free_) {
    if (Binding* found = slot.exchange(nullptr, std::memory_order_acq_rel)) {
      return std::unique_ptr<Binding>(found);
    }
  }
  return checked("memory", [&] {
    auto binding = std::make_unique<Binding>();
    binding->src = dnnl::memory(src_, engine(), DNNL_MEMORY_NONE);
    binding->dst = dnnl::memory(dst_, engine(), DNNL_MEMORY_NONE);
    binding->arguments = {{DNNL_ARG_SRC, binding->src.get()}, {DNNL_ARG_DST, binding->dst.get()}};
    if (scratchpad_bytes_ > 0) {
      binding->scratchpad = dnnl::memory(scratchpad_, engine(), DNNL_MEMORY_NONE);
      binding->arguments.push_back({DNNL_ARG_SCRATCHPAD, binding->scratchpad.get()});
    }
    for (const Argument& constant : constants_) {
      binding->arguments.push_back({constant.index, constant.memory.get()});
    }
    return binding;
  });
}

void Executable::give(std::unique_ptr<Binding> binding) const noexcept {
  for (auto& slot : free_) {
    Binding* expected = nullptr;
    if (slot.compare_exchange_strong(expected, binding.get(), std::memory_order_acq_rel)) {
      static_cast<void>(binding.release());
      return;
    }
  }
}

void Executable::run(const void* src, void* dst) const {
  std::unique_ptr<Binding> binding = take();
  binding->src.set_data_handle(const_cast<void*>(src));
  binding->dst.set_data_handle(dst);
  if (scratchpad_bytes_ > 0) {
    binding->scratchpad.set_data_handle(thread_buffer(Buffer::Scratchpad, scratchpad_bytes_));
  }
  {
    const ThreadScope threads(threads_);
    const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream().get(),
                                                        static_cast<int>(binding->arguments.size()),
                                                        binding->arguments.data());
    if (status != dnnl_success) {
      throw_backend_error(name_, dnnl::error(status, "execution failed"));
    }
  }
  give(std::move(binding));
}

}  // namespace quanta::cpu::onednn
