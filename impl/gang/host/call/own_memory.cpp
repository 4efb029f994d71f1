#include "gang/host/call/own_memory.h"

#include "gang/host/call/reasons.h"

namespace gangway::host {

bool may_stay(const Call& call) {
  const Op& op = call.op;
  const size_t parts = op.algorithm->cut == Cut::by_reader ? static_cast<size_t>(call.size()) : 1;
  return op.algorithm->only_moves && op.in_bytes / parts >= kKernelCopy &&
         call.team.member().peer_reads().allowed();
}

bool read_own(const Call& call, int peer, uint64_t address, void* to, size_t bytes) {
  const Team& team = call.team;
  const PeerReads::Result result =
      team.member().peer_reads().read(team.domain_rank(peer), address, to, bytes);
  if (result == PeerReads::Result::copied) return true;
  if (result == PeerReads::Result::ended) return false;
  refuse_when_given_up(team, call.op);  // its caller may have freed the memory since
  if (team.board().broken() || team.loss(peer)) return false;
  throw team.shaped(Error(Code::io, text(call_text(team, call.op), ": ", team.name_of(peer), " gave ", bytes,
                                         " bytes that the kernel does not read from its memory",
                                         result == PeerReads::Result::denied ? " any more" : "",
                                         "; GANGWAY_KERNEL_COPIES=0 copies them through shared memory")),
                    name(call.op.c.op), peer);
}

}  // namespace gangway::host
