//! Reading the attributes of a node: by name and type, with everything else an error.

use crate::error::{OpError, OpResult};
use crate::eval::MAX_INT;
use crate::proto::{AttributeProto, TensorProto, attribute_kind};

/// The attributes of one node, with references to those of a calling function resolved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attrs<'m>(pub(crate) Vec<(&'m str, &'m AttributeProto)>);

impl<'m> Attrs<'m> {
    pub(crate) fn get(&self, name: &str) -> Option<&'m AttributeProto> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
    }

    fn of_kind(&self, name: &str, kind: i32, what: &str) -> OpResult<Option<&'m AttributeProto>> {
        match self.get(name) {
            // Files of the first version of the format do not say the kind.
            Some(a) if a.kind == kind || a.kind == 0 => Ok(Some(a)),
            None => Ok(None),
            Some(a) => Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `{name}` has type {}, expected {what}", a.kind),
            )),
        }
    }

    pub(crate) fn int(&self, name: &str) -> OpResult<Option<i64>> {
        let found = self.of_kind(name, attribute_kind::INT, "an integer")?;
        Ok(found.map(|a| a.i.unwrap_or(0).clamp(-MAX_INT, MAX_INT)))
    }

    /// An integer that is 0 or 1.
    pub(crate) fn flag(&self, name: &str, default: bool) -> OpResult<bool> {
        match self.int(name)? {
            None => Ok(default),
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            Some(n) => Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `{name}` is {n}, expected 0 or 1"),
            )),
        }
    }

    pub(crate) fn float(&self, name: &str) -> OpResult<Option<f32>> {
        let found = self.of_kind(name, attribute_kind::FLOAT, "a float")?;
        match found.map(|a| a.f.unwrap_or(0.0)) {
            Some(v) if !v.is_finite() => Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `{name}` is {v}, expected a finite number"),
            )),
            v => Ok(v),
        }
    }

    pub(crate) fn ints(&self, name: &str) -> OpResult<Option<Vec<i64>>> {
        let found = self.of_kind(name, attribute_kind::INTS, "integers")?;
        Ok(found.map(|a| {
            a.ints
                .iter()
                .map(|n| (*n).clamp(-MAX_INT, MAX_INT))
                .collect()
        }))
    }

    pub(crate) fn floats(&self, name: &str) -> OpResult<Option<Vec<f32>>> {
        let found = self.of_kind(name, attribute_kind::FLOATS, "floats")?;
        Ok(found.map(|a| a.floats.clone()))
    }

    pub(crate) fn string(&self, name: &str) -> OpResult<Option<&'m str>> {
        let Some(found) = self.of_kind(name, attribute_kind::STRING, "a string")? else {
            return Ok(None);
        };
        let bytes = found.s.as_deref().unwrap_or_default();
        std::str::from_utf8(bytes).map(Some).map_err(|_| {
            OpError::invalid("bad-attribute", format!("attribute `{name}` is not UTF-8"))
        })
    }

    pub(crate) fn tensor(&self, name: &str) -> OpResult<Option<&'m TensorProto>> {
        let found = self.of_kind(name, attribute_kind::TENSOR, "a tensor")?;
        Ok(found.and_then(|a| a.t.as_deref()))
    }
}
