# Install rules: the libraries, the public headers, the command and the package that find_package
# reads. Components: runtime (shared libraries), dev (static libraries, CMake files), headers, tools
# (the command), distributed (what needs MPI).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(quanta_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/quanta")

# The wheel's oneDNN lives in this source tree; an installed Quanta must not depend on that.
set(quanta_installed_onednn "")
if(quanta_onednn_bundled)
  set(quanta_installed_onednn "${CMAKE_INSTALL_LIBDIR}/quanta/onednn")
  install(DIRECTORY "${quanta_onednn_dir}/" DESTINATION "${quanta_installed_onednn}"
          COMPONENT runtime FILES_MATCHING PATTERN "libdnnl.so*" PATTERN "include" EXCLUDE
                                           PATTERN "cmake" EXCLUDE)
  install(DIRECTORY "${quanta_onednn_dir}/" DESTINATION "${quanta_installed_onednn}"
          COMPONENT dev PATTERN "libdnnl.so*" EXCLUDE)
  set(quanta_onednn_libraries "${CMAKE_INSTALL_PREFIX}/${quanta_installed_onednn}/lib")
  file(RELATIVE_PATH quanta_program_rpath "${CMAKE_INSTALL_FULL_BINDIR}" "${quanta_onednn_libraries}")
  file(RELATIVE_PATH quanta_library_rpath "${CMAKE_INSTALL_FULL_LIBDIR}" "${quanta_onednn_libraries}")
  set(quanta_program_rpath "$ORIGIN/${quanta_program_rpath}")
  set(quanta_library_rpath "$ORIGIN/${quanta_library_rpath}")
else()
  set(quanta_program_rpath "$<TARGET_FILE_DIR:DNNL::dnnl>")
  set(quanta_library_rpath "$<TARGET_FILE_DIR:DNNL::dnnl>")
endif()
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH quanta_lib_from_bin "${CMAKE_INSTALL_FULL_BINDIR}"
       "${CMAKE_INSTALL_FULL_LIBDIR}")
  list(APPEND quanta_program_rpath "$ORIGIN/${quanta_lib_from_bin}")
endif()

# Each kind of library has files of its own that define the same names, quanta::quanta and so on;
# the package reads those of one kind. quanta::data, quanta::yaml and quanta::distributed stand apart
# because they need packages of their own.
foreach(kind IN LISTS quanta_kinds)
  foreach(name IN ITEMS quanta models training data yaml distributed)
    quanta_library_target(target ${name} ${kind})
    if(NOT TARGET ${target})
      continue()
    endif()
    set(export quanta_${kind})
    set(component runtime)
    if(name STREQUAL distributed)
      set(component distributed) # who installs the others needs no MPI
    endif()
    if(name MATCHES "^(data|yaml|distributed)$")
      set(export quanta_${kind}_${name})
    endif()
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;${quanta_library_rpath}")
    install(
      TARGETS ${target}
      EXPORT ${export}
      LIBRARY COMPONENT ${component} NAMELINK_COMPONENT dev
      ARCHIVE COMPONENT dev
      INCLUDES
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endforeach()
  set(exports quanta_${kind})
  if(QUANTA_BUILD_DATA)
    list(APPEND exports quanta_${kind}_data)
  endif()
  if(QUANTA_BUILD_YAML)
    list(APPEND exports quanta_${kind}_yaml)
  endif()
  if(QUANTA_HAS_MPI)
    list(APPEND exports quanta_${kind}_distributed)
  endif()
  foreach(export IN LISTS exports)
    install(
      EXPORT ${export}
      NAMESPACE quanta::
      DESTINATION "${quanta_package_dir}"
      COMPONENT dev)
  endforeach()
endforeach()

# What users may include. `cmake --install BUILD --component headers` installs only these.
install(FILES quanta.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/quanta" COMPONENT headers)
install(
  DIRECTORY runtime ops observers nn fusion
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/quanta"
  COMPONENT headers
  FILES_MATCHING
  PATTERN "*.h"
  REGEX "/(detail|cpu|cuda)$" EXCLUDE
  REGEX "/ops/[a-z_]+$" EXCLUDE # a family's folder is its own
  REGEX "/fusion/graph/(ops|passes)$" EXCLUDE # what rows and passes share
  REGEX "/runtime/check\\.h$" EXCLUDE)

# What a program that links the static quanta::data has to find.
set(quanta_data_codecs "")
foreach(codec PNG JPEG)
  if(${codec}_FOUND)
    list(APPEND quanta_data_codecs ${codec})
  endif()
endforeach()

if(TARGET quanta_cli)
  set_target_properties(quanta_cli PROPERTIES INSTALL_RPATH "${quanta_program_rpath}")
  install(TARGETS quanta_cli COMPONENT tools)
  if(TARGET quanta_distributed_cli)
    set_target_properties(quanta_distributed_cli PROPERTIES INSTALL_RPATH "${quanta_program_rpath}")
    install(TARGETS quanta_distributed_cli COMPONENT distributed)
  endif()
  # What `quanta demo` needs, and what shells read.
  install(FILES examples/data/fashion_mobilenet.safetensors examples/data/fashion_resnet.safetensors
          DESTINATION "${CMAKE_INSTALL_DATADIR}/quanta"
          COMPONENT tools)
  if(NOT CMAKE_CROSSCOMPILING)
    install(FILES "${PROJECT_BINARY_DIR}/tools/completion/quanta"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
            COMPONENT tools)
    install(FILES "${PROJECT_BINARY_DIR}/tools/completion/_quanta"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
            COMPONENT tools)
  endif()
endif()

configure_package_config_file(
  cmake/quantaConfig.cmake.in "${PROJECT_BINARY_DIR}/quantaConfig.cmake"
  INSTALL_DESTINATION "${quanta_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/quantaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/quantaConfig.cmake"
              "${PROJECT_BINARY_DIR}/quantaConfigVersion.cmake"
        DESTINATION "${quanta_package_dir}"
        COMPONENT dev)

if(PROJECT_IS_TOP_LEVEL)
  include(cmake/QuantaPackage.cmake)
endif()
