// schedule: a workgroup computes the next tile that none has taken, as long as there are any and it may.
//
// A software rasteriser gives each of its threads a share of the workgroups beforehand and waits for the last, on cores
// that others use as well: this way a thread that is held up leaves its tiles to the others. The numbers come from a
// counter that is 0 when a run begins. All lanes are of one subgroup.
//
// Aila, Laine 2009, Understanding the Efficiency of Ray Traversal on GPUs, HPG'09 (persistent threads).

@group(2) @binding(0) var<storage, read_write> counters: array<atomic<u32>>;

fn compute_tiles(group: vec3<u32>, groups: vec3<u32>, lane: u32) {
    for (var taken = 0u; taken < shape.tiles_at_most; taken++) {
        var tile = 0u;
        if lane == 0u {
            tile = atomicAdd(&counters[shape.counter], 1u);
        }
        tile = subgroupBroadcastFirst(tile);
        if tile >= shape.tile_count {
            break;
        }
        compute_tile(tile, lane);
    }
}
