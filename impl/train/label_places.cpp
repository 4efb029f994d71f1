#include "train/label_places.h"

#include "nn/loss.h"

namespace gangway {

void check_label_places(const Tensor& tokens, const Tensor& labels, bool shifts) {
  if (!(tokens.shape() == labels.shape()) || tokens.rank() != 2) return;
  const int64_t *token = tokens.data<int64_t>(), *label = labels.data<int64_t>();
  const int64_t length = tokens.dim(1);
  bool own = true, next = true;  // whether each label that counts is its own token, or the next one
  int64_t counted = 0;
  for (int64_t i = 0; i < tokens.count(); ++i) {
    const bool last = i % length == length - 1;
    if (label[i] == kIgnoredLabel || (last && shifts)) continue;  // a shift drops the last label
    ++counted;
    own = own && label[i] == token[i];
    next = next && (last || label[i] == token[i + 1]);
    if (!(shifts ? next : own)) return;
  }
  if (own == next) return;
  if (shifts)
    fail(Code::invalid_argument, "each of the ", counted,
         " labels of targets[0] that count is the next token already, ",
         "and batch.shift_labels = 1 would shift them again; leave shift_labels at 0");
  fail(Code::invalid_argument, "each of the ", counted,
       " labels of targets[0] that count is its own token, so that ",
       "the model would learn to copy; pass the tokens without targets, or set batch.shift_labels to 1");
}

}  // namespace gangway
