// Products of floats through cuBLASLt.

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>

#include "quanta/ops/cpu/onednn/plan_cache.h"
#include "quanta/ops/cuda/library.h"
#include "quanta/ops/cuda/library_checks.h"
#include "quanta/ops/cuda/shared_library.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/cudart.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {
namespace {

// More than this no product asks for on a GPU of 2022 and later.
constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

/// The functions of the library that are called here.
struct Functions {
  SharedLibrary library{"libcublasLt.so.13",
                        "the CUDA toolkit 13 (cuBLAS; from PyPI: nvidia-cublas, which tools/setup "
                        "--cuda fetches)"};
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtGetStatusString) status_text;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm;
  decltype(&cublasLtMatmulDescCreate) create_product;
  decltype(&cublasLtMatmulDescDestroy) destroy_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;

  Functions() {
    library.find("cublasLtCreate", create);
    library.find("cublasLtGetStatusName", status_name);
    library.find("cublasLtGetStatusString", status_text);
    library.find("cublasLtMatmul", matmul);
    library.find("cublasLtMatmulAlgoGetHeuristic", find_algorithm);
    library.find("cublasLtMatmulDescCreate", create_product);
    library.find("cublasLtMatmulDescDestroy", destroy_product);
    library.find("cublasLtMatmulDescSetAttribute", set_product);
    library.find("cublasLtMatrixLayoutCreate", create_layout);
    library.find("cublasLtMatrixLayoutDestroy", destroy_layout);
    library.find("cublasLtMatrixLayoutSetAttribute", set_layout);
    library.find("cublasLtMatmulPreferenceCreate", create_preference);
    library.find("cublasLtMatmulPreferenceDestroy", destroy_preference);
    library.find("cublasLtMatmulPreferenceSetAttribute", set_preference);
  }
};

// Looked for again by the next call when it is not there.
const Functions& functions() {
  static const Functions kFunctions;
  return kFunctions;
}

void check(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw BackendError(fmt::format("{}: {}: {}", call, functions().status_name(status),
                                 functions().status_text(status)));
}

// That of the calling thread's device; never destroyed, as CUDA may be gone before.
cublasLtHandle_t handle_of(Device device) {
  static std::array<cublasLtHandle_t, 128> handles{};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[static_cast<std::size_t>(device.index)];
  if (handle == nullptr) check(functions().create(&handle), "cublasLtCreate");
  return handle;
}

struct Destroy {
  void operator()(cublasLtMatmulDesc_t product) const { functions().destroy_product(product); }
  void operator()(cublasLtMatrixLayout_t layout) const { functions().destroy_layout(layout); }
  void operator()(cublasLtMatmulPreference_t preference) const {
    functions().destroy_preference(preference);
  }
};
template <typename Pointer>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy>;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return CUDA_R_16F;
    case DType::BFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

