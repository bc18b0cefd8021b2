// Default parameters: what every kernel is checked with when no plan is given.
// A plan replaces this module; the names are the contract.

alias elem = f32; // storage type of matrix operands: Q, K, V, O, A, B, C
alias acc_elem = f32; // what rows are reduced and scanned in
alias out_elem = f32; // storage type of a row or pointwise kernel's output

const WORKGROUP_SIZE: u32 = 8u; // invocations; one lavapipe subgroup
