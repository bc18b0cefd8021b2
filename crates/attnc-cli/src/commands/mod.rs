//! The subcommands, one a file.

pub(crate) mod bench;
pub(crate) mod compile;
pub(crate) mod devices;
pub(crate) mod explain;
pub(crate) mod run;
pub(crate) mod tune;
pub(crate) mod verify;
