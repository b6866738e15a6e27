#include <algorithm>
#include <array>
#include <numeric>

#include "quanta/nn/detail/recurrent.h"
#include "quanta/nn/rnn.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/indexing.h"
#include "quanta/runtime/check.h"

namespace quanta::nn {
namespace {

using Numbers = std::vector<std::int64_t>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Numbers checked_lengths(std::string_view op, const Tensor& lengths, std::int64_t batch,
                        std::int64_t steps) {
  QUANTA_CHECK(lengths.defined() && lengths.dtype() == DType::Int64 && lengths.dim() == 1,
               "{}: lengths: expected Int64 [batch], got {} {}", op,
               lengths.defined() ? to_string(lengths.dtype()) : "undefined",
               lengths.defined() ? lengths.sizes() : Dims{});
  QUANTA_CHECK(lengths.numel() == batch,
               "{}: lengths: expected one for each of {} sequences of the batch, got {}", op, batch,
               lengths.numel());
  Numbers numbers = lengths.to_int64_vector();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    QUANTA_CHECK(numbers[i] >= 1 && numbers[i] <= steps,
                 "{}: lengths: expected 1..{} (the steps of x), got {} for sequence {}", op, steps,
                 numbers[i], i);
  }
  return numbers;
}

// Where each sequence stands when the longest comes first; equal ones keep their order.
Numbers longest_first(const Numbers& lengths) {
  Numbers order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t lhs, std::int64_t rhs) {
    return lengths[at(lhs)] > lengths[at(rhs)];
  });
  return order;
}

Numbers inverse(const Numbers& order) {
  Numbers result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[at(order[i])] = static_cast<std::int64_t>(i);
  }
  return result;
}

// `lengths` do not grow.
Numbers count_batch_sizes(const Numbers& lengths) {
  Numbers sizes(at(lengths[0]));
  std::size_t running = lengths.size();
  for (std::size_t step = 0; step < sizes.size(); ++step) {
    while (lengths[running - 1] <= static_cast<std::int64_t>(step)) --running;
    sizes[step] = static_cast<std::int64_t>(running);
  }
  return sizes;
}

void check_defined(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
}

/// [steps, batch, ...] or batch first. Element (step, sequence) is row index(step, sequence) of
/// `rows`, or padding where that is -1.
template <typename Index>
Tensor padded(const Tensor& rows, std::int64_t steps, std::int64_t batch, const PadOptions& options,
              Index&& index) {
  const std::int64_t padding_row = rows.sizes()[0];
  const std::int64_t outer = options.batch_first ? batch : steps;
  const std::int64_t inner = options.batch_first ? steps : batch;
  Dims sizes{outer, inner};
  for (std::size_t d = 1; d < rows.sizes().size(); ++d) sizes.push_back(rows.sizes()[d]);
  checked_numel(sizes);  // a total_length may be any number
  Numbers order;
  order.reserve(at(steps * batch));
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      const std::int64_t row = options.batch_first ? index(j, i) : index(i, j);
      order.push_back(row < 0 ? padding_row : row);
    }
  }
  Dims row_sizes = rows.sizes();
  row_sizes[0] = 1;
  const std::array<Tensor, 2> parts{rows,
                                    Tensor::full(row_sizes, options.padding_value, rows.dtype())};
  return index_select(cat(parts, 0), 0, Tensor::from_int64(order)).reshape(sizes);
}

