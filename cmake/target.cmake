# What the build is for: its processor, and whether the machine that builds can run it; and which of ggml's CPU variants
# a portable build carries. Leaves to CMakeLists.txt what follows from that.

# On macOS the processor is that of CMAKE_OSX_ARCHITECTURES, not that of the Mac that builds.
set(dualar_processor "${CMAKE_SYSTEM_PROCESSOR}")
if(CMAKE_OSX_ARCHITECTURES)
  list(LENGTH CMAKE_OSX_ARCHITECTURES architectures)
  if(architectures GREATER 1)
    message(FATAL_ERROR "[macOS] expected one architecture, got ${CMAKE_OSX_ARCHITECTURES}: the kernels are compiled "
                        "for one at a time. Set ARCHFLAGS=\"-arch arm64\" (or x86_64).")
  endif()
  set(dualar_processor "${CMAKE_OSX_ARCHITECTURES}")
endif()
set(dualar_runs_here ON)
if(CMAKE_CROSSCOMPILING OR NOT dualar_processor STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(dualar_runs_here OFF)
endif()

# targets: the name of a list of ggml's CPU targets, cut down to the wanted variants where any are named. ggml's library
# depends on all of them, so those that are not wanted stay, with nothing to compile.
function(dualar_choose_variants targets wanted)
  if(NOT wanted)
    return()
  endif()
  set(chosen)
  foreach(variant IN LISTS wanted)
    if(NOT TARGET "ggml-cpu-${variant}")
      list(TRANSFORM ${targets} REPLACE "^ggml-cpu-" "" OUTPUT_VARIABLE known)
      message(FATAL_ERROR "DUALAR_CPU_VARIANTS: expected some of ${known}, got \"${variant}\"")
    endif()
    list(APPEND chosen "ggml-cpu-${variant}")
  endforeach()
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/nothing.c" CONTENT "int dualar_nothing;\n")
  foreach(target IN LISTS ${targets})
    if(NOT target IN_LIST chosen)
      set_property(TARGET ${target} PROPERTY SOURCES "${CMAKE_CURRENT_BINARY_DIR}/nothing.c")
      set_property(TARGET ${target} PROPERTY LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/unwanted")
    endif()
  endforeach()
  set(${targets} "${chosen}" PARENT_SCOPE)
endfunction()
