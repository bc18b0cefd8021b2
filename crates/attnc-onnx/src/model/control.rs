//! Operators with graphs inside: `Scan` and `Loop` are unrolled where the number of rounds is a constant of
//! modest size, of `If` the branch is taken that a known condition chooses.
//!
//! The graph of attnc has no control flow, so that lengths stay symbolic and every value has one type. What
//! depends on data is refused by name.
//!
//! A body sees the names around it. Those it uses are looked up before its first round, so that a round is
//! a scope of its own, like the call of a function.

use super::{Importer, Scope};
use crate::attrs::Attrs;
use crate::error::{OpError, OpResult};
use crate::order::free_names;
use crate::proto::{AttributeProto, GraphProto, NodeProto, attribute_kind};
use crate::tensor;
use crate::value::Value;
use attnc_ir::{Dim, Op, Shape};
use std::collections::HashMap;

/// Rounds that are unrolled. More make a graph that takes longer to compile than a loop to run.
const MAX_ROUNDS: i64 = 256;
/// Operands of one concatenation of results, so that each fits the bindings of a kernel.
const MAX_STACKED: usize = 4;

/// `None` where an operand could not be imported, which was reported.
type Results = Result<Vec<Value>, Option<OpError>>;

/// A graph inside of a node, with what it sees of the names around it.
pub(super) struct Body<'m> {
    graph: &'m GraphProto,
    seen: HashMap<&'m str, Option<Value>>,
    /// Operands of a call around it that were left out.
    absent: Vec<&'m str>,
}

/// The operators with graphs inside and the attributes they understand.
pub(crate) const OPERATORS: &[(&str, &[&str])] = &[
    ("If", &["then_branch", "else_branch"]),
    ("Loop", &["body"]),
    (
        "Scan",
        &[
            "body",
            "num_scan_inputs",
            "scan_input_axes",
            "scan_input_directions",
            "scan_output_axes",
            "scan_output_directions",
        ],
    ),
];

/// The attributes that an operator with graphs inside understands.
pub(super) fn attributes(op: &str) -> Option<&'static [&'static str]> {
    let mut known = OPERATORS.iter();
    known
        .find(|(name, _)| *name == op)
        .map(|(_, attributes)| *attributes)
}

impl<'m> Importer<'m> {
    /// The results of `If`, `Loop` or `Scan`.
    pub(super) fn control(
        &mut self,
        node: &'m NodeProto,
        inputs: Vec<Option<Value>>,
        attrs: &Attrs<'m>,
        label: &str,
        scope: &mut Scope<'m>,
    ) -> Results {
        match node.op_type.as_str() {
            "If" => self.branch(inputs, attrs, label, scope),
            "Loop" => self.unroll_loop(inputs, attrs, label, scope),
            _ => self.unroll_scan(inputs, attrs, label, scope),
        }
    }

    fn branch(
        &mut self,
        inputs: Vec<Option<Value>>,
        attrs: &Attrs<'m>,
        label: &str,
        scope: &mut Scope<'m>,
    ) -> Results {
        let condition = inputs.into_iter().next().flatten();
        let known = condition.as_ref().and_then(Value::as_splat);
        let chosen = known.ok_or_else(|| {
            OpError::unsupported("a condition that depends on data", "a constant condition")
        })?;
        let name = if chosen == 0.0 {
            "else_branch"
        } else {
            "then_branch"
        };
        let body = self.body(attrs, name, scope)?;
        self.round(&body, Vec::new(), &format!("{label}/"), scope)
    }

