# CMake's toolchain file for a portable build with zig (`ziglang` on PyPI) for Linux with an old glibc, for the processor
# in DUALAR_WHEEL_MACHINE (x86_64 or aarch64) of the environment. DUALAR_WHEEL_COMPILERS is a folder with four programs:
# cc and c++, which run tools/zig_compiler.py for that processor, and ar and ranlib, which run zig's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "$ENV{DUALAR_WHEEL_MACHINE}")
set(CMAKE_C_COMPILER "$ENV{DUALAR_WHEEL_COMPILERS}/cc")
set(CMAKE_CXX_COMPILER "$ENV{DUALAR_WHEEL_COMPILERS}/c++")
set(CMAKE_AR "$ENV{DUALAR_WHEEL_COMPILERS}/ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "$ENV{DUALAR_WHEEL_COMPILERS}/ranlib" CACHE FILEPATH "")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")