std::int64_t checked_steps(std::string_view op, const PadOptions& options, std::int64_t longest) {
  QUANTA_CHECK(!options.total_length || *options.total_length >= longest,
               "{}: total_length: expected at least {} (the longest sequence), got {}", op, longest,
               *options.total_length);
  return options.total_length.value_or(longest);
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& x, const Tensor& lengths,
                                    const PackOptions& options) {
  constexpr std::string_view kOp = "pack_padded_sequence";
  check_defined(kOp, "x", x);
  QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kOp, x.sizes());
  const std::int64_t steps = x.sizes()[options.batch_first ? 1 : 0];
  const std::int64_t batch = x.sizes()[options.batch_first ? 0 : 1];
  QUANTA_CHECK(batch >= 1, "{}: x: expected at least one sequence, got sizes {}", kOp, x.sizes());
  const Numbers given = checked_lengths(kOp, lengths, batch, steps);
  const Numbers order = longest_first(given);
  PackedSequence packed;
  if (options.enforce_sorted) {
    QUANTA_CHECK(std::is_sorted(given.rbegin(), given.rend()),
                 "{}: lengths: expected the longest first (or enforce_sorted = false), got {}", kOp,
                 to_string(lengths));
  } else {
    packed.sorted_indices = Tensor::from_int64(order);
    packed.unsorted_indices = Tensor::from_int64(inverse(order));
  }
  Numbers sorted(given.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = given[at(order[i])];
  const Numbers batch_sizes = count_batch_sizes(sorted);
  Numbers rows;
  for (std::size_t step = 0; step < batch_sizes.size(); ++step) {
    const auto t = static_cast<std::int64_t>(step);
    for (std::int64_t i = 0; i < batch_sizes[step]; ++i) {
      rows.push_back(options.batch_first ? order[at(i)] * steps + t : t * batch + order[at(i)]);
    }
  }
  packed.data = index_select(x.flatten(0, 1), 0, Tensor::from_int64(rows));
  packed.batch_sizes = Tensor::from_int64(batch_sizes);
  return packed;
}

PaddedSequence pad_packed_sequence(const PackedSequence& sequence, const PadOptions& options) {
  constexpr std::string_view kOp = "pad_packed_sequence";
  const Numbers batch_sizes = detail::checked_batch_sizes(kOp, sequence);
  const std::int64_t batch = batch_sizes[0];
  Numbers first_rows{0};
  for (const std::int64_t size : batch_sizes) first_rows.push_back(first_rows.back() + size);
  Numbers places(at(batch));
  std::iota(places.begin(), places.end(), 0);
  if (sequence.unsorted_indices.defined()) {
    places = sequence.unsorted_indices.to_int64_vector();
    QUANTA_CHECK(static_cast<std::int64_t>(places.size()) == batch &&
                     std::all_of(places.begin(), places.end(),
                                 [&](std::int64_t place) { return place >= 0 && place < batch; }),
                 "{}: unsorted_indices: expected {} numbers in 0..{}, got {}", kOp, batch,
                 batch - 1, to_string(sequence.unsorted_indices));
  }
  const auto longest = static_cast<std::int64_t>(batch_sizes.size());
  const std::int64_t steps = checked_steps(kOp, options, longest);
  Numbers lengths(at(batch), 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = std::count_if(batch_sizes.begin(), batch_sizes.end(),
                               [&](std::int64_t size) { return size > places[i]; });
  }
  Tensor output = padded(sequence.data, steps, batch, options,
                         [&](std::int64_t step, std::int64_t i) -> std::int64_t {
                           if (step >= lengths[at(i)]) return -1;
                           return first_rows[at(step)] + places[at(i)];
                         });
  return {std::move(output), Tensor::from_int64(lengths)};
}

Tensor pad_sequence(std::span<const Tensor> sequences, const PadOptions& options) {
  constexpr std::string_view kOp = "pad_sequence";
  QUANTA_CHECK(!sequences.empty(), "{}: sequences: expected at least one, got none", kOp);
  Numbers first_rows{0};
  std::int64_t longest = 0;
  for (const Tensor& sequence : sequences) {
    check_defined(kOp, "sequences", sequence);
    QUANTA_CHECK(sequence.dim() >= 1, "{}: sequences: expected sizes [length, ...], got a scalar",
                 kOp);
    longest = std::max(longest, sequence.sizes()[0]);
    first_rows.push_back(first_rows.back() + sequence.sizes()[0]);
  }
  const std::int64_t steps = checked_steps(kOp, options, longest);
  return padded(cat(sequences, 0), steps, static_cast<std::int64_t>(sequences.size()), options,
                [&](std::int64_t step, std::int64_t i) -> std::int64_t {
                  const std::int64_t row = first_rows[at(i)] + step;
                  return row < first_rows[at(i) + 1] ? row : -1;
                });
}

PackedSequence pack_sequence(std::span<const Tensor> sequences, bool enforce_sorted) {
  Tensor x = pad_sequence(sequences);
  Numbers lengths;
  for (const Tensor& sequence : sequences) lengths.push_back(sequence.sizes()[0]);
  return pack_padded_sequence(x, Tensor::from_int64(lengths), {.enforce_sorted = enforce_sorted});
}

}  // namespace quanta::nn
