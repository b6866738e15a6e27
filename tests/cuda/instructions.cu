#include "instructions.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::test {
namespace {

// What the kernels of one warp share.
template <int kBytes>
struct Warp {
  static constexpr int kThreads = 32;
  static constexpr int kShared = kBytes;
  static constexpr bool kTogether = true;
};

struct LoadMatrices : Warp<512> {
  static constexpr const char* kName = "load_matrices";
  using Params = LoadMatrixParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    struct alignas(16) Row {
      std::uint32_t words[4];
    };
    const int lane = simt::thread();
    simt::store(shared + lane * 16, simt::load<Row>(p.matrices + lane * 16));
    simt::sync();
    std::uint32_t r[4];
    simt::load_matrix_x4(r, shared + lane * 16);
    for (int m = 0; m < 4; ++m) p.r[lane * 4 + m] = r[m];
  }
};

struct MultiplyFragments : Warp<0> {
  static constexpr const char* kName = "multiply_fragments";
  using Params = MultiplyParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const int lane = simt::thread();
    std::uint32_t a[2][4];
    std::uint32_t b[2][2];
    std::int32_t sums[2][2][4] = {};
    for (int i = 0; i < 2; ++i) {
      for (int e = 0; e < 4; ++e) a[i][e] = p.a[lane * 8 + i * 4 + e];
      for (int e = 0; e < 2; ++e) b[i][e] = p.b[lane * 4 + i * 2 + e];
    }
    simt::multiply_u8s8<2, 2>(sums, a, b);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        for (int e = 0; e < 4; ++e) p.sums[lane * 16 + (i * 2 + j) * 4 + e] = sums[i][j][e];
      }
    }
  }
};

// Another lane reads what was copied: a wait alone does not show it.
template <int kPiece>
struct CopyGroups : Warp<2 * 32 * kPiece> {
  static constexpr const char* kName = "copy_groups";
  using Params = CopyAsyncParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    constexpr int kGroup = 32 * kPiece;
    const int mine = simt::thread() * kPiece;
    const int other = (simt::thread() + 13) % 32 * kPiece;
    for (int group = 0; group < 2; ++group) {
      simt::copy_async<kPiece>(shared + group * kGroup + mine, p.from + group * kGroup + mine);
      simt::commit();
    }
    simt::wait<1>();
    simt::sync();
    for (int i = 0; i < kPiece; ++i) p.first[other + i] = shared[other + i];
    simt::wait<0>();
    simt::sync();
    for (int i = 0; i < kPiece; ++i) {
      p.both[other + i] = shared[other + i];
      p.both[kGroup + other + i] = shared[kGroup + other + i];
    }
  }
};

struct DotBytes : Warp<0> {
  static constexpr const char* kName = "dot_bytes";
  using Params = DotParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const int i = simt::thread();
    p.sums[i] = simt::dot_u8s8(p.a[i], p.b[i], p.sums[i]);
  }
};

struct ConvertHalves {
  static constexpr const char* kName = "convert_halves";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = HalfParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    p.floats[i] = simt::half_to_float(static_cast<std::uint16_t>(i));
    p.halves[i] = simt::float_to_half(p.others[i]);
  }
};

struct ShuffleLanes : Warp<0> {
  static constexpr const char* kName = "shuffle_lanes";
  using Params = ShuffleParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const int lane = simt::thread();
    for (int mask = 0; mask < 32; ++mask) {
      p.y[mask * 32 + lane] = simt::shuffle_xor(p.x[lane], mask);
    }
    p.sum[lane] = simt::warp_sum(p.x[lane]);
  }
};

struct MeetInMemory {
  static constexpr const char* kName = "meet_in_memory";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AtomicParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const auto number = static_cast<std::int32_t>(simt::global_thread());
    simt::atomic_add(p.count, number);
    simt::atomic_add(p.wide, static_cast<unsigned long long>(number) << 20);
    simt::atomic_min(p.least, number - 1000);
    simt::atomic_max(p.most, number - 1000);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void load_matrices(Device device, const LoadMatrixParams& params) {
  simt::launch<LoadMatrices>(device, {}, params);
}
void multiply_fragments(Device device, const MultiplyParams& params) {
  simt::launch<MultiplyFragments>(device, {}, params);
}
void copy_groups(Device device, const CopyAsyncParams& params) {
  switch (params.piece) {
    case 4:
      return simt::launch<CopyGroups<4>>(device, {}, params);
    case 8:
      return simt::launch<CopyGroups<8>>(device, {}, params);
    default:
      return simt::launch<CopyGroups<16>>(device, {}, params);
  }
}
void dot_bytes(Device device, const DotParams& params) {
  simt::launch<DotBytes>(device, {}, params);
}
void convert_halves(Device device, const HalfParams& params) {
  simt::launch<ConvertHalves>(device, {256, 1, 1}, params);
}
void shuffle_lanes(Device device, const ShuffleParams& params) {
  simt::launch<ShuffleLanes>(device, {}, params);
}
void meet_in_memory(Device device, const AtomicParams& params) {
  simt::launch<MeetInMemory>(device, {8, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::test
