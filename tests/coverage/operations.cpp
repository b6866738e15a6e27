#include "operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "quanta/ops/catalogue.h"

namespace quanta::coverage {
namespace {

/// Families, and single operations, whose values are tested elsewhere than in the family's test.
struct Test {
  std::string_view name;
  std::string_view path;
};
constexpr std::array kFamilies{
    Test{"attention", "tests/nn/attention_test.cpp"},
    Test{"block_quant", "tests/ops/tensor_quant_test.cpp"},
    Test{"cat", "tests/ops/arithmetic_test.cpp"},
    Test{"conv_dynamic", "tests/nn/dynamic_linear_test.cpp"},
    Test{"factory", "tests/ops/shape_test.cpp"},
    Test{"linear_weight_only", "tests/ops/weight_only_test.cpp"},
    Test{"loss", "tests/ops/gradients_loss_test.cpp"},
    Test{"matmul", "tests/ops/arithmetic_test.cpp"},
};
constexpr std::array kOperations{
    Test{"adaptive_max_pool1d", "tests/ops/gradients_heavy_test.cpp"},
    Test{"adaptive_max_pool2d", "tests/ops/gradients_heavy_test.cpp"},
    Test{"adaptive_max_pool3d", "tests/ops/gradients_heavy_test.cpp"},
    Test{"amax", "tests/ops/reduce_fold_test.cpp"},
    Test{"amin", "tests/ops/reduce_fold_test.cpp"},
    Test{"argmin", "tests/ops/reduce_fold_test.cpp"},
    Test{"attention_weights", "tests/nn/gradients_attention_test.cpp"},
    Test{"batch_norm_train", "tests/ops/gradients_norm_test.cpp"},
    Test{"conv_of_codes", "tests/ops/integer_test.cpp"},
    Test{"cumprod", "tests/ops/reduce_fold_test.cpp"},
    Test{"cumsum", "tests/ops/reduce_fold_test.cpp"},
    Test{"det", "tests/ops/einsum_test.cpp"},
    Test{"einsum", "tests/ops/einsum_test.cpp"},
    Test{"embedding_bag_2bit_rowwise_offsets", "tests/conform/run_embedding.cpp"},
    Test{"embedding_bag_4bit_rowwise_offsets", "tests/conform/run_embedding.cpp"},
    Test{"gather_nd", "tests/ops/scatter_test.cpp"},
    Test{"linear_of_codes", "tests/ops/integer_test.cpp"},
    Test{"local_response_norm", "tests/ops/norm_rows_test.cpp"},
    Test{"log_softmax", "tests/ops/activation_smooth_test.cpp"},
    Test{"logsigmoid", "tests/ops/activation_smooth_test.cpp"},
    Test{"lp_normalize", "tests/ops/norm_rows_test.cpp"},
    Test{"lp_pool", "tests/ops/pooling_windows_test.cpp"},
    Test{"max_pool_indices", "tests/ops/pooling_windows_test.cpp"},
    Test{"mish", "tests/ops/activation_smooth_test.cpp"},
    Test{"one_hot", "tests/ops/scatter_test.cpp"},
    Test{"prod", "tests/ops/reduce_fold_test.cpp"},
    Test{"quantized::conv_to_float", "tests/ops/integer_test.cpp"},
    Test{"quantized::global_mean_to_float", "tests/ops/quantize_linear_test.cpp"},
    Test{"quantized::linear_to_float", "tests/ops/integer_test.cpp"},
    Test{"resample", "tests/ops/resample_test.cpp"},
    Test{"reverse_sequence", "tests/ops/reorder_test.cpp"},
    Test{"rms_norm", "tests/ops/norm_rows_test.cpp"},
    Test{"row_statistics", "tests/ops/norm_rows_test.cpp"},
    Test{"scatter", "tests/ops/scatter_test.cpp"},
    Test{"scatter_cache", "tests/ops/scatter_test.cpp"},
    Test{"scatter_nd", "tests/ops/scatter_test.cpp"},
    Test{"selu", "tests/ops/activation_smooth_test.cpp"},
    Test{"softplus", "tests/ops/activation_smooth_test.cpp"},
    Test{"softsign", "tests/ops/activation_smooth_test.cpp"},
    Test{"tril", "tests/ops/reorder_test.cpp"},
    Test{"triu", "tests/ops/reorder_test.cpp"},
    Test{"unique", "tests/ops/reorder_test.cpp"},
    Test{"wrap_indices", "tests/ops/scatter_test.cpp"},
};

std::string dtypes_of(const OperationEntry& row) {
  std::string text;
  for (const DType dtype : row.dtypes) {
    text += text.empty() ? "" : ", ";
    text += torch_name(dtype);
  }
  return text;
}

std::string cuda_dtypes_of(const OperationEntry& row) {
  std::vector<DType> dtypes(row.dtypes.begin(), row.dtypes.end());
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {  // on CUDA alone, of some
    if (!row.takes(dtype)) dtypes.push_back(dtype);
  }
  std::string text;
  for (const DType dtype : dtypes) {
    if (!row.takes_on_cuda(dtype)) continue;
    text += text.empty() ? "" : ", ";
    text += torch_name(dtype);
  }
  return text.empty() ? "-" : text;
}

/// Whether the first argument gets a gradient, where it is floating at all.
std::string gradient_of(const OperationEntry& row) {
  const auto floating = std::ranges::find_if(row.dtypes, is_floating_point);
  if (floating == row.dtypes.end()) return "-";
  const Sample sample = row.sample(*floating);
  if (sample.operation->is_composition()) return "by its parts";
  switch (sample.operation->gradient_use(1).kind) {
    case GradientUse::Kind::Unsupported:
      return "refused";
    case GradientUse::Kind::None:
      return "-";
    case GradientUse::Kind::Defined:
      return "yes";
  }
  return "-";
}

std::string settings_of(const OperationEntry& row) {
  std::string text;
  for (const AttributeInfo& info : row.make()->attributes()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", info.name);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

std::string test_of(const OperationEntry& row) {
  std::string_view family = row.header.substr(row.header.rfind('/') + 1);
  family.remove_suffix(2);
  for (const Test& test : kOperations) {
    if (test.name == row.name) return std::string(test.path);
  }
  for (const Test& test : kFamilies) {
    if (test.name == family) return std::string(test.path);
  }
  return fmt::format("tests/ops/{}_test.cpp", family);
}

std::string operations_to_markdown() {
  std::string out = fmt::format(
      "\n## Operations\n\n"
      "The catalogue (`quanta/ops/catalogue.h`), {} operations: where each is declared, the "
      "dtypes\n"
      "of its first argument, those that CUDA devices have a kernel for, whether it gets a\n"
      "gradient, the settings that files and printed plans name, and the test of its values.\n"
      "`tests/ops/catalogue_test.cpp` tests all of them:\n"
      "recorded and replayed, differentiated, empty, strided, with wrong arguments.\n\n"
      "| operation | declared in | dtypes | on CUDA | gradient | settings | test |\n"
      "|---|---|---|---|---|---|---|\n",
      operations().entries().size());
  for (const OperationEntry& row : operations().entries()) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", row.name, row.header.substr(7),
                       dtypes_of(row), cuda_dtypes_of(row), gradient_of(row), settings_of(row),
                       test_of(row));
  }
  return out;
}

}  // namespace quanta::coverage