template <typename T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name, const T& value) {
  check(functions().set_product(product, name, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name, const T& value) {
  check(functions().set_layout(layout, name, &value, sizeof(value)),
        "cublasLtMatrixLayoutSetAttribute");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
         const T& value) {
  check(functions().set_preference(preference, name, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

// cuBLASLt counts columns first: a matrix of ours is the transposed one of its, and out transposed
// is rhs transposed x lhs transposed.
Owned<cublasLtMatrixLayout_t> layout_of(const FloatProduct& product, const MatrixLayout& layout,
                                        std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  const std::int64_t inner = layout.transposed ? rows : columns;  // neighbours
  const std::int64_t outer = layout.transposed ? columns : rows;
  check(
      functions().create_layout(&made, data_type(product.dtype), static_cast<std::uint64_t>(inner),
                                static_cast<std::uint64_t>(outer), layout.stride),
      "cublasLtMatrixLayoutCreate");
  Owned<cublasLtMatrixLayout_t> owned(made);
  if (product.batch > 1) {
    set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(product.batch));
    set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout.batch_stride);
  }
  return owned;
}

/// A product as cuBLASLt wants it described, for one call.
struct Description {
  Description(const FloatProduct& product, const void* bias)
      : rhs(layout_of(product, product.rhs, product.depth, product.columns)),
        lhs(layout_of(product, product.lhs, product.rows, product.depth)),
        out(layout_of(product, product.out, product.rows, product.columns)) {
    cublasLtMatmulDesc_t made = nullptr;
    const bool is_rounded =
        product.factors == FloatFactors::TF32 && product.dtype == DType::Float32;
    check(functions().create_product(
              &made, is_rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    operation.reset(made);
    const auto as_given = [](const MatrixLayout& layout) {
      return layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, as_given(product.rhs));
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, as_given(product.lhs));
    if (product.has_bias) {
      set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
  }

  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> rhs, lhs, out;
};

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

/// All that the choice of an algorithm depends on.
struct Key {
  FloatProduct product;
  std::int8_t device;
  std::uint32_t alignment;  // of all operands, in bytes
  bool operator==(const Key&) const = default;
};

// 16, or what is left of it.
std::uint32_t alignment_of(const FloatProduct& product, const ProductOperands& operands) {
  std::uintptr_t bits = 0;
  for (const void* operand :
       {operands.lhs, operands.rhs, operands.bias, static_cast<const void*>(operands.out)}) {
    bits |= reinterpret_cast<std::uintptr_t>(operand);
  }
  return bits % 16 == 0 ? 16 : static_cast<std::uint32_t>(item_size(product.dtype));
}

Algorithm find_algorithm(cublasLtHandle_t handle, const Description& description, const Key& key) {
  cublasLtMatmulPreference_t made = nullptr;
  check(functions().create_preference(&made), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t> preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(made, name, key.alignment);
  }
  // Parts of a sum are not rounded to 16 bits before they are added.
  if (key.product.dtype != DType::Float32) {
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  check(functions().find_algorithm(handle, description.operation.get(), description.rhs.get(),
                                   description.lhs.get(), description.out.get(),
                                   description.out.get(), made, 1, &result, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) {
    const FloatProduct& p = key.product;
    throw BackendError(fmt::format(
        "cublasLtMatmulAlgoGetHeuristic: expected an algorithm for {} x [{}, {}] x [{}, {}] in {}, "
        "got none",
        p.batch, p.rows, p.depth, p.depth, p.columns, p.dtype));
  }
  return {result.algo, result.workspaceSize};
}

}  // namespace

void libraries::multiply(Device device, const FloatProduct& product,
                         const ProductOperands& operands) {
  const cudaStream_t stream = stream_of(device);
  if (product.batch > std::numeric_limits<std::int32_t>::max()) {
    throw BackendError(
        fmt::format("cublasLtMatmul: expected up to 2^31 - 1 matrices, got {}", product.batch));
  }
  const cublasLtHandle_t handle = handle_of(device);
  const Description description(product, operands.bias);
  const Key key{product, device.index, alignment_of(product, operands)};
  static const cpu::PlanCache<Key, Algorithm, 256> algorithms;
  const std::shared_ptr<const Algorithm> found = algorithms.get(key, [&] {
    return std::make_shared<const Algorithm>(find_algorithm(handle, description, key));
  });
  const Buffer workspace = found->workspace > 0 ? Buffer(device, found->workspace) : Buffer();
  check(
      functions().matmul(handle, description.operation.get(), &product.alpha, operands.rhs,
                         description.rhs.get(), operands.lhs, description.lhs.get(), &product.beta,
                         operands.out, description.out.get(), operands.out, description.out.get(),
                         &found->algorithm, workspace.as<void>(), found->workspace, stream),
      "cublasLtMatmul");
}

std::string missing_cublaslt() {
  try {
    functions();
    return {};
  } catch (const BackendError& error) {
    return error.what();
  }
}

}  // namespace quanta::cuda
