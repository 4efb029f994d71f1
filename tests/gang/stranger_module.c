/* What another build of a loadable module begins with; without STRANGER: a library that is no module. */
#ifdef STRANGER
static const struct { const char* build_id; } table = {STRANGER};
__attribute__((visibility("default"))) const void* gangway_mpi_module(void);
const void* gangway_mpi_module(void) { return &table; }
#else
int gangway_no_module(void);
int gangway_no_module(void) { return 0; }
#endif
