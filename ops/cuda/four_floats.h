#pragma once

// Private, for .cu files only: what is read and written at once where floats lie on 16 bytes.

namespace quanta::cuda {

struct alignas(16) FourFloats {
  float of[4];
};

}  // namespace quanta::cuda
