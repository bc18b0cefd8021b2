//! The body of one function while it is printed: statements, and index variables over which it is written.

use super::{Function, IndexSpace, Mods, Returns};
use attnc_ir::scalar::ScalarExpr;
use attnc_ir::{Atom, Dim, Extents, ValueId};
use std::collections::HashMap;

/// One function body while it is printed: statements in front, expressions as text.
pub(super) struct Body<'m, 'g> {
    pub(super) mods: &'m mut Mods<'g>,
    pub(super) expr: &'m ScalarExpr,
    pub(super) operands: &'m [ValueId],
    pub(super) space: &'m IndexSpace,
    pub(super) arg: Option<&'m str>,
    pub(super) returns: Returns,
    pub(super) statements: Vec<String>,
    /// Names of statements by what they are equal to.
    pub(super) known: HashMap<String, String>,
    pub(super) counts: HashMap<&'static str, usize>,
    /// Index variables that are clamped values, behind the logical and the parameters' ones.
    pub(super) clamped: Vec<(String, Dim)>,
    /// Names of expression nodes that have a statement.
    pub(super) bound: Vec<Option<String>>,
    pub(super) uses: Vec<usize>,
    /// Expression nodes, of those printed so far, that are vectors: which differ between the four elements.
    pub(super) varies: Vec<bool>,
}

impl<'m, 'g> Body<'m, 'g> {
    pub(super) fn new(mods: &'m mut Mods<'g>, function: &Function<'m>) -> Self {
        let count = function.expr.nodes().len();
        let mut uses = vec![0; count];
        for node in function.expr.nodes() {
            for operand in node.operands() {
                uses[operand.index()] += 1;
            }
        }
        Self {
            mods,
            expr: function.expr,
            operands: function.operands,
            space: function.space,
            arg: function.arg.map(|(name, _)| name),
            returns: function.result,
            statements: Vec::new(),
            known: HashMap::new(),
            counts: HashMap::new(),
            clamped: function.space.elements(),
            bound: vec![None; count],
            uses,
            varies: vec![false; count],
        }
    }

    /// A statement `let {prefix}{n} = {value};`, or the one there is for that value.
    pub(super) fn bind(&mut self, prefix: &'static str, value: String) -> String {
        if let Some(name) = self.known.get(&value) {
            return name.clone();
        }
        let count = self.counts.entry(prefix).or_insert(0);
        let name = format!("{prefix}{count}");
        *count += 1;
        self.statements.push(format!("let {name} = {value};"));
        self.known.insert(value, name.clone());
        name
    }

    /// Extents of the logical index variables: what proofs rest on. That an element is computed shows that
    /// these are at least 1; of an axis that a clamped variable runs along nothing is known.
    pub(super) fn logical_extents(&self) -> Extents {
        Extents::new(self.space.logical.clone())
    }

    /// Extents of the logical index variables, then of the clamped ones: for simplifying addresses.
    pub(super) fn address_extents(&self) -> Extents {
        let clamped = self.clamped.iter().map(|(_, extent)| extent.clone());
        Extents::new(self.space.logical.iter().cloned().chain(clamped).collect())
    }

    /// Extents of the parameters, then of the clamped variables.
    pub(super) fn parameter_extents(&self) -> Extents {
        let mut extents = self.space.parameter_extents();
        extents.extend(self.clamped.iter().map(|(_, extent)| extent.clone()));
        Extents::new(extents)
    }

    /// The polynomial over logical and clamped variables, over parameters and clamped ones.
    pub(super) fn over_parameters(&self, dim: &Dim) -> Dim {
        let (logical, parameters) = (self.space.logical.len(), self.space.parameters.len());
        dim.substitute(&self.parameter_extents(), &|atom| match atom {
            Atom::Index(n) => Some(match self.space.index.get(*n as usize) {
                Some(index) => index.clone(),
                None => {
                    let clamped = *n as usize - logical;
                    Dim::index(u32::try_from(parameters + clamped).expect("few indices"))
                }
            }),
            _ => None,
        })
    }
}
