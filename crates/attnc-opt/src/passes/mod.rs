//! The passes, one per file, named as in remarks.

mod canonicalise;
mod dead_code;
mod fold_constants;
mod fold_views;
mod fuse_attention;
mod fuse_epilogues;
mod fuse_pointwise;
mod lower_conv;
mod matching;
mod merge_projections;
mod recognise_activations;
mod recognise_linear_attention;
mod recognise_norms;
mod recognise_softmax;
mod sink_indices;
mod split_rows;

pub use canonicalise::Canonicalise;
pub use dead_code::DeadCode;
pub use fold_constants::FoldConstants;
pub use fold_views::FoldViews;
pub use fuse_attention::FuseAttention;
pub use fuse_epilogues::FuseEpilogues;
pub use fuse_pointwise::FusePointwise;
pub use lower_conv::LowerConv;
pub use merge_projections::MergeProjections;
pub use recognise_activations::RecogniseActivations;
pub use recognise_linear_attention::RecogniseLinearAttention;
pub use recognise_norms::RecogniseNorms;
pub use recognise_softmax::RecogniseSoftmax;
pub use sink_indices::SinkIndices;
pub use split_rows::SplitRows;
