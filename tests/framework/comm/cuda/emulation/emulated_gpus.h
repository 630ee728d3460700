#pragma once
// GPUs and an NCCL that a machine without them can run framework/comm/cuda on. They do what makes NCCL hard to use:
//   - every call goes on in the background, and its kernel is on the stream only when that is done;
//   - messages between two ranks are matched by their order alone;
//   - a kernel holds blocks of its GPU until all its peers have come, and waits for them if others hold too many;
//   - the first message to a peer, freeing memory and aborting wait for all that runs on the GPU;
//   - an abort is seen by nobody else;
//   - two ranks on one GPU are refused when all have connected.

namespace holdfast {

constexpr int kEmulatedGpus = 8;
constexpr int kEmulatedBlocks = 32;  // of each; a communicator without maxCTAs takes all of them

/// From now on kernels do not see that they are to be aborted, or see it again.
void MakeKernelsStubborn(bool stubborn);

/// From now on the process cannot use GPUs any more, or can again.
void LoseGpus(bool lost);

/// How often ncclSend was called.
int NcclSends();

}  // namespace holdfast
