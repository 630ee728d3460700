# Compiler settings, and every third-party library under one name (Holdfast::X), from Debian's packages.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# The bits of a run may depend on nothing but the source: no contraction of a*b+c into an fma the source does not spell
# out, and a baseline that every supported CPU has. Kernels choose wider instructions at run time.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-math-errno;-march=x86-64-v3>"
                    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

if(HOLDFAST_SANITIZE)
  add_compile_options(-fsanitize=${HOLDFAST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HOLDFAST_SANITIZE})
endif()

if(HOLDFAST_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 cannot ask nvcc for more
  enable_language(CUDA)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED)
find_package(absl REQUIRED)
find_package(dnnl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

function(holdfast_bundle name)
  add_library(holdfast_bundle_${name} INTERFACE)
  target_link_libraries(holdfast_bundle_${name} INTERFACE ${ARGN})
  add_library(Holdfast::${name} ALIAS holdfast_bundle_${name})
endfunction()

holdfast_bundle(Abseil absl::status absl::statusor absl::span absl::strings absl::str_format absl::function_ref
                absl::flat_hash_map)
holdfast_bundle(OneDNN DNNL::dnnl OpenMP::OpenMP_CXX)
holdfast_bundle(Highway PkgConfig::HWY)
holdfast_bundle(Json nlohmann_json::nlohmann_json)
holdfast_bundle(Threads Threads::Threads)
holdfast_bundle(Yaml yaml-cpp)
holdfast_bundle(Pcre2 PkgConfig::PCRE2)
holdfast_bundle(XxHash PkgConfig::XXHASH)
holdfast_bundle(Cli CLI11::CLI11)
