# How every target of Quanta's own is made.

function(quanta_compile_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR
                                                                ${QUANTA_WERROR})
  target_compile_features(${target} PRIVATE cxx_std_20)
  # No product and sum may become one fma where the source does not ask for it: the numbers would
  # depend on the compiler and on the instruction set.
  # Everything is position-independent: the library's objects serve static and shared libraries
  # alike, and the programs share its precompiled header.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off
                                           -fPIC $<$<CONFIG:Release>:-O2>)
  if(QUANTA_SANITIZE)
    # GCC finds uninitialized values within std::regex and std::function then, where there are none.
    target_compile_options(
      ${target} PRIVATE -fsanitize=${QUANTA_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer -O1
                        $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                        $<$<BOOL:${QUANTA_FUZZ}>:-fsanitize=fuzzer-no-link>)
    # Whoever links the library has to link the sanitizer's runtime too.
    target_link_options(${target} PUBLIC -fsanitize=${QUANTA_SANITIZE})
  endif()
endfunction()

# Kernels are inlined into one another many times over, and once for each instruction set. Under
# clang's sanitizers they are plain and for AVX2, and not every pointer in them is checked: the third
# of the time to build, and minutes less for a file. AddressSanitizer sees what leaves a tensor, and
# GCC's build has AVX-512.
function(quanta_lighten_kernels target)
  if(NOT (QUANTA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  foreach(source IN LISTS sources)
    file(STRINGS "${source}" found REGEX "hwy/foreach_target[.]h" LIMIT_COUNT 1)
    if(found)
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_DEFINITIONS QUANTA_WITHOUT_AVX512)
      if(QUANTA_SANITIZE MATCHES "undefined")
        set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS
                     -fno-sanitize=pointer-overflow,null,alignment,object-size)
      endif()
    endif()
  endforeach()
endfunction()

# Libraries are static unless BUILD_SHARED_LIBS says otherwise. With QUANTA_BOTH_KINDS there is the
# other kind as well, linked from the same objects: quanta_static or quanta_shared beside quanta.
set(quanta_kinds static shared)
if(BUILD_SHARED_LIBS)
  list(REVERSE quanta_kinds)
endif()
list(GET quanta_kinds 0 quanta_first_kind)
list(GET quanta_kinds 1 quanta_other_kind)
if(NOT QUANTA_BOTH_KINDS)
  list(REMOVE_AT quanta_kinds 1)
endif()

# Sets `variable` to the target that is the library `name` (quanta, models, ...) of that kind.
function(quanta_library_target variable name kind)
  set(target quanta)
  if(NOT name STREQUAL quanta)
    set(target quanta_${name})
  endif()
  if(kind STREQUAL "${quanta_other_kind}")
    set(target ${target}_${kind})
  endif()
  set(${variable} ${target} PARENT_SCOPE)
endfunction()

# Adds the library quanta::<name>: quanta_add_library(name SOURCES ... USES quanta ... LIBRARIES ...)
# where USES names libraries of Quanta's own and LIBRARIES what is linked besides.
function(quanta_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;USES;LIBRARIES")
  quanta_library_target(first ${name} ${quanta_first_kind})
  foreach(kind IN LISTS quanta_kinds)
    quanta_library_target(target ${name} ${kind})
    if(kind STREQUAL "${quanta_first_kind}")
      add_library(${target} ${arg_SOURCES})
      add_library(quanta::${name} ALIAS ${target})
      quanta_compile_options(${target})
      # Position-independent code that costs a static program nothing: a function of the library may
      # be inlined into another one, and the few bytes of thread-local state need no call to find
      # them.
      target_compile_options(${target} PRIVATE -fno-semantic-interposition
                                               -ftls-model=initial-exec)
      quanta_precompile(${target})
    else()
      string(TOUPPER ${kind} type)
      add_library(${target} ${type} $<TARGET_OBJECTS:${first}>)
      if(QUANTA_SANITIZE)
        target_link_options(${target} PUBLIC -fsanitize=${QUANTA_SANITIZE})
      endif()
    endif()
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${quanta_include_dir}>)
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} fmt::fmt)
    foreach(used IN LISTS arg_USES)
      quanta_library_target(used_target ${used} ${kind})
      target_link_libraries(${target} PUBLIC ${used_target})
    endforeach()
    if(kind STREQUAL "shared")
      # What is exported has to do with Quanta; not the insides of fmt and Highway.
      set(exports "${PROJECT_SOURCE_DIR}/cmake/exports.map")
      target_link_options(${target} PRIVATE "LINKER:--version-script=${exports}")
      set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${exports}")
    endif()
    set_target_properties(
      ${target}
      PROPERTIES OUTPUT_NAME ${first}
                 EXPORT_NAME ${name}
                 LINKER_LANGUAGE CXX
                 VERSION ${PROJECT_VERSION}
                 SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endforeach()
endfunction()

# For tests and commands: what takes their time is in the library, which is optimised in full, and they
# are compiled sooner. Before quanta_precompile, which asks for it.
function(quanta_light_options target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${target} PROPERTIES QUANTA_LIGHT ON)
endfunction()

# The standard library and fmt are parsed once instead of once a file, which is a third of the time
# to build. Only headers from outside are in it, so that changing one of Quanta's rebuilds no more
# than before.
set(quanta_precompiled_headers
    <algorithm>
    <array>
    <bit>
    <cmath>
    <cstdint>
    <cstring>
    <functional>
    <initializer_list>
    <limits>
    <map>
    <memory>
    <mutex>
    <optional>
    <span>
    <string>
    <string_view>
    <type_traits>
    <typeindex>
    <unordered_map>
    <utility>
    <vector>
    <fmt/format.h>
    <fmt/ranges.h>)

# What owns a precompiled header. ccache must not take one for another whose comments differ: GCC knows
# by a header's bytes what `#pragma once` keeps out, and the second time would define all of it again.
# In depend mode ccache compares files, never what is left of them without comments; in a namespace of
# its own (ccache 4.6 and later) it meets no header that was kept the other way.
function(quanta_own_precompiled target)
  target_precompile_headers(${target} PRIVATE ${quanta_precompiled_headers} ${ARGN})
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    set(environment "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=true CCACHE_NAMESPACE=precompiled)
    set_target_properties(
      ${target} PROPERTIES CXX_COMPILER_LAUNCHER "${environment};${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

# One for the library, and one for what is compiled with light options: GCC 13 and later take no header
# that was precompiled at another level of optimisation.
foreach(target IN ITEMS quanta_precompiled quanta_light_precompiled)
  add_library(${target} OBJECT "${CMAKE_CURRENT_LIST_DIR}/precompiled.cpp")
  quanta_compile_options(${target})
  target_link_libraries(${target} PRIVATE fmt::fmt OpenMP::OpenMP_CXX)
  quanta_own_precompiled(${target})
endforeach()
quanta_light_options(quanta_light_precompiled)

# quanta_precompile(target [FROM other] [more headers]): a target that asks for more has its own, and
# `other` shares what it has.
function(quanta_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FROM" "")
  get_target_property(light ${target} QUANTA_LIGHT)
  target_link_libraries(${target} PRIVATE fmt::fmt OpenMP::OpenMP_CXX)
  if(arg_UNPARSED_ARGUMENTS)
    quanta_own_precompiled(${target} ${arg_UNPARSED_ARGUMENTS})
  elseif(arg_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  elseif(light)
    target_precompile_headers(${target} REUSE_FROM quanta_light_precompiled)
  else()
    target_precompile_headers(${target} REUSE_FROM quanta_precompiled)
  endif()
endfunction()

# Adds a program that links the library: quanta_add_program(target LIGHT OUTPUT_NAME name SOURCES ...
# LIBRARIES ... PRECOMPILE [FROM target] <header> ..., see quanta_light_options, quanta_precompile). Does
# nothing while the list of sources is empty.
function(quanta_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIGHT" "OUTPUT_NAME" "SOURCES;LIBRARIES;PRECOMPILE")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${target} ${arg_SOURCES})
  quanta_compile_options(${target})
  if(arg_LIGHT)
    quanta_light_options(${target})
  endif()
  quanta_precompile(${target} ${arg_PRECOMPILE})
  target_link_libraries(${target} PRIVATE quanta::quanta ${arg_LIBRARIES})
  if(arg_OUTPUT_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  endif()
  if(QUANTA_SANITIZE)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/sanitizer_defaults.cpp")
  endif()
endfunction()
