//! The operators: two tables, one file a family.
//!
//! An importer reads operands and attributes of a [`Call`] and gives the results. The tables say which
//! attributes it understands; any other is an error before it runs, so none is ever ignored.

mod attend;
mod attention;
mod cache_write;
mod causal_conv;
mod constant;
mod contrib;
mod contrib_attention;
mod conv;
mod einsum;
mod elementwise;
mod flex_attention;
mod fused;
mod gather;
mod linear_attention;
mod matmul;
mod nbits;
mod norm;
mod pixels;
mod pool;
mod quantised;
mod reduce;
mod resize;
mod rotary;
mod runtime;
mod scatter;
mod scatter_elements;
mod select;
mod sequences;
mod shape;
mod slice;
mod standard;

use crate::Operator;
use crate::attrs::Attrs;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::proto::NodeProto;
use crate::value::Value;

pub(crate) type Importer = fn(&mut Call<'_, '_>) -> OpResult<Vec<Value>>;

/// How an operator is imported.
pub(crate) struct OpEntry {
    domain: &'static str,
    name: &'static str,
    /// More operands than this are an error.
    pub(crate) most_inputs: usize,
    attrs: &'static [&'static str],
    /// The newest operator set whose definition of it this follows. Sets up to there that changed it are
    /// told apart by the importer, or only allow more element types.
    newest: i64,
    pub(crate) import: Importer,
    /// The results go through the subgraph of that attribute, where it is given, and then, behind the
    /// operands, through that importer; and so on.
    pub(crate) subgraphs: &'static [(&'static str, Importer)],
}

/// The newest operator set of ONNX whose operators were all compared with their importers.
pub(crate) const NEWEST: i64 = 28;

const fn op(
    name: &'static str,
    most_inputs: usize,
    attrs: &'static [&'static str],
    import: Importer,
) -> OpEntry {
    OpEntry {
        domain: "",
        name,
        most_inputs,
        attrs,
        newest: NEWEST,
        import,
        subgraphs: &[],
    }
}

/// An operator of `com.microsoft`, all of which are of version 1.
const fn ms(
    name: &'static str,
    most_inputs: usize,
    attrs: &'static [&'static str],
    import: Importer,
) -> OpEntry {
    OpEntry {
        domain: "com.microsoft",
        name,
        most_inputs,
        attrs,
        newest: 1,
        import,
        subgraphs: &[],
    }
}

const ANY: usize = usize::MAX;

/// Both tables.
fn entries() -> impl Iterator<Item = &'static OpEntry> {
    standard::OPS.iter().chain(runtime::OPS)
}

/// Every operator of the tables.
pub(crate) fn operators() -> impl Iterator<Item = Operator> {
    entries().map(|entry| Operator {
        domain: entry.domain,
        name: entry.name,
        most_inputs: entry.most_inputs,
        attributes: entry.attrs,
    })
}

/// What is said of an operator that is not known.
const ELSEWHERE: (&str, &str) = (
    "the operator is not supported",
    "an export that writes it in other operators",
);

/// Why an operator of the standard is not supported, and what would be needed.
fn refusal(op: &str) -> (&'static str, &'static str) {
    match op {
        "Compress" | "Unique" => (
            "a result whose length depends on data",
            "an export that selects with a mask (Where) instead of a list of positions",
        ),
        "NonMaxSuppression" => (
            "sorting by data",
            "an export that thresholds or masks instead",
        ),
        "SequenceMap" => (
            "control flow over sequences",
            "an export without it: traced, or with its loops unrolled",
        ),
        "ConvInteger" | "QLinearConv" => {
            ("convolutions of quantised models", "the model in floats")
        }
        "RandomNormal" | "RandomNormalLike" | "RandomUniform" | "RandomUniformLike"
        | "Bernoulli" | "Multinomial" => ("random numbers", "a model exported for inference"),
        _ => ELSEWHERE,
    }
}

/// The importer of a node, if its operator and all its attributes are known.
pub(crate) fn find(node: &NodeProto, attrs: &Attrs<'_>, opset: i64) -> OpResult<&'static OpEntry> {
    let domain = if node.domain == "ai.onnx" {
        ""
    } else {
        &node.domain
    };
    let Some(entry) = entries().find(|e| e.name == node.op_type && e.domain == domain) else {
        let (what, needed) = if domain.is_empty() {
            refusal(&node.op_type)
        } else {
            ELSEWHERE
        };
        return Err(OpError::unsupported(what, needed));
    };
    if opset > entry.newest {
        return Err(OpError::unsupported(
            format!("the operator as operator set {opset} defines it"),
            format!("operator set {} or older", entry.newest),
        ));
    }
    check_attributes(attrs, entry.attrs)?;
    Ok(entry)
}

/// Refuses attributes that are not among the known ones.
pub(crate) fn check_attributes(attrs: &Attrs<'_>, known: &[&str]) -> OpResult<()> {
    let names = attrs.0.iter().map(|(name, _)| *name);
    let unknown: Vec<_> = names.filter(|name| !known.contains(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let needed = if known.is_empty() {
        "no attribute".to_owned()
    } else {
        format!("only `{}`", known.join("`, `"))
    };
    let what = format!("attribute `{}`", unknown.join("`, `"));
    Err(OpError::unsupported(what, needed))
}
