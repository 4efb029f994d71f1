#include "nn/documents.h"

#include "nn/kv_cache.h"

namespace gangway {

Positions positions_of(Context& ctx, int64_t tokens) {
  if (ctx.cache != nullptr) return ctx.cache->positions(ctx, tokens);
  return {tokens, {}};
}

}  // namespace gangway