    /// `Loop`: operands are the rounds, whether to begin, and what is carried from round to round.
    fn unroll_loop(
        &mut self,
        inputs: Vec<Option<Value>>,
        attrs: &Attrs<'m>,
        label: &str,
        scope: &mut Scope<'m>,
    ) -> Results {
        let body = self.body(attrs, "body", scope)?;
        let mut inputs = inputs.into_iter();
        let rounds = inputs.next().flatten();
        let begins = inputs.next().flatten();
        let rounds = rounds
            .and_then(|v| v.as_splat())
            .ok_or_else(varying_rounds)?;
        let begins = begins.map_or(Some(1.0), |v| v.as_splat());
        let begins = begins.ok_or_else(varying_condition)? != 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturates, and is compared with few"
        )]
        let rounds = check_rounds(if begins { rounds as i64 } else { 0 })?;
        let mut carried = given(inputs)?;
        let mut stacked: Vec<Vec<Value>> = Vec::new();
        for n in 0..rounds {
            let counter = Value::shape(vec![Dim::from(n)]);
            let counter = self.cx.apply(Op::Reshape(Vec::new()), &[&counter])?;
            let goes_on = self.cx.scalar(attnc_ir::DType::Bool, 1.0);
            let mut operands = vec![counter, goes_on];
            operands.append(&mut carried);
            let count = operands.len() - 2;
            let mut results = self.round(&body, operands, &format!("{label}/{n}/"), scope)?;
            if results.len() <= count {
                return Err(Some(wrong_count("Loop", results.len(), count + 1)));
            }
            let appended = results.split_off(count + 1);
            carried = results.split_off(1);
            push(&mut stacked, appended);
            match results[0].as_splat() {
                Some(0.0) => break,
                Some(_) => {}
                None => return Err(Some(varying_condition())),
            }
        }
        for values in stacked {
            carried.push(self.stack(values, 0, false)?);
        }
        Ok(carried)
    }

    fn unroll_scan(
        &mut self,
        inputs: Vec<Option<Value>>,
        attrs: &Attrs<'m>,
        label: &str,
        scope: &mut Scope<'m>,
    ) -> Results {
        let body = self.body(attrs, "body", scope)?;
        let mut states = given(inputs.into_iter())?;
        let count = attrs
            .int("num_scan_inputs")?
            .and_then(|n| usize::try_from(n).ok());
        let first = count.and_then(|n| states.len().checked_sub(n));
        let Some(first) = first.filter(|_| count != Some(0)) else {
            let message = format!("num_scan_inputs is {count:?} of {} operands", states.len());
            return Err(Some(OpError::invalid("bad-attribute", message)));
        };
        let scanned = states.split_off(first);
        let axes = list(attrs, "scan_input_axes", scanned.len())?;
        let reversed = list(attrs, "scan_input_directions", scanned.len())?;
        let axes = self.axes(&scanned, &axes)?;
        let rounds = self.scan_rounds(&scanned, &axes)?;
        let mut stacked: Vec<Vec<Value>> = Vec::new();
        for n in 0..rounds {
            let mut operands = states;
            for ((x, &axis), &reversed) in scanned.iter().zip(&axes).zip(&reversed) {
                let at = if reversed == 0 { n } else { rounds - 1 - n };
                operands.push(self.at(x, axis, at)?);
            }
            let mut results = self.round(&body, operands, &format!("{label}/{n}/"), scope)?;
            if results.len() < first {
                return Err(Some(wrong_count("Scan", results.len(), first)));
            }
            push(&mut stacked, results.split_off(first));
            states = results;
        }
        let axes = list(attrs, "scan_output_axes", stacked.len())?;
        let reversed = list(attrs, "scan_output_directions", stacked.len())?;
        for ((values, axis), reversed) in stacked.into_iter().zip(axes).zip(reversed) {
            states.push(self.stack(values, axis, reversed != 0)?);
        }
        Ok(states)
    }

    /// How often a `Scan` goes round: the length that all of what it reads have.
    fn scan_rounds(&self, scanned: &[Value], axes: &[usize]) -> OpResult<i64> {
        let lengths: Vec<Dim> = scanned
            .iter()
            .zip(axes)
            .map(|(x, &axis)| self.cx.shape(x)[axis].clone())
            .collect();
        if let Some(other) = lengths.iter().find(|d| **d != lengths[0]) {
            let message = format!("scans over {} and {other}", lengths[0]);
            return Err(OpError::invalid("shape-mismatch", message));
        }
        match lengths[0].as_const() {
            Some(0) => Err(OpError::unsupported("a Scan of no rounds", "at least one")),
            Some(n) => check_rounds(n),
            None => Err(varying_rounds()),
        }
    }

    fn axes(&self, values: &[Value], axes: &[i64]) -> OpResult<Vec<usize>> {
        let axis = |(x, &axis): (&Value, &i64)| position(axis, self.cx.shape(x).len());
        values.iter().zip(axes).map(axis).collect()
    }

    /// Element `n` along an axis, which goes.
    fn at(&mut self, x: &Value, axis: usize, n: i64) -> OpResult<Value> {
        let cut = Op::Slice {
            axis,
            start: n.into(),
            len: Dim::one(),
            step: 1,
        };
        let cut = self.cx.apply(cut, &[x])?;
        let mut shape = self.cx.shape(&cut);
        shape.remove(axis);
        self.cx.apply(Op::Reshape(shape), &[&cut])
    }

    /// The values one after another along a new axis.
    fn stack(&mut self, mut values: Vec<Value>, axis: i64, reversed: bool) -> OpResult<Value> {
        if reversed {
            values.reverse();
        }
        let shape: Shape = self.cx.shape(&values[0]);
        let axis = position(axis, shape.len() + 1)?;
        for value in &mut values {
            let mut shape = self.cx.shape(value);
            shape.insert(axis.min(shape.len()), Dim::one());
            *value = self.cx.apply(Op::Reshape(shape), &[value])?;
        }
        while values.len() > 1 {
            let joined = values.chunks(MAX_STACKED).map(|some| {
                let some: Vec<&Value> = some.iter().collect();
                self.cx.apply(Op::Concat { axis }, &some)
            });
            values = joined.collect::<OpResult<_>>()?;
        }
        Ok(values.remove(0))
    }

    /// The graph that an attribute holds.
    pub(super) fn body(
        &mut self,
        attrs: &Attrs<'m>,
        name: &str,
        scope: &mut Scope<'m>,
    ) -> Result<Body<'m>, Option<OpError>> {
        let graph: Option<&'m AttributeProto> = attrs.get(name);
        let graph = graph.filter(|a| matches!(a.kind, 0 | attribute_kind::GRAPH));
        let Some(graph) = graph.and_then(|a| a.g.as_deref()) else {
            let message = format!("attribute `{name}` is not a graph");
            return Err(Some(OpError::invalid("bad-attribute", message)));
        };
        let (mut seen, mut absent) = (HashMap::new(), Vec::new());
        for name in free_names(graph) {
            if scope.absent.contains(&name) {
                absent.push(name);
                continue;
            }
            let value = self.lookup(name, scope).ok_or(None)?;
            seen.insert(name, Some(value));
        }
        for constant in &graph.initializer {
            let value = tensor::decode(constant, self.files)?;
            value.set_name(&format!("{}{}", scope.prefix, constant.name));
            seen.insert(&constant.name, Some(value));
        }
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |v| v.name.as_str());
            let what = format!("the sparse constant `{name}`");
            return Err(Some(OpError::unsupported(what, "a dense constant")));
        }
        Ok(Body {
            graph,
            seen,
            absent,
        })
    }

    /// One round: the results of a body for these operands.
    pub(super) fn round(
        &mut self,
        body: &Body<'m>,
        operands: Vec<Value>,
        prefix: &str,
        around: &Scope<'m>,
    ) -> Results {
        if around.depth >= super::MAX_CALLS {
            let deep = format!(
                "graphs inside of graphs, more than {} deep",
                super::MAX_CALLS
            );
            return Err(Some(OpError::invalid("recursive-function", deep)));
        }
        let graph = body.graph;
        let names = graph.input.iter().map(|i| i.name.as_str());
        let names: Vec<&str> = names.filter(|n| !body.seen.contains_key(n)).collect();
        if names.len() != operands.len() {
            return Err(Some(wrong_count("the body", operands.len(), names.len())));
        }
        let mut scope = Scope {
            prefix: prefix.to_owned(),
            values: body.seen.clone(),
            absent: body.absent.clone(),
            attrs: around.attrs.clone(),
            opsets: around.opsets,
            depth: around.depth + 1,
        };
        let operands = operands.into_iter().map(Some);
        scope.values.extend(names.into_iter().zip(operands));
        let outputs: Vec<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
        self.import_nodes(&graph.node, &outputs, &mut scope);
        let results = outputs
            .iter()
            .map(|name| scope.values.get(name).cloned().flatten());
        results.map(|value| value.ok_or(None)).collect()
    }
}

