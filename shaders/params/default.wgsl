// Default parameters: what every kernel is checked with when no plan is given.
// A plan replaces this module; the names are the contract.

alias acc_elem = f32; // what rows are reduced and scanned in
alias out_elem = f32; // what a row or pointwise kernel's elements are computed in
alias out_item = f32; // what they are stored as
alias lane_elem = f32; // what the lanes of a row exchange

const WORKGROUP_SIZE: u32 = 8u; // invocations; one lavapipe subgroup
const ITEMS_PER_INVOCATION: u32 = 1u; // of a pointwise kernel
const SUBGROUP_SIZE_MIN: u32 = 4u; // lanes that a subgroup has at least
const BLOCK_M: u32 = 64u; // queries of a tile of attention that is skipped as a whole
const BLOCK_N: u32 = 64u; // keys of such a tile
const PART_KEYS: u32 = 128u; // keys of a part, where attention is walked in parts

// Of linear_attention.
const KEY_DIM: u32 = 4u; // columns of Q and K, rows of the state
const IS_DELTA: bool = true; // whether the value is written as a difference from what is held
const RETURNS_STATE: bool = false; // the last state, else the rows that the queries read
const SHARES_STATE: bool = true; // whether the rows are those of several query heads of a KV head
