// A libnccl.so.2 that is too old: its communicators cannot be aborted in a group.
__attribute__((visibility("default"))) int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
  *version = 21903;
  return 0;
}
