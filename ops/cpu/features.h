#pragma once

// Private: what the processor can do, and the sizes that kernels choose by it. No other file asks
// the processor, oneDNN or the environment for instructions.
//
// A kernel for another instruction set takes two files: the kernel, and a row here or an entry of a
// row. Tests and `quanta-conform --isa` walk the rows.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quanta::cpu {

/// What kernel files are compiled to (ops/cpu/simd/highway.h): plain loops, and vectors of 32 or 64
/// bytes. A machine runs the last of them that it can.
enum class Code : std::uint8_t { Plain, Avx2, Avx512, Avx512Vbmi };

/// Instructions that only some of the machines have which run the same code.
struct Features {
  /// vpdpbusd and vpdpwssd on the longest vectors. oneDNN's u8 x s8 kernels add products in 32
  /// bits; without it they add pairs in 16 bits and saturate.
  bool vnni = false;
  bool avx_vnni = false;  ///< vpdpbusd and vpdpwssd on vectors of 32 bytes
  bool tiles = false;     ///< AMX with int8, and leave to use it

  /// Whether sums of four u8 x s8 products are one instruction of `code`.
  constexpr bool has_dot_product(Code code) const {
    return code == Code::Avx2 ? avx_vnni : vnni && code != Code::Plain;
  }
  constexpr bool includes(const Features& other) const {
    return (vnni || !other.vnni) && (avx_vnni || !other.avx_vnni) && (tiles || !other.tiles);
  }
};

/// The code that kernels run at the moment.
Code running_code();
/// Highway's name for the code (hwy/targets.h), to hold kernels down to it.
std::int64_t highway_target(Code code);

/// The features of this machine within the limit that ONEDNN_MAX_CPU_ISA sets.
const Features& features();

/// Takes features away while it lives, for tests. One at a time; not while ops run.
class FeatureLimit {
 public:
  explicit FeatureLimit(const Features& most);
  ~FeatureLimit();
  FeatureLimit(const FeatureLimit&) = delete;
  FeatureLimit& operator=(const FeatureLimit&) = delete;
};

/// A set of instructions that some machines have and for which there are kernels.
struct InstructionSet {
  std::string_view name;
  std::string_view onednn;  ///< what ONEDNN_MAX_CPU_ISA calls it
  Code code;
  Features features;
};
inline constexpr InstructionSet kInstructionSets[] = {
    {"plain", "SSE41", Code::Plain, {}},
    {"avx2", "AVX2", Code::Avx2, {}},
    {"avx_vnni", "AVX2_VNNI", Code::Avx2, {.vnni = true, .avx_vnni = true}},
    {"avx512", "AVX512_CORE", Code::Avx512, {}},
    {"avx512_vnni", "AVX512_CORE_VNNI", Code::Avx512, {.vnni = true}},
    {"vnni", "AVX512_CORE_VNNI", Code::Avx512Vbmi, {.vnni = true}},
    {"amx", "AVX512_CORE_AMX", Code::Avx512Vbmi, {.vnni = true, .tiles = true}},
};

/// Whether this machine has the instructions.
bool can_run(const InstructionSet& set);

/// How much of a product kernels hold in registers, for one kind of code. The sums and the operands
/// beside them fill the 16 registers of AVX2 or the 32 of AVX-512.
struct Blocks {
  std::size_t vector_bytes = 0;
  int gemv_rows = 1;            ///< gemv_int8: rows of codes,
  int gemv_weights = 1;         ///< rows of the weight with them,
  int gemv_weights_of_one = 1;  ///< and with a single row of codes
  int panel_rows = 1;           ///< gemv_int8_panels: rows,
  int panel_sums = 1;           ///< and vectors of sums
  int gemm_codes_rows = 1;      ///< gemm_codes: rows of two panels
  int gemm_int8_rows = 1;       ///< gemm_int8: rows,
  int gemm_int8_panels = 1;     ///< and panels
  int gate_rows = 1;            ///< steps of recurrent layers: rows,
  int gate_sums = 1;            ///< and vectors of sums
  int half_rows = 1;            ///< half_product: rows,
  int half_panels = 1;          ///< panels with them,
  int half_panels_of_one = 1;   ///< and with a single row
  int weight_only_rows = 1;     ///< products with a weight of codes alone: rows
  int pair_panels = 1;          ///< int16_gemm: the most panels,
  int pair_rows[5] = {};        ///< and rows with so many panels
};

constexpr Blocks blocks_of(Code code) {
  switch (code) {
    case Code::Plain:
      break;
    case Code::Avx2:
      return {.vector_bytes = 32,
              .gemv_rows = 2,
              .gemv_weights = 4,
              .gemv_weights_of_one = 4,
              .panel_rows = 4,
              .panel_sums = 8,
              .gemm_codes_rows = 2,
              .gemm_int8_rows = 2,
              .gemm_int8_panels = 2,
              .gate_rows = 4,
              .gate_sums = 8,
              .half_rows = 4,
              .half_panels = 1,
              .half_panels_of_one = 4,
              .weight_only_rows = 6,
              .pair_panels = 1,
              .pair_rows = {0, 6}};
    case Code::Avx512:
    case Code::Avx512Vbmi:
      return {.vector_bytes = 64,
              .gemv_rows = 4,
              .gemv_weights = 4,
              .gemv_weights_of_one = 8,
              .panel_rows = 8,
              .panel_sums = 16,
              .gemm_codes_rows = 14,
              .gemm_int8_rows = 14,
              .gemm_int8_panels = 2,
              .gate_rows = 8,
              .gate_sums = 24,
              .half_rows = 4,
              .half_panels = 4,
              .half_panels_of_one = 8,
              .weight_only_rows = 12,
              .pair_panels = 4,
              .pair_rows = {0, 12, 12, 8, 6}};
  }
  return {};
}

/// A tile of AMX holds so many rows of codes, each of so many bytes: 16 rows of 64 codes, 64 codes
/// of 16 channels, or 16 by 16 sums.
inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileBytes = 64;

}  // namespace quanta::cpu