/// Adds what each result is in one more round.
fn push(stacked: &mut Vec<Vec<Value>>, values: Vec<Value>) {
    stacked.resize(values.len().max(stacked.len()), Vec::new());
    for (all, value) in stacked.iter_mut().zip(values) {
        all.push(value);
    }
}

fn given(operands: impl Iterator<Item = Option<Value>>) -> OpResult<Vec<Value>> {
    let missing = || OpError::invalid("operand-count", "an operand is missing");
    operands.map(|v| v.ok_or_else(missing)).collect()
}

/// Numbers of an attribute, zeros where it is not there.
fn list(attrs: &Attrs<'_>, name: &str, len: usize) -> OpResult<Vec<i64>> {
    match attrs.ints(name)? {
        None => Ok(vec![0; len]),
        Some(list) if list.len() == len => Ok(list),
        Some(list) => {
            let message = format!("attribute `{name}` is {list:?}, expected {len} numbers");
            Err(OpError::invalid("bad-attribute", message))
        }
    }
}

fn position(axis: i64, rank: usize) -> OpResult<usize> {
    let size = i64::try_from(rank).unwrap_or(i64::MAX);
    let from_front = usize::try_from(if axis < 0 { axis + size } else { axis });
    from_front.ok().filter(|&n| n < rank).ok_or_else(|| {
        OpError::invalid(
            "bad-axis",
            format!("axis {axis} of a value with {rank} axes"),
        )
    })
}

fn check_rounds(rounds: i64) -> OpResult<i64> {
    if rounds <= MAX_ROUNDS {
        return Ok(rounds.max(0));
    }
    Err(OpError::unsupported(
        format!("{rounds} rounds, which are unrolled"),
        format!("at most {MAX_ROUNDS}"),
    ))
}

fn varying_rounds() -> OpError {
    OpError::unsupported(
        "a number of rounds that is not a constant",
        "a fixed length of what is looped over, or an export without loops",
    )
}

fn varying_condition() -> OpError {
    OpError::unsupported(
        "rounds that end where data says so",
        "a constant condition and number of rounds",
    )
}

fn wrong_count(what: &str, found: usize, expected: usize) -> OpError {
    let message = format!("{what}: found {found} values, expected {expected}");
    OpError::invalid("operand-count", message)
}
