#pragma once
// The messages of one call, all under way at once. MPI cannot wait with a deadline, so they are polled; polling is also
// what moves the bytes.

#include <mpi.h>

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"

namespace holdfast {

class MpiRequests {
 public:
  /// Messages above 1 GiB travel in pieces: MPI counts in int.
  absl::Status Send(MPI_Comm comm, int peer, int tag, ConstBytes data);
  absl::Status Receive(MPI_Comm comm, int peer, int tag, Bytes data);

  /// Polls until all are done or `check`, asked at every turn, fails. InvalidArgument if a message has another size.
  absl::Status Wait(absl::FunctionRef<absl::Status()> check);

  /// The peers of messages that were not done at the last turn, sorted.
  std::vector<int> Missing() const;
  /// Those of messages that are not done now: this process may have been frozen since.
  absl::StatusOr<std::vector<int>> MissingNow();

  /// After a failure: takes back what can be taken back. What a peer is already moving gets a moment to finish; after
  /// that its memory may still be in use.
  void Cancel();

 private:
  struct Piece {
    int peer;
    bool receive, done;
    int bytes;
  };

  absl::Status Poll(bool& all_done);

  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;  // one for each request
};

}  // namespace holdfast
