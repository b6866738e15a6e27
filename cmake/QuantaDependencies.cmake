# Finds what Quanta is built from. tools/setup installs all of it on Debian and Ubuntu.

# find_package whose failure says what to install. A macro, because some packages set variables
# that their own functions read later.
macro(quanta_find_package name debian_package)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "Quanta needs ${name}, which was not found. Run tools/setup, "
                        "or install the Debian package ${debian_package}.")
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
quanta_find_package(Threads libc6-dev)
quanta_find_package(OpenMP libgomp1 COMPONENTS CXX)
quanta_find_package(fmt libfmt-dev CONFIG)
quanta_find_package(hwy libhwy-dev CONFIG)

# protozero, for ONNX files, is headers only and has no CMake package.
find_path(QUANTA_PROTOZERO_INCLUDE_DIR protozero/pbf_reader.hpp)
mark_as_advanced(QUANTA_PROTOZERO_INCLUDE_DIR)
if(NOT QUANTA_PROTOZERO_INCLUDE_DIR)
  message(FATAL_ERROR "Quanta needs protozero, which was not found. Run tools/setup, or install the "
                      "Debian package libprotozero-dev.")
endif()

# A system oneDNN comes first; Debian 12 has only 2.6, so tools/setup unpacks the wheel of 3.2.
set(quanta_onednn_dir "${PROJECT_SOURCE_DIR}/third_party/onednn")
find_package(dnnl 3.2 CONFIG QUIET)
if(NOT dnnl_FOUND)
  find_package(dnnl 3.2 CONFIG QUIET PATHS "${quanta_onednn_dir}" NO_DEFAULT_PATH)
endif()
if(NOT dnnl_FOUND)
  message(FATAL_ERROR "Quanta needs oneDNN >= 3.2, which was not found. Run tools/setup to put it "
                      "into third_party/onednn, or set CMAKE_PREFIX_PATH to where it is installed.")
endif()
if(DNNL_CPU_THREADING_RUNTIME AND NOT DNNL_CPU_THREADING_RUNTIME STREQUAL "OMP")
  message(WARNING "oneDNN in ${dnnl_DIR} runs its threads with ${DNNL_CPU_THREADING_RUNTIME}, not "
                  "OpenMP: Quanta's thread settings will not reach it.")
endif()
cmake_path(IS_PREFIX quanta_onednn_dir "${dnnl_DIR}" quanta_onednn_bundled)
message(STATUS "oneDNN ${dnnl_VERSION} in ${dnnl_DIR}")

# For quanta::data: zlib for the data sets' .gz files; PNG and JPEG images only where the libraries
# are.
if(QUANTA_BUILD_DATA)
  quanta_find_package(ZLIB zlib1g-dev)
  foreach(codec PNG JPEG)
    find_package(${codec} QUIET)
    if(NOT ${codec}_FOUND)
      message(STATUS "quanta::data reads no ${codec} images: tools/setup installs what they need")
    endif()
  endforeach()
endif()

# Beyond the libraries: JSON for the tests and tools.
if(QUANTA_BUILD_TESTS OR QUANTA_BUILD_TOOLS OR QUANTA_BUILD_EXAMPLES)
  quanta_find_package(nlohmann_json nlohmann-json3-dev CONFIG)
endif()
if(QUANTA_BUILD_TESTS OR QUANTA_BUILD_TOOLS)
  quanta_find_package(CLI11 libcli11-dev CONFIG)
endif()
if(QUANTA_BUILD_BENCHMARKS)
  quanta_find_package(benchmark libbenchmark-dev CONFIG)
endif()
if(QUANTA_BUILD_TESTS)
  quanta_find_package(doctest doctest-dev CONFIG)
endif()
# For quanta::yaml.
if(QUANTA_BUILD_YAML)
  quanta_find_package(yaml-cpp libyaml-cpp-dev CONFIG)
endif()

# For quanta::distributed.
set(QUANTA_HAS_MPI OFF)
if(QUANTA_MPI STREQUAL "ON" OR (QUANTA_MPI STREQUAL "AUTO" AND QUANTA_BUILD_DATA))
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(QUANTA_HAS_MPI ON)
    # The C functions alone.
    target_compile_definitions(MPI::MPI_CXX INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    message(STATUS "MPI ${MPI_CXX_VERSION}: ${MPI_CXX_LIBRARIES}")
  elseif(QUANTA_MPI STREQUAL "ON")
    message(FATAL_ERROR "QUANTA_MPI: expected MPI, which was not found. Run tools/setup --mpi, or "
                        "install the Debian packages libopenmpi-dev and openmpi-bin.")
  else()
    message(STATUS "quanta::distributed is left out: tools/setup --mpi installs what it needs (MPI)")
  endif()
endif()
