# The CUDA backend for GPUs. Without it there is the emulated device alone, which needs nothing.
#
# QUANTA_CUDA=ON builds it with a toolkit of 13.0 or later: the one in third_party/cuda
# (tools/setup --cuda), that of CMAKE_CUDA_COMPILER, or the first nvcc of the PATH. AUTO is OFF for
# now: the operations with kernels for CUDA are too few for everybody to pay for nvcc.

set(QUANTA_HAS_CUDA FALSE)
if(QUANTA_CUDA STREQUAL "ON")
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(quanta_nvcc nvcc PATHS "${PROJECT_SOURCE_DIR}/third_party/cuda/bin"
                 NO_DEFAULT_PATH)
    find_program(quanta_nvcc nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(quanta_nvcc)
    if(NOT quanta_nvcc)
      message(FATAL_ERROR "QUANTA_CUDA=ON: no nvcc was found. Run tools/setup --cuda, or set "
                          "CMAKE_CUDA_COMPILER to that of a CUDA toolkit 13.0 or later.")
    endif()
    set(CMAKE_CUDA_COMPILER "${quanta_nvcc}")
  endif()
  # PTX of the latest, for what comes after it.
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "GPUs to build for")
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
    message(FATAL_ERROR "QUANTA_CUDA=ON: expected a CUDA toolkit 13.0 or later, got "
                        "${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
  endif()
  find_package(CUDAToolkit 13.0 REQUIRED)
  set(QUANTA_HAS_CUDA TRUE)
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
endif()

# What private headers ask.
set(quanta_built_with_cuda 0)
if(QUANTA_HAS_CUDA)
  set(quanta_built_with_cuda 1)
endif()
file(CONFIGURE OUTPUT "${quanta_include_dir}/quanta/built_with.h" CONTENT "#pragma once

#define QUANTA_BUILT_WITH_CUDA ${quanta_built_with_cuda}
")

# Kernels have a library of objects of their own, as nvcc takes other options than the C++ compiler.
if(QUANTA_HAS_CUDA)
  add_library(quanta_cuda_kernels OBJECT)
  target_include_directories(quanta_cuda_kernels PRIVATE "${quanta_include_dir}")
  set_target_properties(quanta_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON
                                                       CUDA_VISIBILITY_PRESET default)
  # CMake 3.25 knows no C++20 for nvcc. No product and sum may become one, as on the CPU.
  set(warnings "$<$<BOOL:${QUANTA_WERROR}>:SHELL:-Werror all-warnings>")
  target_compile_options(
    quanta_cuda_kernels PRIVATE -std=c++20 -fmad=false --expt-relaxed-constexpr "${warnings}"
                                "SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off")
endif()

# Adds kernels (.cu files) to the library: quanta_add_kernels(files...), relative to the calling
# folder. The C++ compiler makes them for the emulated device, in every build; nvcc for GPUs.
function(quanta_add_kernels)
  foreach(file IN LISTS ARGN)
    set(source "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${source}")
    set(emulated "${PROJECT_BINARY_DIR}/emulated/${path}.cpp")
    file(CONFIGURE OUTPUT "${emulated}" CONTENT "#include \"quanta/${path}\"\n")
    target_sources(quanta PRIVATE "${emulated}")
    if(QUANTA_HAS_CUDA)
      target_sources(quanta_cuda_kernels PRIVATE "${source}")
    endif()
  endforeach()
endfunction()
