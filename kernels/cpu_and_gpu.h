#pragma once
// Functions that CPU and GPU share say so where CUDA's compiler reads them.

#if defined(__CUDACC__)
#define HOLDFAST_CPU_AND_GPU __host__ __device__
#else
#define HOLDFAST_CPU_AND_GPU
#endif
