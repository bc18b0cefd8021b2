// What a mask does on a tile of queries and keys, as bits of a u32.

// It is true for some query and key of the tile.
const BLOCK_LIVE: u32 = 1u;

// It is false for some.
const BLOCK_DEAD: u32 = 2u;
