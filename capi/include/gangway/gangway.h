/* Gangway: sharded training for any language. This header includes all others. */
#ifndef GANGWAY_GANGWAY_H
#define GANGWAY_GANGWAY_H

#include <gangway/api.h>
#include <gangway/base.h>
#include <gangway/checkpoint.h>
#include <gangway/checkpoints.h>
#include <gangway/collectives.h>
#include <gangway/custom.h>
#include <gangway/custom_optimizer.h>
#include <gangway/dataset.h>
#include <gangway/fp8.h>
#include <gangway/frame.h>
#include <gangway/gang.h>
#include <gangway/layers.h>
#include <gangway/lora.h>
#include <gangway/mesh.h>
#include <gangway/metrics.h>
#include <gangway/module.h>
#include <gangway/optim.h>
#include <gangway/optimizers.h>
#include <gangway/parallel.h>
#include <gangway/parameter.h>
#include <gangway/partition.h>
#include <gangway/pipeline.h>
#include <gangway/plan.h>
#include <gangway/store.h>
#include <gangway/train.h>
#include <gangway/verify.h>
#include <gangway/view.h>
#include <gangway/work.h>

#endif
