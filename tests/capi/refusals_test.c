#include "models.h"
int main(void) { return 0; }
