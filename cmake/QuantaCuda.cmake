# The CUDA backend for GPUs. Without it there is the emulated device alone, which needs nothing.
#
# It is built with a toolkit of 13.0 or later: the one in third_party/cuda (tools/setup --cuda), that
# of CMAKE_CUDA_COMPILER, or the first nvcc of the PATH. cuBLAS, cuDNN 9 and cudnn-frontend are
# needed for their headers only: programs open the libraries when they want a float product.
# QUANTA_CUDA=AUTO builds it where all of that is there, else says what is missing, without asking
# nvcc anything; ON ends with an error then.

# What an earlier configuration found and is gone since is looked for again.
function(quanta_forget_if_gone variable file)
  if(${variable} AND NOT EXISTS "${file}")
    unset(${variable} CACHE)
  endif()
endfunction()

set(QUANTA_HAS_CUDA FALSE)
set(quanta_cuda_dir "${PROJECT_SOURCE_DIR}/third_party/cuda")
set(quanta_cuda_missing "")
if(NOT QUANTA_CUDA STREQUAL "OFF")
  if(CMAKE_CUDA_COMPILER)
    set(quanta_nvcc "${CMAKE_CUDA_COMPILER}")
  else()
    quanta_forget_if_gone(quanta_nvcc "${quanta_nvcc}")
    find_program(quanta_nvcc nvcc PATHS "${quanta_cuda_dir}/bin" NO_DEFAULT_PATH)
    find_program(quanta_nvcc nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(quanta_nvcc)
  endif()
  if(NOT quanta_nvcc)
    list(APPEND quanta_cuda_missing "nvcc of CUDA 13.0 or later")
  endif()
  get_filename_component(quanta_cuda_root "${quanta_nvcc}" REALPATH)
  get_filename_component(quanta_cuda_root "${quanta_cuda_root}/../.." ABSOLUTE)
  foreach(header IN ITEMS cublasLt.h cudnn.h cudnn_frontend.h)
    quanta_forget_if_gone(quanta_${header}_dir "${quanta_${header}_dir}/${header}")
    find_path(quanta_${header}_dir "${header}"
              HINTS "${quanta_cuda_root}/include" "${quanta_cuda_root}/targets/x86_64-linux/include"
                    "${quanta_cuda_dir}/include")
    mark_as_advanced(quanta_${header}_dir)
    if(NOT quanta_${header}_dir)
      list(APPEND quanta_cuda_missing "${header}")
    endif()
  endforeach()
  # cudnn-frontend 1.19 and later want this one too, though nothing of it is called.
  if(EXISTS "${quanta_cudnn_frontend.h_dir}/cudnn_frontend/experimental/nvrtc_shim.h"
     AND NOT EXISTS "${quanta_cuda_root}/include/nvrtc.h")
    list(APPEND quanta_cuda_missing "nvrtc.h (or a cudnn-frontend before 1.19)")
  endif()
  list(JOIN quanta_cuda_missing ", " quanta_cuda_missing)
endif()

if(QUANTA_CUDA STREQUAL "ON" AND quanta_cuda_missing)
  message(FATAL_ERROR
    "QUANTA_CUDA=ON: missing: ${quanta_cuda_missing}. tools/setup --cuda fetches what is not there "
    "into third_party/cuda; CMAKE_CUDA_COMPILER and CMAKE_PREFIX_PATH say where it is elsewhere. "
    "nvcc and cublasLt.h are of the CUDA toolkit 13, cudnn.h is of cuDNN 9 (PyPI: "
    "nvidia-cudnn-cu13), cudnn_frontend.h of cudnn-frontend (PyPI: nvidia-cudnn-frontend).")
elseif(QUANTA_CUDA STREQUAL "AUTO" AND quanta_cuda_missing)
  message(STATUS "Without CUDA for GPUs: missing: ${quanta_cuda_missing} (tools/setup --cuda)")
elseif(NOT QUANTA_CUDA STREQUAL "OFF")
  set(CMAKE_CUDA_COMPILER "${quanta_nvcc}")
  # PTX of the latest, for what comes after it.
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "GPUs to build for")
  enable_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
    # CMake 3.25 sets a property of this library, which CUDA 13 has no longer.
    if(NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit 13.0 REQUIRED)
    set(QUANTA_HAS_CUDA TRUE)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
  elseif(QUANTA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "QUANTA_CUDA=ON: expected a CUDA toolkit 13.0 or later, got "
                        "${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
  else()
    message(STATUS "Without CUDA for GPUs: expected a CUDA toolkit 13.0 or later, got "
                   "${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER})")
  endif()
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
function(quanta_add_kernel_objects name)
  add_library(${name} OBJECT)
  target_include_directories(${name} PRIVATE "${quanta_include_dir}")
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                           CUDA_VISIBILITY_PRESET default)
  # CMake 3.25 knows no C++20 for nvcc. No product and sum may become one, as on the CPU.
  set(warnings "$<$<BOOL:${QUANTA_WERROR}>:SHELL:-Werror all-warnings>")
  target_compile_options(
    ${name} PRIVATE -std=c++20 -fmad=false --expt-relaxed-constexpr "${warnings}"
                    "SHELL:-Xcompiler -Wall,-Wextra,-ffp-contract=off")
endfunction()
if(QUANTA_HAS_CUDA)
  quanta_add_kernel_objects(quanta_cuda_kernels)
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
