# How every target of Quanta's own is compiled.

function(quanta_compile_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR
                                                                ${QUANTA_WERROR})
  target_compile_features(${target} PRIVATE cxx_std_20)
  # No product and sum may become one fma where the source does not ask for it: the numbers would
  # depend on the compiler and on the instruction set.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -ffp-contract=off
                                           $<$<CONFIG:Release>:-O2>)
  if(NOT BUILD_SHARED_LIBS)
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
  endif()
  if(QUANTA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${QUANTA_SANITIZE}
                                             -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
    # Whoever links the library has to link the sanitizer's runtime too.
    target_link_options(${target} PUBLIC -fsanitize=${QUANTA_SANITIZE})
  endif()
endfunction()

# Adds a program that links the library: quanta_add_program(target OUTPUT_NAME name SOURCES ...
# LIBRARIES ...). Does nothing while the list of sources is empty.
function(quanta_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_NAME" "SOURCES;LIBRARIES")
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${target} ${arg_SOURCES})
  quanta_compile_options(${target})
  target_link_libraries(${target} PRIVATE quanta::quanta ${arg_LIBRARIES})
  if(arg_OUTPUT_NAME)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  endif()
  if(QUANTA_SANITIZE)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/sanitizer_defaults.cpp")
  endif()
endfunction()
