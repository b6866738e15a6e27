// Einstein's sum, made of views, sums and one matrix product for each pair of operands.

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/matmul/families.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace matrix_product {
namespace {

constexpr std::string_view kName = "einsum";

/// A letter, or kEllipsis plus a position from the right for a dimension that "..." stands for.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

bool holds(const Labels& labels, Label label) {
  return std::ranges::find(labels, label) != labels.end();
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The letters of one list of the equation.
struct Term {
  Labels before, behind;  // of the "...": all letters are before where there is none
  bool has_ellipsis = false;

  Labels labels(std::int64_t ellipsis_dims) const {
    Labels all = before;
    for (std::int64_t i = ellipsis_dims; has_ellipsis && i > 0; --i) {
      all.push_back(kEllipsis + static_cast<Label>(i));
    }
    all.insert(all.end(), behind.begin(), behind.end());
    return all;
  }
};

Term parse_term(std::string_view text, std::string_view equation) {
  Term term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_letter(text[i])) {
      (term.has_ellipsis ? term.behind : term.before).push_back(text[i]);
      continue;
    }
    QUANTA_CHECK(text.substr(i, 3) == "..." && !term.has_ellipsis,
                 "{}: equation: expected letters and at most one \"...\" in each list, got \"{}\"",
                 kName, equation);
    term.has_ellipsis = true;
    i += 2;
  }
  return term;
}

struct Equation {
  std::vector<Term> operands;
  std::optional<Term> result;
};

Equation parse(std::string_view given) {
  std::string text;
  for (const char c : given) {
    if (c != ' ') text.push_back(c);
  }
  Equation equation;
  std::string_view left = text;
  if (const std::size_t arrow = left.find("->"); arrow != std::string_view::npos) {
    equation.result = parse_term(left.substr(arrow + 2), given);
    left = left.substr(0, arrow);
  }
  for (;;) {
    const std::size_t comma = left.find(',');
    equation.operands.push_back(parse_term(left.substr(0, comma), given));
    if (comma == std::string_view::npos) return equation;
    left = left.substr(comma + 1);
  }
}

/// A tensor whose dimensions have names, each once.
struct Named {
  Tensor tensor;
  Labels labels;

  std::int64_t size(Label label) const {
    return tensor.size(std::ranges::find(labels, label) - labels.begin());
  }
};

// The diagonals of dimensions that have the same name.
Named with_diagonals(const Tensor& x, const Labels& labels) {
  Named named{x, {}};
  Dims sizes, strides;
  for (std::size_t d = 0; d < labels.size(); ++d) {
    const auto at = std::ranges::find(named.labels, labels[d]);
    if (at == named.labels.end()) {
      named.labels.push_back(labels[d]);
      sizes.push_back(x.sizes()[d]);
      strides.push_back(x.strides()[d]);
      continue;
    }
    const auto first = static_cast<std::size_t>(at - named.labels.begin());
    QUANTA_CHECK(sizes[first] == x.sizes()[d],
                 "{}: operands: expected equal sizes for a letter that stands twice, got {}", kName,
                 x.sizes());
    strides[first] += x.strides()[d];
  }
  if (sizes.size() < labels.size()) {
    named.tensor = x.as_strided(sizes, strides, x.storage_offset());
  }
  return named;
}

// Sums the dimensions whose names are not in `keep`.
Named summed(const Named& x, const Labels& keep) {
  Named result{x.tensor, {}};
  Dims dims;
  for (std::size_t d = 0; d < x.labels.size(); ++d) {
    if (holds(keep, x.labels[d])) {
      result.labels.push_back(x.labels[d]);
    } else {
      dims.push_back(static_cast<std::int64_t>(d));
    }
  }
  if (!dims.empty()) {
    result.tensor = sum(x.tensor, dims);
    // Sums of integers are Int64.
    if (result.tensor.dtype() != x.tensor.dtype())
      result.tensor = result.tensor.to(x.tensor.dtype());
  }
  return result;
}

// The dimensions in this order, those that are missing with size 1.
Tensor ordered(const Named& x, const Labels& order) {
  Dims permutation;
  Tensor tensor = x.tensor;
  std::int64_t next = tensor.dim();
  for (const Label label : order) {
    const auto at = std::ranges::find(x.labels, label);
    if (at != x.labels.end()) {
      permutation.push_back(at - x.labels.begin());
    } else {
      tensor = tensor.unsqueeze(next);
      permutation.push_back(next++);
    }
  }
  return tensor.permute(permutation);
}

Labels joined(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::int64_t product_of(const Tensor& x, std::size_t first, std::size_t count) {
  std::int64_t product = 1;
  for (std::size_t d = first; d < first + count; ++d) product *= x.sizes()[d];
  return product;
}

// One product for both: [batch, rows, inner] x [batch, inner, columns].
Named multiplied(Named lhs, Named rhs, const Labels& needed) {
  lhs = summed(lhs, joined(needed, rhs.labels));
  rhs = summed(rhs, joined(needed, lhs.labels));
  Labels batch, inner, rows, columns;
  for (const Label label : lhs.labels) {
    const bool shared = holds(rhs.labels, label);
    (!shared ? rows : holds(needed, label) ? batch : inner).push_back(label);
  }
  for (const Label label : rhs.labels) {
    if (!holds(lhs.labels, label)) columns.push_back(label);
  }
  // Of a dimension that both have, the larger size: the other one is 1.
  const auto full_sizes = [&](const Tensor& x, const Labels& labels) {
    Dims sizes = x.sizes();
    for (std::size_t d = 0; d < labels.size(); ++d) {
      if (holds(lhs.labels, labels[d]) && holds(rhs.labels, labels[d])) {
        const std::int64_t left = lhs.size(labels[d]);
        sizes[d] = left == 1 ? rhs.size(labels[d]) : left;
      }
    }
    return sizes;
  };
  const Labels left_order = joined(joined(batch, rows), inner);
  const Labels right_order = joined(joined(batch, inner), columns);
  Tensor left = ordered(lhs, left_order);
  Tensor right = ordered(rhs, right_order);
  left = left.expand(full_sizes(left, left_order));
  right = right.expand(full_sizes(right, right_order));
  const std::int64_t count = product_of(left, 0, batch.size());
  const std::int64_t height = product_of(left, batch.size(), rows.size());
  const std::int64_t depth = product_of(left, batch.size() + rows.size(), inner.size());
  const std::int64_t width = product_of(right, batch.size() + inner.size(), columns.size());
  Dims sizes;
  for (std::size_t d = 0; d < batch.size() + rows.size(); ++d) sizes.push_back(left.sizes()[d]);
  for (std::size_t d = batch.size() + inner.size(); d < right_order.size(); ++d) {
    sizes.push_back(right.sizes()[d]);
  }
  const Tensor product =
      bmm(left.reshape({count, height, depth}), right.reshape({count, depth, width}));
  return {product.reshape(sizes), joined(joined(batch, rows), columns)};
}

struct Einsum final : ComposedOp<Einsum> {
  static constexpr std::string_view kName = matrix_product::kName;
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);
  std::string equation;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Equation parsed = parse(equation);
    QUANTA_CHECK(parsed.operands.size() == in.size(),
                 "{}: operands: expected {} for equation \"{}\", got {}", kName,
                 parsed.operands.size(), equation, in.size());
    const std::int64_t ellipsis_dims = check_operands(parsed, in);
    std::vector<Named> operands;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Term& term = parsed.operands[i];
      const auto letters = static_cast<std::int64_t>(term.before.size() + term.behind.size());
      operands.push_back(with_diagonals(in[i], term.labels(in[i].dim() - letters)));
    }
    check_sizes(operands);
    const Labels result = result_labels(parsed, ellipsis_dims);

    Named all = operands[0];
    for (std::size_t i = 1; i < operands.size(); ++i) {
      Labels needed = result;
      for (std::size_t j = i + 1; j < operands.size(); ++j) {
        needed = joined(needed, operands[j].labels);
      }
      all = multiplied(std::move(all), operands[i], needed);
    }
    return {ordered(summed(all, result), result)};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Einsum, &Einsum::equation>("equation")};
    return kTable;
  }

 private:
  // Gives how many dimensions "..." stands for at most.
  std::int64_t check_operands(const Equation& parsed, const Arguments& in) const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined() || !detail::is_float_of_cuda(in[i])) {
        require_tensor(kName, "operands", in[i],
                       {DType::Float32, DType::Float64, DType::Int32, DType::Int64});
      }
      QUANTA_CHECK(in[i].dtype() == in[0].dtype(),
                   "{}: operands: expected {} as the first one has, got {}", kName, in[0].dtype(),
                   in[i].dtype());
      const Term& term = parsed.operands[i];
      const auto letters = static_cast<std::int64_t>(term.before.size() + term.behind.size());
      QUANTA_CHECK(term.has_ellipsis ? in[i].dim() >= letters : in[i].dim() == letters,
                   "{}: operands: expected {}{} dimensions for operand {} of \"{}\", got sizes {}",
                   kName, term.has_ellipsis ? "at least " : "", letters, i, equation,
                   in[i].sizes());
      most = std::max(most, in[i].dim() - letters);
    }
    return most;
  }

  void check_sizes(const std::vector<Named>& operands) const {
    for (const Named& a : operands) {
      for (const Label label : a.labels) {
        for (const Named& b : operands) {
          if (!holds(b.labels, label)) continue;
          const std::int64_t sizes[] = {a.size(label), b.size(label)};
          QUANTA_CHECK(sizes[0] == sizes[1] || sizes[0] == 1 || sizes[1] == 1,
                       "{}: operands: expected equal sizes for each letter of \"{}\", got {} and "
                       "{}",
                       kName, equation, sizes[0], sizes[1]);
        }
      }
    }
  }

  Labels result_labels(const Equation& parsed, std::int64_t ellipsis_dims) const {
    Labels letters;
    for (const Term& term : parsed.operands)
      letters = joined(letters, joined(term.before, term.behind));
    Term result;
    if (parsed.result) {
      result = *parsed.result;
    } else {
      result.has_ellipsis = true;
      for (const Label label : letters) {
        if (std::ranges::count(letters, label) == 1) result.behind.push_back(label);
      }
      std::ranges::sort(result.behind);
    }
    const Labels labels = result.labels(ellipsis_dims);
    for (const Label label : labels) {
      QUANTA_CHECK(std::ranges::count(labels, label) == 1,
                   "{}: equation: expected each letter of the result once, got \"{}\"", kName,
                   equation);
      QUANTA_CHECK(label >= kEllipsis || holds(letters, label),
                   "{}: equation: expected letters of the operands in the result, got \"{}\"",
                   kName, equation);
    }
    return labels;
  }
};

}  // namespace

void add_einsum(Catalogue& catalogue) {
  catalogue.add(
      {.name = Einsum::kName, .header = "quanta/ops/matmul.h", .dtypes = dtypes::kNumbers},
      [](DType dtype) {
        Einsum operation;
        operation.equation = "bij,bjk,k->bi";
        return sample_call(std::move(operation),
                           {sample_tensor({2, 3, 4}, dtype), sample_tensor({2, 4, 5}, dtype, 2),
                            sample_tensor({5}, dtype, 3)});
      });
}

}  // namespace matrix_product

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) {
  matrix_product::Einsum operation;
  operation.equation = equation;
  return run(operation, operands);
}

}  // namespace quanta
