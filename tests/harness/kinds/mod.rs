//! What is checked in each folder of cases.

pub(crate) mod codegen;
pub(crate) mod ir;
pub(crate) mod passes;
pub(crate) mod run;
