#pragma once
// Functions that host and GPU share say so where CUDA's compiler reads them.

#if defined(__CUDACC__)
#define HOLDFAST_HOST_DEVICE __host__ __device__
#else
#define HOLDFAST_HOST_DEVICE
#endif
