# Models, shard groups and files on one GPU: the facts of single.jl, where calls without gangs take those of a GPU.
using Gangway, Test
using Gangway: LibGangway, refuse

include("facts.jl")

const GANGS = start()
const ONE = GANGS.root

Gangway.with_current(() -> include("model_facts.jl"), GANGS)
Gangway.with_current(() -> include("step_facts.jl"), GANGS)
Gangway.with_current(() -> include("run_facts.jl"), GANGS)

fact("memory of a gang of GPUs is no array") do
    @test refused(() -> Gangway.alloc(ONE, Float32, 4), "memory is of $DEVICE, where Julia cannot read it"; kind = ArgumentError)
end

exit(report_counts() ? 0 : 1)
