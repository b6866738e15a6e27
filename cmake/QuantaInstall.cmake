# Install rules: the library, the public headers, the tools and the package that find_package reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(quanta_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/quanta")

install(TARGETS quanta EXPORT quantaTargets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(
  EXPORT quantaTargets
  NAMESPACE quanta::
  DESTINATION "${quanta_package_dir}")

if(TARGET quanta_data)
  install(TARGETS quanta_data EXPORT quantaDataTargets)
  install(
    EXPORT quantaDataTargets
    NAMESPACE quanta::
    DESTINATION "${quanta_package_dir}")
endif()

install(FILES quanta.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/quanta")
install(
  DIRECTORY runtime ops observers nn fusion
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/quanta"
  FILES_MATCHING
  PATTERN "*.h"
  REGEX "/(detail|cpu|cuda|yaml)$" EXCLUDE
  REGEX "/ops/[a-z_]+$" EXCLUDE # a family's folder is its own
  REGEX "/runtime/check\\.h$" EXCLUDE)

# The wheel's oneDNN lives in this source tree; an installed Quanta must not depend on that.
set(quanta_installed_onednn "")
if(quanta_onednn_bundled)
  set(quanta_installed_onednn "${CMAKE_INSTALL_LIBDIR}/quanta/onednn")
  install(DIRECTORY "${quanta_onednn_dir}/" DESTINATION "${quanta_installed_onednn}")
endif()

# What a program that links the static quanta::data has to find.
set(quanta_data_codecs "")
foreach(codec PNG JPEG)
  if(${codec}_FOUND)
    list(APPEND quanta_data_codecs ${codec})
  endif()
endforeach()

# The lib folder that holds libdnnl.so, for programs that are installed with the library.
if(quanta_onednn_bundled)
  file(RELATIVE_PATH quanta_program_rpath "${CMAKE_INSTALL_FULL_BINDIR}"
       "${CMAKE_INSTALL_PREFIX}/${quanta_installed_onednn}/lib")
  set(quanta_program_rpath "$ORIGIN/${quanta_program_rpath}")
  file(RELATIVE_PATH quanta_library_rpath "${CMAKE_INSTALL_FULL_LIBDIR}"
       "${CMAKE_INSTALL_PREFIX}/${quanta_installed_onednn}/lib")
  set_target_properties(quanta PROPERTIES INSTALL_RPATH "$ORIGIN/${quanta_library_rpath}")
else()
  set(quanta_program_rpath "$<TARGET_FILE_DIR:DNNL::dnnl>")
  set_target_properties(quanta PROPERTIES INSTALL_RPATH "$<TARGET_FILE_DIR:DNNL::dnnl>")
endif()
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH quanta_lib_from_bin "${CMAKE_INSTALL_FULL_BINDIR}"
       "${CMAKE_INSTALL_FULL_LIBDIR}")
  list(APPEND quanta_program_rpath "$ORIGIN/${quanta_lib_from_bin}")
  if(TARGET quanta_data)
    set_target_properties(quanta_data PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
endif()
foreach(program quanta_cli quanta_conform)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${quanta_program_rpath}")
    install(TARGETS ${program})
  endif()
endforeach()

configure_package_config_file(
  cmake/quantaConfig.cmake.in "${PROJECT_BINARY_DIR}/quantaConfig.cmake"
  INSTALL_DESTINATION "${quanta_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/quantaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/quantaConfig.cmake"
              "${PROJECT_BINARY_DIR}/quantaConfigVersion.cmake"
        DESTINATION "${quanta_package_dir}")
