//! The order of the passes. The order is the design; each comment says why the line is where it is.

use crate::passes::{
    Canonicalise, DeadCode, FoldConstants, FoldViews, FuseAttention, FuseEpilogues, FusePointwise,
    LowerConv, MergeProjections, RecogniseActivations, RecogniseLinearAttention, RecogniseNorms,
    RecogniseSoftmax, SinkIndices, SplitRows,
};
use crate::{Options, Pass};

/// The passes of a compilation, in order.
#[must_use]
pub fn pipeline(options: &Options) -> Vec<Box<dyn Pass>> {
    let mut passes: Vec<Box<dyn Pass>> = vec![
        // One spelling of views and axes, equal nodes once: every later rule tests one form.
        Box::new(Canonicalise),
        // Small subgraphs of constants become constants, so that the next pass sees whole tables.
        Box::new(FoldConstants),
        // Tables that are a formula of their index (positions, triangles) become the formula: masks and
        // index arithmetic then need no memory, and sink into whatever reads them.
        Box::new(SinkIndices),
        // Before pointwise ops are merged, while the decomposed forms are still single nodes.
        Box::new(RecogniseNorms),
        // Before softmax, with which attentions are counted.
        Box::new(RecogniseLinearAttention),
        Box::new(RecogniseSoftmax),
        Box::new(RecogniseActivations),
        // A convolution is a product of gathered patches; after this only matmul contracts.
        Box::new(LowerConv),
    ];
    if options.fuse_attention {
        // Grouped heads whose rows an exporter merged become axes again, as the next pass reads them.
        passes.push(Box::new(SplitRows));
        // Needs masks in place and one spelling of views; before pointwise fusion, which would merge masks
        // into kernels of their own.
        passes.push(Box::new(FuseAttention));
    }
    passes.extend::<Vec<Box<dyn Pass>>>(vec![
        // What fusion left unused must not be fused into kernels or keep producers alive.
        Box::new(DeadCode),
        // New transposes around attention meet old ones.
        Box::new(Canonicalise),
        // Pointwise users of one kernel ride on its stores; before `fuse-pointwise` takes them.
        Box::new(FuseEpilogues),
        // Once biases ride on their products, and while rotary embeddings still are nodes that read them.
        Box::new(MergeProjections),
        // Everything elementwise that is left becomes as few kernels as it can.
        Box::new(FusePointwise),
        // Every operand of a kernel must be a strided window by now: choose storage orders, else copy.
        Box::new(FoldViews),
        Box::new(DeadCode),
    ]);
    passes
}
