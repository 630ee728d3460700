// Compiles the including file once for AVX2 and once for AVX-512; HWY_DYNAMIC_DISPATCH picks one at run time. The file
// defines HWY_TARGET_INCLUDE first, and includes nothing of Highway before this. No include guard: see Highway's
// manual.

// Our baseline, x86-64-v3, is AVX2 without AES, which Highway would take for less than SSE4 and compile three more
// targets. Nothing here uses AES.
#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES
#endif

#include "hwy/foreach_target.h"
