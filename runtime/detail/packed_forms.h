#pragma once

// Private: the packed forms of a weight: what kernels made of its codes, or find in the file that
// the codes come from.
//
// A form of a file is used when it was made of the same codes (by their hash), in the same layout
// (by its name, which says all that the bytes depend on besides the codes), has the size that the
// kernel expects and the bytes that were saved (by their hash). Otherwise the kernel packs.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Where a form begins: kernels read whole cache lines.
inline constexpr std::size_t kFormAlignment = 64;

/// The codes of a contiguous tensor as one number. Their order and their number count, the sizes of
/// the tensor do not.
std::uint64_t hash_codes(const Tensor& weight);
/// A number for the bytes of a form that stands beside them in a file. It depends on what they are
/// the form of, too.
std::uint64_t seal_form(std::uint64_t codes, const std::string& layout,
                        std::span<const std::byte> bytes);

/// The forms that a file holds. Safe from many threads.
class SavedForms {
 public:
  struct Form {
    std::string layout;
    std::span<const std::byte> bytes;
    std::uint64_t seal = 0;
  };
  /// `memory` holds the bytes of all forms. They are looked at when somebody asks for them.
  explicit SavedForms(Tensor memory);
  void add(std::uint64_t codes, Form form);

  /// The form in that layout, of so many bytes; null when there is none. Warns, and gives null, when
  /// there is one with other bytes than were saved.
  std::shared_ptr<const std::byte> find(std::uint64_t codes, const std::string& layout,
                                        std::size_t bytes) const;

  /// While it lives, weights that this thread makes look for their forms in `forms` first.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<const SavedForms> forms) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  /// Of the calling thread's scope, or null.
  static std::shared_ptr<const SavedForms> current();

 private:
  std::shared_ptr<const Tensor> memory_;
  std::multimap<std::uint64_t, Form> forms_;
};

/// The forms of one weight. Safe from many threads.
class PackedForms {
 public:
  struct Form {
    std::string layout;
    std::shared_ptr<const std::byte> memory;
    std::size_t bytes = 0;
  };
  using Pack = std::function<void(std::byte* to)>;

  /// `weight` is contiguous. Nobody else has this tensor for a weight.
  static std::shared_ptr<PackedForms> make(const Tensor& weight);
  /// Of the weight whose codes this tensor is; null when there is none.
  static std::shared_ptr<const PackedForms> of(const Tensor& weight);

  ~PackedForms();
  PackedForms(const PackedForms&) = delete;
  PackedForms& operator=(const PackedForms&) = delete;

  /// The form in that layout: the one that somebody asked for before, that of the file, or what
  /// `pack` writes into `bytes` bytes of lasting memory, which are not zeros. Throws what that
  /// throws.
  std::shared_ptr<const std::byte> get(const std::string& layout, std::size_t bytes,
                                       const Pack& pack);
  /// All that get() gave; none when the codes were written to since.
  std::vector<Form> all() const;

  /// How many forms were packed and how many found in files since the start, for tests and figures.
  struct Counts {
    std::int64_t packed = 0, found = 0;
  };
  static Counts counts() noexcept;

 private:
  explicit PackedForms(const Tensor& weight);
  bool is_unchanged() const { return weight_.version() == version_; }

  Tensor weight_;
  std::uint32_t version_;
  std::shared_ptr<const SavedForms> saved_;
  std::uint64_t codes_ = 0;  // set where there are saved forms
  mutable std::mutex mutex_;
  std::vector<Form> forms_;
};

}  // namespace quanta::detail
