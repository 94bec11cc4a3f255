# Where there is no C++ compiler: one sentence that says what to install, in place of CMake's page.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "[install] There is no ready-made wheel of dualar for this platform, so it is compiled here, and "
                      "no C++ compiler was found: install one (Debian, Ubuntu, Raspberry Pi OS: `apt install g++`; "
                      "Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`; Termux: `pkg install clang`) and "
                      "run pip again.")
endif()
